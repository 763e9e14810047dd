"""MeteredStore: counts requests and bytes by kind, for any `ObjectStore`, and knows which are on the way.

A request is counted when it is made, bytes when they have arrived: the body of a put that failed is not counted. A
listing is one request however many pages it takes. Beneath a `RetryingStore` it counts every try, above it every call.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from datasync.storage.protocol import Created, ObjectStat, ObjectStore

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one kind of request has cost so far."""

    requests: int = 0
    bytes: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.requests + other.requests, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Meter:
    """All traffic up to one moment."""

    get: Traffic = Traffic()
    put: Traffic = Traffic()
    list: Traffic = Traffic()
    stat: Traffic = Traffic()
    delete: Traffic = Traffic()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request without an answer yet: `since` is a Unix time in seconds."""

    kind: str
    name: str
    since: float


class MeteredStore:
    """An `ObjectStore` over another one."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._waiting: dict[object, Waiting] = {}
        self._lock = threading.Lock()
        self._meter = Meter()

    @property
    def url(self) -> str:
        return self._store.url

    def snapshot(self) -> Meter:
        """Return what was counted up to now."""
        return self._meter

    def waiting(self) -> list[Waiting]:
        """Return the requests that are on the way, the longest first; a listing is asked anew for each page."""
        with self._lock:
            return sorted(self._waiting.values(), key=lambda item: item.since)

    @contextmanager
    def _on_the_way(self, kind: str, name: str) -> Iterator[None]:
        key = object()
        with self._lock:
            self._waiting[key] = Waiting(kind, name, time.time())
        try:
            yield
        finally:
            with self._lock:
                del self._waiting[key]

    def get(self, name: str, *, limit: int) -> bytes:
        self._count("get", requests=1)
        with self._on_the_way("get", name):
            data = self._store.get(name, limit=limit)
        self._count("get", bytes=len(data))
        return data

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        self._count("get", requests=1)
        with self._on_the_way("get", name):
            self._store.get_range(name, offset, buffer)
        self._count("get", bytes=buffer.nbytes)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        self._count("put", requests=1)
        with self._on_the_way("put", name):
            created = self._store.put_if_absent(name, data)
        self._count("put", bytes=memoryview(data).nbytes)
        return created

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        self._count("list", requests=1)
        return self._each("list", prefix, self._store.list(prefix, limit=limit, after=after))

    def list_directories(self, prefix: str) -> Iterator[str]:
        self._count("list", requests=1)
        return self._each("list", prefix, self._store.list_directories(prefix))

    def stat(self, name: str) -> ObjectStat:
        self._count("stat", requests=1)
        with self._on_the_way("stat", name):
            return self._store.stat(name)

    def delete(self, name: str) -> None:
        self._count("delete", requests=1)
        with self._on_the_way("delete", name):
            self._store.delete(name)

    def _each(self, kind: str, name: str, items: Iterator[Item]) -> Iterator[Item]:
        """Yield *items*: a request may be behind each next one."""
        while True:
            with self._on_the_way(kind, name):
                item = next(items, None)
            if item is None:
                return
            yield item

    def close(self) -> None:
        self._store.close()

    def _count(self, kind: str, *, requests: int = 0, bytes: int = 0) -> None:
        with self._lock:
            counted: Traffic = getattr(self._meter, kind)
            self._meter = replace(self._meter, **{kind: counted + Traffic(requests, bytes)})
