"""Limits: a busy store gets fewer requests and then more again; bytes keep to the timetable. No clock, no sleep."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from datasync.errors import SlowDown, StorageUnavailable, UsageError
from datasync.model.limits import MIB
from datasync.storage.limit import AdaptiveStore, BandwidthStore, Clocks, Lanes, Timetable, limited, parse_timetable
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created
from datasync.storage.retry import RetryBudget, RetryingStore, Surroundings

HOUR = 3600


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("50M", ((0, 50 * MIB),)),
        ("off", ((0, None),)),
        ("1.5k", ((0, 1536.0),)),
        ("100", ((0, 100.0),)),
        ("08:00,50M 20:00,off", ((8 * HOUR, 50 * MIB), (20 * HOUR, None))),
        ("20:30,off 08:00,1G", ((8 * HOUR, 1024 * MIB), (20 * HOUR + 1800, None))),
    ],
)
def test_a_timetable_is_parsed(text: str, rates: tuple[tuple[int, float | None], ...]) -> None:
    assert parse_timetable(text) == Timetable(rates)


@pytest.mark.parametrize(
    "text", ["", "fast", "0", "-1M", "50X", "08:00", "08:00,", "8:00,1M", "24:00,1M", "08:00,1M 08:00,2M", "1M 2M"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="08:00,50M 20:00,off"):
        parse_timetable(text)


@pytest.mark.parametrize(("hour", "rate"), [(7, None), (8, 50 * MIB), (19, 50 * MIB), (20, None), (0, None)])
def test_before_the_first_entry_yesterdays_last_one_holds(hour: int, rate: float | None) -> None:
    assert parse_timetable("08:00,50M 20:00,off").rate(hour * HOUR) == rate


@dataclass
class Time:
    now: float = 100.0
    day: float = 9 * HOUR
    slept: list[float] = field(default_factory=list)

    def clocks(self) -> Clocks:
        return Clocks(lambda: self.now, lambda: self.day, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_bytes_keep_to_the_rate_on_average_and_each_way() -> None:
    time = Time()
    store = BandwidthStore(MemoryStore(), parse_timetable("1000"), time.clocks())
    for number in range(4):
        store.put_if_absent(f"{number}", bytes(500))
    assert time.slept == [0.5, 0.5, 0.5]
    store.get("0", limit=500)  # the other direction is free
    store.get_range("1", 0, memoryview(bytearray(500)))
    assert time.slept == [0.5] * 4


def test_what_was_not_used_is_not_saved_up() -> None:
    time = Time()
    store = BandwidthStore(MemoryStore(), parse_timetable("1000"), time.clocks())
    time.now += 1000
    store.put_if_absent("0", bytes(1000))
    store.put_if_absent("1", bytes(1000))
    assert time.slept == [1.0]


def test_the_rate_changes_with_the_time_of_the_day() -> None:
    time = Time()
    store = BandwidthStore(MemoryStore(), parse_timetable("08:00,1000 20:00,off"), time.clocks())
    store.put_if_absent("0", bytes(5000))
    time.day = 21 * HOUR
    store.put_if_absent("1", bytes(5000))
    assert time.slept == []
    time.day = 9 * HOUR
    store.put_if_absent("2", bytes(5000))
    store.put_if_absent("3", bytes(1))
    assert time.slept == [5.0]


class Busy(MemoryStore):
    """Takes *most* puts at the same time; more are told to slow down. *gate* holds those that were let in."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.now, self.seen = most, 0, 0
        self.refused = 0
        self.count = threading.Lock()

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        with self.count:
            self.now += 1
            self.seen = max(self.seen, self.now)
            busy = self.now > self.most
            self.refused += busy
        try:
            if busy:
                raise SlowDown(f"{name}: busy")
            threading.Event().wait(0.001)
            return super().put_if_absent(name, data)
        finally:
            with self.count:
                self.now -= 1


def slow_down(lanes: Lanes) -> None:
    with pytest.raises(SlowDown), lanes.one():
        raise SlowDown("busy")


def test_each_slow_down_halves_what_is_on_the_way_down_to_one() -> None:
    lanes = Lanes(16)
    for expected in (1, 1, 1):
        slow_down(lanes)
        assert lanes.limit == expected


def test_requests_that_were_on_the_way_together_are_one_piece_of_news() -> None:
    lanes, start = Lanes(16), threading.Barrier(16)

    def one(_: int) -> None:
        with suppress(SlowDown), lanes.one():
            start.wait()
            raise SlowDown("busy")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(16)))
    assert lanes.limit == 8


def test_the_limit_recovers_one_lane_for_a_round_of_successes() -> None:
    lanes = Lanes(4)
    slow_down(lanes)
    limits = []
    for _ in range(10):
        with lanes.one():
            pass
        limits.append(lanes.limit)
    assert limits[0] == 2
    assert limits[-1] == 4
    assert limits == sorted(limits)


def test_other_failures_change_nothing() -> None:
    lanes = Lanes(4)
    with pytest.raises(StorageUnavailable), lanes.one():
        raise StorageUnavailable("gone")
    assert lanes.limit == 4


def test_a_busy_store_gets_all_objects_with_few_refusals() -> None:
    store = Busy(3)
    calm = RetryingStore(AdaptiveStore(store), RetryBudget(attempts=20), Surroundings(sleep=lambda _: None))
    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(lambda number: calm.put_if_absent(f"{number}", b"x"), range(400)):
            pass
    assert len(list(store.list(""))) == 400
    assert store.refused < 200  # a tenth of what sixteen stubborn writers would meet


def test_a_listing_does_not_hold_back_the_requests_of_its_reader() -> None:
    store = AdaptiveStore(MemoryStore(), Lanes(1))
    for name in "abc":
        store.put_if_absent(name, name.encode())
    assert [store.get(item.name, limit=1) for item in store.list("")] == [b"a", b"b", b"c"]


def test_limits_pass_everything_on() -> None:
    inner = MemoryStore("limited")
    store = limited(inner, parse_timetable("1G"))
    store.put_if_absent("a/b", b"x")
    assert store.url == inner.url
    assert list(store.list_directories("")) == ["a"]
    assert store.stat("a/b").size == 1
    store.delete("a/b")
    assert list(store.list("")) == []
    store.close()
