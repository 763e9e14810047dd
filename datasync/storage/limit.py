"""Fewer requests when a store is busy, fewer bytes a second when its user says so: two decorators over `ObjectStore`.

`AdaptiveStore` halves the number of requests on the way for each `SlowDown` and adds one back for as many successes as
there are slots (additive increase, multiplicative decrease: Chiu and Jain, 1989). `BandwidthStore` keeps the average of
each direction at a rate that a timetable gives; an object is one request, so a pack goes at full speed and a pause
follows. A listing is never held back: who reads it may make other requests in between. Raises what the store raises;
`parse_timetable` raises `UsageError`.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from datasync.errors import SlowDown, UsageError
from datasync.model.limits import KIB, MIB
from datasync.storage.protocol import Created, ObjectStat, ObjectStore

REQUESTS = 64  # more than any step has on the way: an idle limit costs nothing
DAY_SECONDS = 24 * 3600

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([KMG]?)")
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": 1024 * MIB}
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Timetable:
    """Rates in bytes a second (None: no limit), each from a second of the day on, in order."""

    rates: tuple[tuple[int, float | None], ...]

    def rate(self, second: float) -> float | None:
        """Return the rate at *second* of the day; before the first entry the last one of yesterday holds."""
        found = self.rates[-1][1]
        for start, rate in self.rates:
            if start <= second:
                found = rate
        return found


def parse_timetable(text: str) -> Timetable:
    """Return the timetable that *text* says: `50M`, `off`, or times with rates as in `08:00,50M 20:00,off`."""
    entries = text.split()
    if len(entries) == 1 and "," not in entries[0]:
        return Timetable(((0, _parse_rate(entries[0], text)),))
    found = {}
    for entry in entries:
        clock, comma, rate = entry.partition(",")
        match = _TIME.fullmatch(clock)
        if match is None or not comma:
            raise _unusable(text)
        found[int(match[1]) * 3600 + int(match[2]) * 60] = _parse_rate(rate, text)
    if len(found) != len(entries) or not found:
        raise _unusable(text)
    return Timetable(tuple(sorted(found.items())))


def _parse_rate(rate: str, text: str) -> float | None:
    if rate == "off":
        return None
    match = _RATE.fullmatch(rate.upper())
    value = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not value:
        raise _unusable(text)
    return value


def _unusable(text: str) -> UsageError:
    return UsageError(f"bwlimit {text[:60]!r}: expected bytes a second like 50M, off, or 08:00,50M 20:00,off")


def second_of_day() -> float:
    """Return the local time as a second of the day."""
    now = time.localtime()
    return now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec


@dataclass(frozen=True, slots=True)
class Clocks:
    """What tests replace."""

    monotonic: Callable[[], float] = time.monotonic
    second: Callable[[], float] = second_of_day
    sleep: Callable[[float], None] = time.sleep


class Pipe:
    """One direction: who pays for bytes waits until those before are through."""

    def __init__(self, timetable: Timetable, clocks: Clocks) -> None:
        self._timetable = timetable
        self._clocks = clocks
        self._lock = threading.Lock()
        self._free = 0.0  # when the bytes that were paid for are through

    def pay(self, size: int) -> None:
        """Wait for the bytes before, and let others wait for these."""
        with self._lock:
            now, rate = self._clocks.monotonic(), self._timetable.rate(self._clocks.second())
            start = now if rate is None else max(now, self._free)
            self._free = start if rate is None else start + size / rate
        if start > now:
            self._clocks.sleep(start - now)


class Lanes:
    """How many requests may be on the way."""

    def __init__(self, most: int = REQUESTS) -> None:
        self._most = most
        self._free = threading.Condition()
        self._limit = float(most)
        self._busy = 0
        self._fewer = 0  # how often the limit was lowered

    @property
    def limit(self) -> int:
        """The number of requests that may be on the way now."""
        return int(self._limit)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a lane for one request, and learn from how it ends."""
        with self._free:
            self._free.wait_for(lambda: self._busy < self.limit)
            self._busy += 1
            began = self._fewer
        try:
            yield
            self._learn(began, slow=False)
        except SlowDown:
            self._learn(began, slow=True)
            raise
        finally:
            with self._free:
                self._busy -= 1
                self._free.notify_all()

    def _learn(self, began: int, *, slow: bool) -> None:
        with self._free:
            if not slow:
                self._limit = min(self._most, self._limit + 1 / self._limit)
            elif began == self._fewer:  # requests that were on the way together are one piece of news
                self._limit = max(1.0, min(self._limit, self._busy) / 2)
                self._fewer += 1


class _Passing:
    """An `ObjectStore` over another one; what is not changed is passed on."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, name: str, *, limit: int) -> bytes:
        return self._store.get(name, limit=limit)

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        self._store.get_range(name, offset, buffer)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        return self._store.put_if_absent(name, data)

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        return self._store.list(prefix, limit=limit, after=after)

    def list_directories(self, prefix: str) -> Iterator[str]:
        return self._store.list_directories(prefix)

    def stat(self, name: str) -> ObjectStat:
        return self._store.stat(name)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def close(self) -> None:
        self._store.close()


class AdaptiveStore(_Passing):
    """As many requests at the same time as the store takes."""

    def __init__(self, store: ObjectStore, lanes: Lanes | None = None) -> None:
        super().__init__(store)
        self._lanes = lanes or Lanes()

    def get(self, name: str, *, limit: int) -> bytes:
        with self._lanes.one():
            return self._store.get(name, limit=limit)

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        with self._lanes.one():
            self._store.get_range(name, offset, buffer)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        with self._lanes.one():
            return self._store.put_if_absent(name, data)

    def stat(self, name: str) -> ObjectStat:
        with self._lanes.one():
            return self._store.stat(name)

    def delete(self, name: str) -> None:
        with self._lanes.one():
            self._store.delete(name)


class BandwidthStore(_Passing):
    """As many bytes a second as the timetable says, each way."""

    def __init__(self, store: ObjectStore, timetable: Timetable, clocks: Clocks | None = None) -> None:
        super().__init__(store)
        self._out, self._in = (Pipe(timetable, clocks or Clocks()) for _ in range(2))

    def get(self, name: str, *, limit: int) -> bytes:
        data = self._store.get(name, limit=limit)
        self._in.pay(len(data))  # its size is known only now
        return data

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        self._in.pay(buffer.nbytes)
        self._store.get_range(name, offset, buffer)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        self._out.pay(memoryview(data).nbytes)
        return self._store.put_if_absent(name, data)


def limited(store: ObjectStore, timetable: Timetable | None) -> ObjectStore:
    """Return *store* with as many requests and bytes as store and user allow."""
    return AdaptiveStore(store if timetable is None else BandwidthStore(store, timetable))
