"""Every kind of store that the tests know: how each starts, and what each lacks. One entry each in `KINDS`.

A kind is started at most once for a test session, when a test first asks for it. `lacks` holds the words below; what a
kind does not declare as lacking it has to do, and the contract suite, the doctor's tests, the races and the hostile
tree hold it to that.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from datasync.storage.location import open_store
from datasync.storage.protocol import ObjectStore
from tests.support import azurite, gcs, servers

# What a kind may lack. The first is the name of the conformance kit's clause, so it is also what doctor must find.
PUT_IF_ABSENT = "put-if-absent"
BYTE_ORDER = "byte order"  # of any names; those of a repository are listed in order everywhere
ONE_WINNER = "one winner"  # of two racing puts both may be told, rarely, that they won
PROCESSES = "processes"  # what one process stores another can not see
KEYS = "keys"  # credentials are not checked
BUCKETS = "buckets"  # a place need not be made first, so it can not be missing


class Server(Protocol):
    """A running kind of store: places for objects, each with a URL that the command line takes."""

    @property
    def kind(self) -> str: ...

    def __hash__(self) -> int: ...

    def make_bucket(self, name: str) -> str:
        """Make an empty place and return its URL. *name* is lower-case letters and digits."""

    def url(self, bucket: str, prefix: str = "") -> str: ...

    def open(self, bucket: str, prefix: str = "") -> ObjectStore:
        """Return the bare driver for that place, without retries."""

    def environment(self) -> dict[str, str]:
        """Return what a process needs to reach it through the provider's own credentials chain."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of store."""

    name: str
    start: Callable[[], AbstractContextManager[Server]] = field(repr=False)
    lacks: frozenset[str] = frozenset()
    missing: Callable[[], str] = field(default=lambda: "", repr=False)
    """Returns what this machine lacks to run it, or nothing."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What needs no server: a directory, or memory."""

    kind: str
    root: str

    def make_bucket(self, name: str) -> str:
        return self.url(name)

    def url(self, bucket: str, prefix: str = "") -> str:
        return "/".join(part for part in (self.root, bucket, prefix) if part)

    def open(self, bucket: str, prefix: str = "") -> ObjectStore:
        return open_store(self.url(bucket, prefix))

    def environment(self) -> dict[str, str]:
        return {}


@contextmanager
def _memory() -> Iterator[Server]:
    yield _Place("memory", "memory:/")


@contextmanager
def _local() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="datasync-local-", ignore_cleanup_errors=True) as name:
        yield _Place("local", str(Path(name).resolve()))


@contextmanager
def _plugin() -> Iterator[Server]:
    """A directory through fsspec: what any of its file systems can do, and no more."""
    with tempfile.TemporaryDirectory(prefix="datasync-fsspec-", ignore_cleanup_errors=True) as name:
        yield _Place("fsspec", f"local://{Path(name).resolve()}")


@contextmanager
def _sftp() -> Iterator[Server]:
    from tests.support.sftp import sftp

    with sftp() as server:
        yield server


@contextmanager
def _oss(client: str) -> Iterator[Server]:
    from tests.support.oss_server import oss_server  # only tests that ask for it pay for the import

    with oss_server(client) as server:
        yield server


@contextmanager
def _cos() -> Iterator[Server]:
    from tests.support.cos_server import cos_server

    with cos_server() as server:
        yield server


KINDS = (
    Kind("memory", _memory, frozenset({PROCESSES, KEYS, BUCKETS})),
    Kind("local", _local, frozenset({KEYS, BUCKETS})),
    Kind("seaweedfs", servers.seaweedfs, frozenset({BYTE_ORDER})),
    Kind("moto", servers.moto, frozenset({ONE_WINNER, KEYS})),
    Kind("rclone", servers.rclone, frozenset({PUT_IF_ABSENT, ONE_WINNER})),
    Kind("gcs", gcs.fake_gcs, frozenset({KEYS})),
    Kind("azure", azurite.azurite, missing=azurite.missing),
    Kind("sftp", _sftp, frozenset({KEYS, BUCKETS})),
    Kind("fsspec", _plugin, frozenset({PUT_IF_ABSENT, ONE_WINNER, KEYS, BUCKETS})),
    Kind("oss-oss2", partial(_oss, "oss2")),
    Kind("oss-v2", partial(_oss, "v2")),
    Kind("cos", _cos),
)


WORDS = (PUT_IF_ABSENT, BYTE_ORDER, ONE_WINNER, PROCESSES, KEYS, BUCKETS)


def table() -> str:
    """Return the kinds and what each has or lacks, as docs/providers.md keeps it."""
    lines = [f"| store | {' | '.join(WORDS)} |", "|---" * (len(WORDS) + 1) + "|"]
    for kind in KINDS:
        cells = ("lacks" if word in kind.lacks else "yes" for word in WORDS)
        lines.append(f"| {kind.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def names(*having: str) -> tuple[str, ...]:
    """Return the names of the kinds that lack none of *having*."""
    return tuple(kind.name for kind in KINDS if not kind.lacks & set(having))


def lacks(name: str) -> frozenset[str]:
    """Return what the kind *name* lacks."""
    return _kind(name).lacks


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


class Running:
    """The kinds that were asked for so far; starts each once and stops all at the end."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._servers: dict[str, Server] = {}
        self._shared: set[str] = set()

    def server(self, name: str) -> Server:
        """Return the running kind *name*."""
        if name not in self._servers:
            if reason := _kind(name).missing():
                pytest.skip(f"{name}: {reason}")
            self._servers[name] = self._stack.enter_context(_kind(name).start())
        return self._servers[name]

    def fresh(self, name: str, unique: str) -> ObjectStore:
        """Return an empty store of the kind *name*: a prefix of one bucket, for SeaweedFS sets much apart for each."""
        server = self.server(name)
        if name not in self._shared:
            server.make_bucket("shared")
            self._shared.add(name)
        return server.open("shared", f"{unique}/prefix")

    def close(self) -> None:
        self._stack.close()
