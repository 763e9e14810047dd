"""A store whose process dies at a write, a delete included, and a local store that tells a test's own time."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasync.storage.local import LocalStore
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created, ObjectStore
from tests.support.scripted import Killed, Wrapped


class TimedLocal(LocalStore):
    """A local store whose clock is a test's."""

    def __init__(self, root: str, clock: Callable[[], float]) -> None:
        super().__init__(root)
        self._folder, self._clock = Path(root), clock

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        done = super().put_if_absent(name, data)
        now = self._clock()
        os.utime(self._folder / name, (now, now))
        return done


class DyingAtWrites(Wrapped):
    """Dies at write number *last* (a put or a delete), before or after it took effect; everything after that dies."""

    def __init__(self, store: ObjectStore, last: int, *, after: bool) -> None:
        super().__init__(store)
        self._left, self._after = last, after
        self.dead = False
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if self.dead and name not in ("url", "close"):
            raise Killed
        return super().__getattr__(name)

    def _write(self, what: str, act: Callable[[], object]) -> None:
        if self.dead:
            raise Killed
        self._left -= 1
        self.dead = self._left == 0
        if not self.dead or self._after:
            act()
            self.writes.append(what)
        if self.dead:
            raise Killed

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        self._write(f"put {name}", lambda: self._store.put_if_absent(name, data))
        return Created()

    def delete(self, name: str) -> None:
        self._write(f"delete {name}", lambda: self._store.delete(name))


def copied(store: MemoryStore, clock: Callable[[], float]) -> MemoryStore:
    """Return another store with the same objects, times included, that goes on with *clock*."""
    now = [0.0]
    made = MemoryStore(clock=lambda: now[0] or clock())
    for item in store.list(""):
        now[0] = item.modified
        made.put_if_absent(item.name, store.get(item.name, limit=item.size))
    now[0] = 0.0
    return made
