"""MemoryStore: objects in this process, for tests and trials. `memory://name` is one store, however often opened."""

import threading
import time
from collections.abc import Callable, Iterator
from heapq import nsmallest

from datasync.errors import AlreadyExists, IntegrityError, NotFound
from datasync.storage.names import check_directory, check_name, check_prefix
from datasync.storage.protocol import Created, ObjectStat


class _Objects:
    """What all stores of one name share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes: dict[str, bytes] = {}
        self.modified: dict[str, float] = {}


_named: dict[str, _Objects] = {}
_named_lock = threading.Lock()


def _shared(name: str) -> _Objects:
    if not name:
        return _Objects()
    with _named_lock:
        return _named.setdefault(name, _Objects())


class MemoryStore:
    """An `ObjectStore` in memory; without a *name* it is private to this instance."""

    def __init__(self, name: str = "", *, prefix: str = "", clock: Callable[[], float] = time.time) -> None:
        self._objects = _shared(name)
        self._root = f"{prefix}/" if prefix else ""
        self._clock = clock
        self.url = f"memory://{name}/{prefix}".rstrip("/") if name else "memory://"

    def get(self, name: str, *, limit: int) -> bytes:
        data = self._bytes(name)
        if len(data) > limit:
            raise IntegrityError(f"{self.url}: {name} has {len(data)} bytes, expected at most {limit}")
        return data

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        view = buffer.cast("B")
        data = self._bytes(name)
        if offset + len(view) > len(data):
            raise IntegrityError(f"{self.url}: {name} ends at {len(data)}, expected {offset + len(view)} bytes or more")
        view[:] = memoryview(data)[offset : offset + len(view)]

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        key, copy = self._root + check_name(name), bytes(data)
        with self._objects.lock:
            if key in self._objects.bytes:
                raise AlreadyExists(f"{self.url}: {name} exists")
            self._objects.modified[key] = self._clock()
            self._objects.bytes[key] = copy
        return Created()

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        start = self._root + check_prefix(prefix)
        found = self._stats(start, after)
        key = _by_name
        yield from sorted(found, key=key) if limit is None else nsmallest(limit, found, key=key)

    def list_directories(self, prefix: str) -> Iterator[str]:
        start = len(check_directory(prefix))
        rests = (stat.name[start:].partition("/") for stat in self._stats(self._root + prefix, ""))
        for directory in sorted({component + slash for component, slash, _ in rests if slash}):
            yield directory.removesuffix("/")

    def stat(self, name: str) -> ObjectStat:
        size = len(self._bytes(name))
        return ObjectStat(name, size, self._objects.modified.get(self._root + name, 0.0))

    def delete(self, name: str) -> None:
        key = self._root + check_name(name)
        with self._objects.lock:
            self._objects.bytes.pop(key, None)
            self._objects.modified.pop(key, None)

    def close(self) -> None:
        """Nothing to give back: a named store outlives its openers."""

    def _bytes(self, name: str) -> bytes:
        data = self._objects.bytes.get(self._root + check_name(name))
        if data is None:
            raise NotFound(f"{self.url}: no object {name}")
        return data

    def _stats(self, start: str, after: str) -> Iterator[ObjectStat]:
        """Yield what begins with *start*, in no order, of one moment."""
        skip = len(self._root)
        with self._objects.lock:
            keys = [key for key in self._objects.bytes if key.startswith(start) and key[skip:] > after]
            found = [ObjectStat(k[skip:], len(self._objects.bytes[k]), self._objects.modified[k]) for k in keys]
        yield from found


def _by_name(stat: ObjectStat) -> str:
    return stat.name
