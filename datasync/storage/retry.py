"""RetryingStore: tries again what a later try may not meet, for any `ObjectStore`.

Only `StorageUnavailable` is retried, after a full-jitter exponential pause (Marc Brooker, "Exponential Backoff And
Jitter", AWS Architecture Blog, 2015), within a budget of attempts and seconds for each call. Where the store says when
to come back (Retry-After: RFC 9110, section 10.2.3), no try begins earlier. A put whose outcome is unknown is sent
again with the very same bytes. Whenever the name is said to be taken, the object is read back: the same bytes mean that
it is made, by one of our tries or by a copy of it that the network delivered; none at all mean that the answer was
wrong, and the put is tried again. The same holds for any other request that is refused because something exists.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar

from datasync.errors import AlreadyExists, IntegrityError, NotFound, SlowDown, StorageUnavailable
from datasync.storage.protocol import Created, ObjectStat, ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """How long one call goes on."""

    attempts: int = 8
    slow_attempts: int = 48  # answers that ask for patience, in one call: a storm of half a minute ends before
    seconds: float = 180.0  # no try begins later than this after the first
    base_seconds: float = 0.25  # the first pause is random up to this, the next up to twice as much, …
    cap_seconds: float = 20.0
    slow_cap_seconds: float = 5.0  # fewer requests at a time spare a busy store; so late its recovery is seen
    retry_after_seconds: float = 60.0  # a store that asks for a longer pause gets this one


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
    slow: int = 0  # of them
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.around.clock()

    def spend(self, error: StorageUnavailable | AlreadyExists) -> None:
        """Pause before the next try; raise when there is none."""
        budget, slow = self.budget, isinstance(error, SlowDown)
        self.tries += 1
        self.slow += slow
        cap = budget.slow_cap_seconds if slow else budget.cap_seconds
        pause = self.around.random() * min(cap, budget.base_seconds * 2 ** (self.tries - 1))
        if isinstance(error, SlowDown):
            pause += min(error.retry_after, budget.retry_after_seconds)
        passed = self.around.clock() - self.started
        spent = self.tries - self.slow >= budget.attempts or self.slow >= budget.slow_attempts
        if spent or passed + pause > budget.seconds:
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
            except AlreadyExists as error:
                found = self._holds(name, data)
                if found:
                    return Created()
                if found is not None:
                    raise
                patience.spend(StorageUnavailable(f"{error}, says the server, and has no such object; try again"))
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
            except (StorageUnavailable, AlreadyExists) as error:
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
            except (StorageUnavailable, AlreadyExists) as error:
                patience.spend(error)

    def _holds(self, name: str, data: bytes | bytearray | memoryview) -> bool | None:
        """Tell whether the object is *data*; None when there is none."""
        view = memoryview(data).cast("B")
        try:
            return self.get(name, limit=len(view)) == view
        except IntegrityError:
            return False  # larger than ours
        except NotFound:
            return None


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """Return the pause in seconds that an answer asks for, 0 for none; header names in lower case."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError):
        return 0.0
