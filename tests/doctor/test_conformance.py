"""Each fault of a store is found by its clause, and by no other; a sound store has none; nothing stays."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from datasync.errors import AlreadyExists, IntegrityError, NotAuthorized, NotFound, StorageUnavailable
from datasync.storage.clauses import CLAUSES, skew_of
from datasync.storage.conformance import Finding, KitOptions, examine, exit_code, kit_for
from datasync.storage.memory import MemoryStore
from datasync.storage.pace import measure_latency, measure_throughput
from datasync.storage.protocol import Created, ObjectStat, ObjectStore
from datasync.storage.retry import RetryingStore
from tests.support import stores
from tests.support.stores import ONE_WINNER, PUT_IF_ABSENT

SMALL = KitOptions(names=120, rounds=2, large_bytes=2 * 1024 * 1024)


class Overwrites(MemoryStore):
    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        self.delete(name)
        return super().put_if_absent(name, data)


class RacesLose(MemoryStore):
    """Looks first and creates then, as stores without a condition do."""

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        if any(True for _ in super().list(name, limit=1)):
            raise AlreadyExists(name)
        time.sleep(0.05)
        self.delete(name)
        return super().put_if_absent(name, data)


class RemembersAbsence(MemoryStore):
    """Answers from a cache of what was not there."""

    def __init__(self) -> None:
        super().__init__()
        self.absent: set[str] = set()

    def get(self, name: str, *, limit: int) -> bytes:
        try:
            if name in self.absent:
                raise NotFound(name)
            return super().get(name, limit=limit)
        except NotFound:
            if name.startswith("fresh/"):
                self.absent.add(name)
            raise


class ListsLate(MemoryStore):
    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        found = super().list(prefix, after=after)
        late = (item for item in found if not (item.name.startswith("snapshots/") and item.modified > time.time() - 1))
        for count, item in enumerate(late):
            if count == limit:
                return
            yield item


class OnePage(MemoryStore):
    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        return super().list(prefix, limit=min(limit or 100, 100), after=after)


class Disordered(MemoryStore):
    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        found = list(super().list(prefix, limit=limit, after=after))
        yield from (found[::-1] if prefix == "packs/" else found)


class WrongRanges(MemoryStore):
    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        super().get_range(name, offset if name == "large" else 0, buffer)


class SmallObjects(MemoryStore):
    def get(self, name: str, *, limit: int) -> bytes:
        return super().get(name, limit=limit)[: 1024 * 1024]


class OneCase(MemoryStore):
    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        return super().put_if_absent(name.lower(), data)

    def get(self, name: str, *, limit: int) -> bytes:
        return super().get(name.lower(), limit=limit)


class WrongSize(MemoryStore):
    def stat(self, name: str) -> ObjectStat:
        found = super().stat(name)
        return ObjectStat(name, found.size + (name == "told/one"), found.modified)


class KeepsAll(MemoryStore):
    """Says that it deletes; the kit's own cleaning up goes through."""

    def delete(self, name: str) -> None:
        if not name.startswith("gone/"):
            super().delete(name)


class MayNotDelete(MemoryStore):
    def delete(self, name: str) -> None:
        raise NotAuthorized("delete")


def skewed() -> MemoryStore:
    return MemoryStore(clock=lambda: time.time() + 3_600)


def examined(store: ObjectStore, driver: ObjectStore | None = None, options: KitOptions = SMALL) -> list[Finding]:
    with kit_for(store, store, options, driver) as kit:
        return list(examine(kit, CLAUSES))


def missing(findings: list[Finding]) -> list[str]:
    return [finding.clause.name for finding in findings if not finding.ok]


def test_every_kind_of_store_lacks_exactly_what_it_lacks(
    any_store: ObjectStore, request: pytest.FixtureRequest
) -> None:
    lacks = stores.lacks(request.node.callspec.params["any_store"])
    options = replace(SMALL, racers=1) if ONE_WINNER in lacks else SMALL  # whether a race shows it is chance
    findings = examined(RetryingStore(any_store), any_store, options)  # retried as by the command: rclone answers 500
    without = [PUT_IF_ABSENT] if PUT_IF_ABSENT in lacks else []
    assert missing(findings) == without, [finding.saw for finding in findings if not finding.ok]
    assert exit_code(findings) == (3 if without else 0)
    assert list(any_store.list("")) == []


@pytest.mark.parametrize(
    ("make", "clause", "code"),
    [
        (Overwrites, "put-if-absent", 3),
        (RacesLose, "put-if-absent", 3),
        (RemembersAbsence, "read-after-write", 7),
        (ListsLate, "list-after-write", 7),
        (OnePage, "listing", 7),
        (Disordered, "listing", 7),
        (WrongRanges, "ranges", 7),
        (SmallObjects, "large object", 7),
        (OneCase, "odd names", 3),
        (WrongSize, "stat", 7),
        (KeepsAll, "delete", 3),
        (MayNotDelete, "delete", 3),
        (skewed, "clock", 3),
    ],
)
def test_a_fault_is_found_by_its_clause_alone(make: Callable[[], MemoryStore], clause: str, code: int) -> None:
    findings = examined(make())
    assert missing(findings) == [clause], [finding.saw for finding in findings if not finding.ok]
    assert exit_code(findings) == code
    assert len(findings) == len(CLAUSES)


def test_where_deleting_is_forbidden_what_is_left_is_named() -> None:
    store = MayNotDelete()
    with kit_for(store, store, SMALL) as kit:
        list(examine(kit, CLAUSES))
    assert {item.name for item in store.list("")} <= kit.made


@pytest.mark.parametrize("error", [StorageUnavailable("x"), NotAuthorized("x"), KeyboardInterrupt()])
def test_trouble_on_the_way_is_raised_and_nothing_stays(error: BaseException) -> None:
    class Breaks(MemoryStore):
        def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
            if name == "ranged":
                raise error
            return super().put_if_absent(name, data)

    store = Breaks()
    with pytest.raises(type(error)):
        examined(store)
    assert list(store.list("")) == []


def test_a_signal_while_cleaning_up_leaves_nothing() -> None:
    class Interrupted(MemoryStore):
        again = False

        def delete(self, name: str) -> None:
            if name == "large" and not self.again:
                self.again = True
                raise KeyboardInterrupt
            super().delete(name)

    store = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        examined(store)
    assert store.again
    assert list(store.list("")) == []


def test_an_integrity_error_of_a_driver_is_a_finding() -> None:
    class Refuses(MemoryStore):
        def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
            if name == "ranged":
                raise IntegrityError("another range came")
            super().get_range(name, offset, buffer)

    findings = examined(Refuses())
    assert [finding.saw for finding in findings if not finding.ok] == ["another range came"]


@pytest.mark.parametrize(
    ("modified", "expected"), [(100.0, 0), (101.5, 0), (99.0, 0), (98.5, -0.5), (400.0, 298), (90.0, -9)]
)
def test_a_clock_in_whole_seconds_is_not_taken_for_a_wrong_one(modified: float, expected: float) -> None:
    assert skew_of(modified, before=100.0, after=102.0) == expected


def test_the_pace_is_measured_and_nothing_stays() -> None:
    store = MemoryStore()
    with kit_for(store, store, SMALL) as kit:
        latency, flow = measure_latency(kit, 3), measure_throughput(kit, 2, 100_000)
    assert min(latency.put, latency.get, latency.list, flow.put, flow.get) > 0
    assert list(store.list("")) == []
