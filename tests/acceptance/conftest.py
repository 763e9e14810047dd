"""Fixtures of the acceptance tests: a scratch directory that is gone afterwards, and a machine with a repository."""

import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import S3_SERVERS
from tests.support import stores
from tests.support.cli import Machine
from tests.support.stores import Running, Server
from tests.support.trees import make_hostile_tree


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory for trees of any depth, size and mode; nothing of it stays, also when the test fails."""
    yield from _scratch()


@pytest.fixture(scope="session")
def hostile_tree() -> Iterator[Path]:
    """The tree of everything that a file system may hold; tests only read it."""
    for directory in _scratch():
        root = directory / "hostile"
        make_hostile_tree(root)
        yield root


def _scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="datasync-acceptance-")).resolve()
    try:
        yield directory
    finally:
        if os.geteuid() != 0:
            subprocess.run(["chmod", "-Rf", "u+rwx", str(directory)], check=False)
        subprocess.run(["rm", "-rf", str(directory)], check=True)  # it knows trees deeper than any path is long


@pytest.fixture
def machine(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a repository in a local directory."""
    return _machine(scratch, str(scratch / "repository"), {}, monkeypatch)


@pytest.fixture(params=("local", *S3_SERVERS))
def any_machine(request: pytest.FixtureRequest, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a repository in each kind of store."""
    if request.param == "local":
        return _machine(scratch, str(scratch / "repository"), {}, monkeypatch)
    return s3_machine(request.getfixturevalue(request.param), scratch, monkeypatch)


@pytest.fixture(params=stores.names())
def every_machine(
    request: pytest.FixtureRequest, running: Running, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> Machine:
    """A machine with a repository in each kind of store of tests/support/stores.py."""
    return s3_machine(running.server(request.param), scratch, monkeypatch)


def s3_machine(server: Server, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine with a repository of its own on *server*."""
    url = server.url(_bucket(server), f"{os.urandom(8).hex()}/repository")
    return _machine(scratch, url, server.environment(), monkeypatch)


@functools.cache
def _bucket(server: Server) -> str:
    server.make_bucket("acceptance")
    return "acceptance"


def _machine(scratch: Path, url: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in [name for name in os.environ if name.startswith(("AWS_", "OSS_", "COS_", "DATASYNC_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    home = scratch / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    made = Machine(home, url)
    with made.session() as session:
        session.initialise()
    return made
