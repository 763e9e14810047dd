"""MeteredStore: counts requests and bytes by kind, for any `ObjectStore`.

A request is counted when it is made, bytes when they have arrived: the body of a put that failed is not counted. A
listing is one request however many pages it takes. Beneath a `RetryingStore` it counts every try, above it every call.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from datasync.storage.protocol import Created, ObjectStat, ObjectStore


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


class MeteredStore:
    """An `ObjectStore` over another one."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._meter = Meter()

    @property
    def url(self) -> str:
        return self._store.url

    def snapshot(self) -> Meter:
        """Return what was counted up to now."""
        return self._meter

    def get(self, name: str, *, limit: int) -> bytes:
        self._count("get", requests=1)
        data = self._store.get(name, limit=limit)
        self._count("get", bytes=len(data))
        return data

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        self._count("get", requests=1)
        self._store.get_range(name, offset, buffer)
        self._count("get", bytes=buffer.nbytes)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        self._count("put", requests=1)
        created = self._store.put_if_absent(name, data)
        self._count("put", bytes=memoryview(data).nbytes)
        return created

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        self._count("list", requests=1)
        return self._store.list(prefix, limit=limit, after=after)

    def list_directories(self, prefix: str) -> Iterator[str]:
        self._count("list", requests=1)
        return self._store.list_directories(prefix)

    def stat(self, name: str) -> ObjectStat:
        self._count("stat", requests=1)
        return self._store.stat(name)

    def delete(self, name: str) -> None:
        self._count("delete", requests=1)
        self._store.delete(name)

    def close(self) -> None:
        self._store.close()

    def _count(self, kind: str, *, requests: int = 0, bytes: int = 0) -> None:
        with self._lock:
            counted: Traffic = getattr(self._meter, kind)
            self._meter = replace(self._meter, **{kind: counted + Traffic(requests, bytes)})
