"""Stores that fail as a test says, over any store: a process that dies at a write, an answer that is lost."""

import threading
from collections.abc import Callable
from typing import Any

from datasync.errors import StorageUnavailable
from datasync.storage.protocol import Created, ObjectStore


class Killed(BaseException):
    """The process is dead: nothing of ours may catch this."""


class Wrapped:
    """An `ObjectStore` that passes everything on; subclasses change single methods."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class DyingStore(Wrapped):
    """Dies at put number *last*, before or after it took effect; every request after that dies too."""

    def __init__(self, store: ObjectStore, last: int, *, after: bool) -> None:
        super().__init__(store)
        self._left = last
        self._after = after
        self._lock = threading.Lock()
        self.dead = False
        self.completed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if self.dead and name not in ("url", "close"):
            raise Killed
        return super().__getattr__(name)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        with self._lock:
            if self.dead:
                raise Killed
            self._left -= 1
            self.dead = self._left == 0
            if not self.dead or self._after:
                self._store.put_if_absent(name, data)
            if self.dead:
                raise Killed
            self.completed.append(name)
            return Created()


class LostAnswers(Wrapped):
    """The first put of each name that *chosen* accepts takes effect, and its answer is lost."""

    def __init__(self, store: ObjectStore, chosen: Callable[[str], bool]) -> None:
        super().__init__(store)
        self._chosen = chosen
        self.lost: list[str] = []

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        done = self._store.put_if_absent(name, data)
        if self._chosen(name) and name not in self.lost:
            self.lost.append(name)
            raise StorageUnavailable(f"{name}: the answer was lost")
        return done


class Broken(Wrapped):
    """Every request of the named *methods* on a name that *chosen* accepts raises *error*."""

    def __init__(self, store: ObjectStore, methods: set[str], chosen: Callable[[str], bool], error: Exception) -> None:
        super().__init__(store)
        self._methods = methods
        self._chosen = chosen
        self._error = error

    def __getattr__(self, name: str) -> Any:
        method = super().__getattr__(name)
        if name not in self._methods:
            return method

        def call(first: str, *rest: Any, **options: Any) -> Any:
            if self._chosen(first):
                raise self._error
            return method(first, *rest, **options)

        return call
