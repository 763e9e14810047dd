"""Fixtures that all tests share: real servers, one of each kind for a session, and a fresh store of every kind."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from datasync.storage.local import LocalStore
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import ObjectStore
from tests.support import servers
from tests.support.servers import S3Server

S3_SERVERS = ("seaweedfs", "moto", "rclone")


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[S3Server]:
    with servers.seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    with servers.moto() as server:
        yield server


@pytest.fixture(scope="session")
def rclone() -> Iterator[S3Server]:
    with servers.rclone() as server:
        yield server


@pytest.fixture(params=S3_SERVERS)
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """Each server in turn; only those that a test asks for are started."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, S3Server)
    return server


@pytest.fixture
def fresh_bucket() -> str:
    return f"b{os.urandom(8).hex()}"


ALL_STORES = ("memory", "local", *S3_SERVERS)
CONDITIONAL_STORES = tuple(kind for kind in ALL_STORES if kind != "rclone")  # rclone overwrites


@pytest.fixture(params=ALL_STORES)
def any_store(request: pytest.FixtureRequest, tmp_path: Path, fresh_bucket: str) -> Iterator[ObjectStore]:
    """A fresh, empty store of each kind."""
    yield from _open_store(request, tmp_path, fresh_bucket)


@pytest.fixture(params=CONDITIONAL_STORES)
def conditional_store(request: pytest.FixtureRequest, tmp_path: Path, fresh_bucket: str) -> Iterator[ObjectStore]:
    """A fresh, empty store of each kind that honours put-if-absent."""
    yield from _open_store(request, tmp_path, fresh_bucket)


@pytest.fixture(params=tuple(kind for kind in ALL_STORES if kind != "seaweedfs"))
def ordering_store(request: pytest.FixtureRequest, tmp_path: Path, fresh_bucket: str) -> Iterator[ObjectStore]:
    """A fresh, empty store of each kind that lists any names in byte order; SeaweedFS compares by components."""
    yield from _open_store(request, tmp_path, fresh_bucket)


@functools.cache
def _shared_bucket(server: S3Server) -> str:
    """One bucket for a server: SeaweedFS sets several volumes apart for each."""
    server.make_bucket("shared")
    return "shared"


def _open_store(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> Iterator[ObjectStore]:
    store: ObjectStore
    if request.param == "memory":
        store = MemoryStore()
    elif request.param == "local":
        store = LocalStore(tmp_path / "store")
    else:
        server: S3Server = request.getfixturevalue(request.param)
        store = server.open(_shared_bucket(server), f"{bucket}/prefix")
    yield store
    store.close()
