"""RetryingStore: tries again what a later try may not meet, for any `ObjectStore`.

Only `StorageUnavailable` is retried, after a full-jitter exponential pause (Marc Brooker, "Exponential Backoff And
Jitter", AWS Architecture Blog, 2015), within a budget of attempts and seconds for each call. A put whose outcome
is unknown is sent again with the very same bytes; finding the name taken then, the object is read back, and the same
bytes mean that one of our tries made it.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from datasync.errors import AlreadyExists, IntegrityError, NotFound, StorageUnavailable
from datasync.storage.protocol import Created, ObjectStat, ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """How long one call goes on."""

    attempts: int = 8
    seconds: float = 180.0  # no try begins later than this after the first
    base_seconds: float = 0.25  # the first pause is random up to this, the next up to twice as much, …
    cap_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What tests replace."""

    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class _Patience:
    """The budget of one call, being spent."""

    budget: RetryBudget
    around: Surroundings
    tries: int = 0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.around.clock()

    def spend(self, error: StorageUnavailable) -> None:
        """Pause before the next try; raise when there is none."""
        self.tries += 1
        pause = self.around.random() * min(self.budget.cap_seconds, self.budget.base_seconds * 2 ** (self.tries - 1))
        passed = self.around.clock() - self.started
        if self.tries >= self.budget.attempts or passed + pause > self.budget.seconds:
            raise StorageUnavailable(f"{error} (tried {self.tries} times in {passed:.0f} s)") from error
        self.around.sleep(pause)


class RetryingStore:
    """An `ObjectStore` over another one."""

    def __init__(
        self, store: ObjectStore, budget: RetryBudget | None = None, around: Surroundings | None = None
    ) -> None:
        self._store = store
        self._budget = budget or RetryBudget()
        self._around = around or Surroundings()

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, name: str, *, limit: int) -> bytes:
        return self._retry(lambda: self._store.get(name, limit=limit))

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        self._retry(lambda: self._store.get_range(name, offset, buffer))

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        patience = self._patience()
        while True:
            try:
                return self._store.put_if_absent(name, data)
            except AlreadyExists:
                if patience.tries and self._holds(name, data):
                    return Created()
                raise
            except StorageUnavailable as error:
                patience.spend(error)

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        """As the protocol says; a broken listing goes on behind the last name that was given out."""
        patience, left = self._patience(), limit
        while True:
            try:
                for item in self._store.list(prefix, limit=left, after=after):
                    yield item
                    after, left = item.name, None if left is None else left - 1
                    patience = self._patience()
                return
            except StorageUnavailable as error:
                patience.spend(error)

    def list_directories(self, prefix: str) -> Iterator[str]:
        yield from self._retry(lambda: tuple(self._store.list_directories(prefix)))

    def stat(self, name: str) -> ObjectStat:
        return self._retry(lambda: self._store.stat(name))

    def delete(self, name: str) -> None:
        self._retry(lambda: self._store.delete(name))

    def close(self) -> None:
        self._store.close()

    def _patience(self) -> _Patience:
        return _Patience(self._budget, self._around)

    def _retry(self, call: Callable[[], T]) -> T:
        patience = self._patience()
        while True:
            try:
                return call()
            except StorageUnavailable as error:
                patience.spend(error)

    def _holds(self, name: str, data: bytes | bytearray | memoryview) -> bool:
        view = memoryview(data).cast("B")
        try:
            return self.get(name, limit=len(view)) == view
        except (IntegrityError, NotFound):
            return False  # larger than ours, or gone again
