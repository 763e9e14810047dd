"""RetryingStore against a scripted flaky store: no clock, no sleep, no chance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    IntegrityError,
    NoSpace,
    NotAuthorized,
    NotFound,
    SlowDown,
    StorageUnavailable,
)
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created, ObjectStat
from datasync.storage.retry import RetryBudget, RetryingStore, Surroundings, retry_after

Calls = list[str]
Errors = list[DatasyncError]

BUSY = StorageUnavailable("busy")


class FlakyStore(MemoryStore):
    """Raises the scripted errors first; a put whose error is in *after* has been done before it is raised."""

    def __init__(self, *before: DatasyncError, after: tuple[DatasyncError, ...] = ()) -> None:
        super().__init__()
        self.before, self.after = list(before), list(after)
        self.on_get: Errors = []
        self.on_directories: Errors = []
        self.calls: Calls = []

    def _fail(self, call: str) -> None:
        self.calls.append(call)
        if self.before:
            raise self.before.pop(0)

    def get(self, name: str, *, limit: int) -> bytes:
        self._fail("get")
        if self.on_get:
            raise self.on_get.pop(0)
        return super().get(name, limit=limit)

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        self._fail("get_range")
        super().get_range(name, offset, buffer)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        self._fail("put")
        created = super().put_if_absent(name, data)
        if self.after:
            raise self.after.pop(0)
        return created

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        self._fail(f"list {limit} {after}")
        for count, item in enumerate(super().list(prefix, limit=limit, after=after)):
            if count == 2 and self.after:
                raise self.after.pop(0)
            yield item

    def list_directories(self, prefix: str) -> Iterator[str]:
        for component in super().list_directories(prefix):
            yield component
            if self.on_directories:
                raise self.on_directories.pop(0)

    def stat(self, name: str) -> ObjectStat:
        self._fail("stat")
        return super().stat(name)

    def delete(self, name: str) -> None:
        self._fail("delete")
        super().delete(name)


@dataclass
class Clock:
    now: float = 100.0
    pauses: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def around(self, chance: float = 1.0) -> Surroundings:
        return Surroundings(sleep=self.sleep, random=lambda: chance, clock=lambda: self.now)


def retrying(store: FlakyStore, clock: Clock | None = None, **budget: float) -> RetryingStore:
    return RetryingStore(store, RetryBudget(**budget), (clock or Clock()).around())  # type: ignore[arg-type]


def test_a_put_that_failed_before_it_arrived_is_sent_again() -> None:
    store = FlakyStore(BUSY, BUSY)
    assert isinstance(retrying(store).put_if_absent("one", b"bytes"), Created)
    assert store.calls == ["put"] * 3


def test_a_put_that_arrived_though_it_failed_is_created() -> None:
    store = FlakyStore(after=(BUSY,))
    assert isinstance(retrying(store).put_if_absent("one", bytearray(b"bytes")), Created)
    assert store.calls == ["put", "put", "get"]


def test_the_read_back_is_retried_too() -> None:
    store = FlakyStore(after=(BUSY,))
    store.on_get = [BUSY]
    assert isinstance(retrying(store).put_if_absent("one", b"bytes"), Created)
    assert store.calls == ["put", "put", "get", "get"]


@pytest.mark.parametrize("other", [b"other", b"", b"much longer than ours", b"bytet"])
def test_other_bytes_under_the_name_are_already_exists(other: bytes) -> None:
    store = FlakyStore()
    store.put_if_absent("one", other)
    store.before = [BUSY]
    with pytest.raises(AlreadyExists):
        retrying(store).put_if_absent("one", b"bytes")
    assert store.get("one", limit=100) == other


def test_a_name_taken_at_the_first_try_by_the_same_bytes_is_created() -> None:
    """The network may deliver a request twice, and the second answer alone comes back."""
    store = FlakyStore()
    store.put_if_absent("one", b"bytes")
    assert isinstance(retrying(store).put_if_absent("one", b"bytes"), Created)
    assert store.calls == ["put", "put", "get"]


def test_a_name_that_is_said_to_be_taken_and_is_not_is_tried_again() -> None:
    store = FlakyStore(AlreadyExists("one exists"))
    assert isinstance(retrying(store).put_if_absent("one", b"bytes"), Created)
    assert store.calls == ["put", "get", "put"]


def test_a_server_that_goes_on_saying_so_is_unavailable() -> None:
    store, clock = FlakyStore(), Clock()
    errors: list[DatasyncError] = [AlreadyExists("one exists"), NotFound("no one")]
    store.before = errors * 3
    with pytest.raises(StorageUnavailable, match="has no such object"):
        retrying(store, clock, attempts=3).put_if_absent("one", b"bytes")
    assert store.calls == ["put", "get"] * 3
    assert len(clock.pauses) == 2


@pytest.mark.parametrize("call", ["get", "list", "stat", "delete"])
def test_what_exists_is_no_reason_to_refuse_anything_but_a_put(call: str) -> None:
    store = FlakyStore()
    store.put_if_absent("one", b"x")
    store.before = [AlreadyExists("one exists")]
    calm = retrying(store)
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: calm.get("one", limit=1),
        "list": lambda: list(calm.list("one")),
        "stat": lambda: calm.stat("one"),
        "delete": lambda: calm.delete("one"),
    }
    calls[call]()
    assert len(store.calls) == 3


@pytest.mark.parametrize(("asked", "least"), [(7.0, 7.0), (0.0, 0.0), (3600.0, 60.0)])
def test_no_try_begins_before_the_store_wants_it(asked: float, least: float) -> None:
    store, clock = FlakyStore(SlowDown("busy", asked)), Clock()
    RetryingStore(store, RetryBudget(base_seconds=1), clock.around(0.5)).put_if_absent("one", b"x")
    assert clock.pauses == [least + 0.5]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("Mon, 30 Nov 2026 08:00:30 GMT", 30.0),
        ("Mon, 30 Nov 2026 07:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float) -> None:
    assert retry_after({"retry-after": text}, 1_796_025_600.0) == seconds


@pytest.mark.parametrize("error", [NotAuthorized("no"), IntegrityError("bad"), NotFound("gone"), NoSpace("full")])
def test_what_a_later_try_meets_again_is_raised_at_once(error: DatasyncError) -> None:
    calls: list[Callable[[RetryingStore], object]] = [
        lambda store: store.get("one", limit=1),
        lambda store: store.get_range("one", 0, memoryview(bytearray(1))),
        lambda store: store.put_if_absent("one", b"x"),
        lambda store: list(store.list("")),
        lambda store: store.stat("one"),
        lambda store: store.delete("one"),
    ]
    for call in calls:
        store, clock = FlakyStore(error), Clock()
        with pytest.raises(type(error)):
            call(retrying(store, clock))
        assert (len(store.calls), clock.pauses) == (1, [])


def test_reads_and_deletes_are_tried_again() -> None:
    store = FlakyStore()
    store.put_if_absent("one", b"bytes")
    buffer = bytearray(3)
    retried = retrying(store)
    store.before = [BUSY]
    assert retried.get("one", limit=5) == b"bytes"
    store.before = [BUSY]
    retried.get_range("one", 1, memoryview(buffer))
    assert buffer == b"yte"
    store.before = [BUSY]
    assert retried.stat("one").size == 5
    store.before = [BUSY]
    retried.delete("one")
    assert list(retried.list("")) == []


def test_the_budget_of_attempts_ends() -> None:
    store, clock = FlakyStore(*[BUSY] * 9), Clock()
    with pytest.raises(StorageUnavailable, match=r"busy .tried 3 times"):
        retrying(store, clock, attempts=3).get("one", limit=1)
    assert (len(store.calls), len(clock.pauses)) == (3, 2)


def test_the_budget_of_seconds_ends_before_a_pause_beyond_it() -> None:
    store, clock = FlakyStore(*[BUSY] * 99), Clock()
    with pytest.raises(StorageUnavailable):
        retrying(store, clock, attempts=99, seconds=10, base_seconds=1, cap_seconds=100).get("one", limit=1)
    assert clock.pauses == [1, 2, 4]  # 8 more would pass 10


def test_pauses_double_up_to_the_cap_and_are_scaled_by_chance() -> None:
    store, clock = FlakyStore(*[BUSY] * 6), Clock()
    RetryingStore(store, RetryBudget(base_seconds=1, cap_seconds=5), clock.around(0.5)).put_if_absent("one", b"x")
    assert clock.pauses == [0.5, 1, 2, 2.5, 2.5, 2.5]


def test_a_broken_listing_goes_on_behind_the_last_name() -> None:
    store = FlakyStore()
    for number in range(5):
        store.put_if_absent(f"n/{number}", b"x")
    store.calls.clear()
    store.after = [BUSY]
    assert [found.name for found in retrying(store).list("n/", limit=4)] == ["n/0", "n/1", "n/2", "n/3"]
    assert store.calls == ["list 4 ", "list 2 n/1"]


def test_a_broken_listing_of_directories_begins_again() -> None:
    store = FlakyStore()
    store.put_if_absent("a/x", b"x")
    store.put_if_absent("b/x", b"x")
    store.on_directories = [BUSY]
    assert list(retrying(store).list_directories("")) == ["a", "b"]
