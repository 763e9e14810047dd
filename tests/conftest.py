"""Fixtures that all tests share: real servers, one of each kind for a session, and a fresh store of every kind."""

import os
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import settings

from datasync.storage.protocol import ObjectStore
from tests.support import stores
from tests.support.clause_table import clause_table
from tests.support.servers import S3Server
from tests.support.stores import Running

settings.register_profile("unhurried", deadline=None)  # else as the profile so far, in CI Hypothesis's own for it
settings.load_profile("unhurried")

S3_SERVERS = ("seaweedfs", "moto", "rclone")


@pytest.fixture(scope="session")
def seaweedfs(running: Running) -> S3Server:
    return _s3(running, "seaweedfs")


@pytest.fixture(scope="session")
def moto(running: Running) -> S3Server:
    return _s3(running, "moto")


@pytest.fixture(scope="session")
def rclone(running: Running) -> S3Server:
    return _s3(running, "rclone")


def _s3(running: Running, name: str) -> S3Server:
    server = running.server(name)
    assert isinstance(server, S3Server)
    return server


@pytest.fixture(params=S3_SERVERS)
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """Each server in turn; only those that a test asks for are started."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, S3Server)
    return server


@pytest.fixture
def fresh_bucket() -> str:
    return f"b{os.urandom(8).hex()}"


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    """The stores that tests have asked for so far."""
    made = Running()
    yield made
    made.close()


@pytest.fixture(params=stores.names())
def any_store(request: pytest.FixtureRequest, running: Running, fresh_bucket: str) -> Iterator[ObjectStore]:
    """A fresh, empty store of each kind."""
    with closing(running.fresh(request.param, fresh_bucket)) as store:
        yield store


@pytest.fixture(params=stores.names(stores.PUT_IF_ABSENT))
def conditional_store(request: pytest.FixtureRequest, running: Running, fresh_bucket: str) -> Iterator[ObjectStore]:
    """A fresh, empty store of each kind that honours put-if-absent."""
    with closing(running.fresh(request.param, fresh_bucket)) as store:
        yield store


@pytest.fixture(params=stores.names(stores.PUT_IF_ABSENT, stores.ONE_WINNER))
def racing_store(request: pytest.FixtureRequest, running: Running, fresh_bucket: str) -> Iterator[ObjectStore]:
    """A fresh, empty store of each kind that tells one of several racing writers alone that it won."""
    with closing(running.fresh(request.param, fresh_bucket)) as store:
        yield store


@pytest.fixture(params=stores.names(stores.BYTE_ORDER))
def ordering_store(request: pytest.FixtureRequest, running: Running, fresh_bucket: str) -> Iterator[ObjectStore]:
    """A fresh, empty store of each kind that lists any names in byte order; SeaweedFS compares by components."""
    with closing(running.fresh(request.param, fresh_bucket)) as store:
        yield store


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which clause of the contract held on which store."""
    outcomes = {
        name: [item.nodeid for item in terminalreporter.stats.get(name, [])] for name in ("passed", "failed", "skipped")
    }
    for line in clause_table(outcomes, tuple(kind.name for kind in stores.KINDS)):
        terminalreporter.write_line(line)
