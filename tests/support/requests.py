"""RecordingStore: an `ObjectStore` that writes down what it is asked for, in order."""

import threading
from collections.abc import Iterator
from typing import NamedTuple

from datasync.storage.protocol import Created, ObjectStat, ObjectStore


class Request(NamedTuple):
    """One request: its kind, and the object's name or the listing's prefix."""

    kind: str
    name: str


class RecordingStore:
    """Over another store; thread-safe."""

    def __init__(self, store: ObjectStore, requests: list[Request]) -> None:
        self._store = store
        self._requests = requests
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._store.url

    def _note(self, kind: str, name: str) -> None:
        with self._lock:
            self._requests.append(Request(kind, name))

    def get(self, name: str, *, limit: int) -> bytes:
        self._note("get", name)
        return self._store.get(name, limit=limit)

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        self._note("get", name)
        self._store.get_range(name, offset, buffer)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        self._note("put", name)
        return self._store.put_if_absent(name, data)

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        self._note("list", prefix)
        return self._store.list(prefix, limit=limit, after=after)

    def list_directories(self, prefix: str) -> Iterator[str]:
        self._note("list", prefix)
        return self._store.list_directories(prefix)

    def stat(self, name: str) -> ObjectStat:
        self._note("stat", name)
        return self._store.stat(name)

    def delete(self, name: str) -> None:
        self._note("delete", name)
        self._store.delete(name)

    def close(self) -> None:
        self._store.close()
