"""The conformance kit: does a store do what `datasync.storage.protocol` promises? Each clause is tried, none assumed.

Works in the scratch store that it is given, and removes every object that it made, also after a failure. What a clause
finds missing is a `Finding`; trouble that says nothing about the store's behaviour (`StorageUnavailable`,
`NotAuthorized`, `NoSpace`, `NotFound` for a missing bucket) is raised. Deleting alone may be forbidden: many writers
are allowed to write only.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from datasync.errors import AlreadyExists, DatasyncError, IntegrityError, NotAuthorized, NotFound, UsageError
from datasync.model.limits import MIB
from datasync.storage.protocol import ObjectStore

LANES = 16  # requests at the same time, where order does not matter

T = TypeVar("T")
S = TypeVar("S")


class Need(StrEnum):
    """What a repository is without a clause."""

    ALL = "all"  # unusable
    WRITERS = "writers"  # good for one writer at a time
    SOME = "some"  # usable, without what the clause's meaning says


class Missing(Exception):
    """A clause's way to say what it found instead; never leaves the kit."""


@dataclass(frozen=True, slots=True)
class KitOptions:
    """How much is tried."""

    names: int = 1_105  # more than one page of any provider
    racers: int = 8
    rounds: int = 5  # of reading, listing and racing
    large_bytes: int = 33 * MIB  # a full pack is 32 MiB


QUICK = KitOptions(names=200, rounds=2)


@dataclass(frozen=True, slots=True)
class Kit:
    """What a clause works with. *other* is a second client of the same place: it knows nothing of the first's puts.
    *driver* is the first's own driver, for what only some stores can do."""

    store: ObjectStore
    other: ObjectStore
    options: KitOptions = field(default_factory=KitOptions)
    made: set[str] = field(default_factory=set)
    driver: ObjectStore | None = None

    def put(self, name: str, data: bytes | bytearray) -> None:
        """Create an object that will be removed at the end."""
        self.made.add(name)  # before the put: one of unknown outcome is removed too
        self.store.put_if_absent(name, data)

    def names(self, prefix: str, *, limit: int | None = None, after: str = "") -> list[str]:
        """List with the second client."""
        return [item.name for item in self.other.list(prefix, limit=limit, after=after)]

    def clean(self) -> None:
        """Remove what was made."""
        for name in in_lanes(self._remove, sorted(self.made)):
            self.made.discard(name)

    def _remove(self, name: str) -> str:
        self.store.delete(name)
        return name


@dataclass(frozen=True, slots=True)
class Clause:
    """One behaviour: its *name*, what the repository loses without it, and how to find out.

    *check* returns what it saw, or raises `Missing`.
    """

    name: str
    need: Need
    meaning: str
    check: Callable[[Kit], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One clause's result; *saw* is for people."""

    clause: Clause
    ok: bool
    saw: str


@contextmanager
def kit_for(
    store: ObjectStore, other: ObjectStore, options: KitOptions, driver: ObjectStore | None = None
) -> Iterator[Kit]:
    """Yield a kit, and remove its objects at the end; `made` tells afterwards what is left where that is forbidden."""
    kit = Kit(store, other, options, driver=driver)
    try:
        yield kit
    except BaseException:
        with suppress(DatasyncError):  # the first error says more than a second one from cleaning up
            kit.clean()
        raise
    try:
        kit.clean()
    except NotAuthorized:
        return  # the clause about deleting has told it
    except BaseException:
        kit.clean()  # a signal broke the first try off; the command ignores a second one
        raise


def examine(kit: Kit, clauses: Iterable[Clause]) -> Iterator[Finding]:
    """Yield a finding for each clause, in order."""
    kit.names("", limit=1)  # a missing bucket or right shows here, so what is not found later is the store's doing
    for clause in clauses:
        yield _judge(kit, clause)


def _judge(kit: Kit, clause: Clause) -> Finding:
    try:
        return Finding(clause, True, clause.check(kit))
    except Missing as found:
        return Finding(clause, False, str(found))
    except (AlreadyExists, IntegrityError, NotFound, UsageError) as error:
        # A fresh name that is taken, bytes that are not there, an order that the driver refuses.
        return Finding(clause, False, str(error))


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 when all is there, 3 when the repository works without it, 7 when it does not."""
    needs = {finding.clause.need for finding in findings if not finding.ok}
    return 7 if Need.ALL in needs else 3 if needs else 0


def in_lanes(call: Callable[[S], T], items: Iterable[S], lanes: int = LANES) -> Iterator[T]:
    """Yield the results in order, *lanes* calls at the same time; nothing new is begun after a failure."""
    pool = ThreadPoolExecutor(lanes)
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(cancel_futures=True)
