"""What a bucket lists, as the protocol promises it: our names alone, in byte order, after a name, at most so many.

One place for all drivers that list a bucket. A server that lists in another order is refused (`UsageError`): the newest
object would not be found. An entry without name, size or time is no listing (`StorageUnavailable`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from datasync.errors import StorageUnavailable, UsageError
from datasync.storage.names import is_name
from datasync.storage.protocol import ObjectStat

E = TypeVar("E")
T = TypeVar("T")
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Listing:
    """One call: the store's URL for messages, the root of its keys, and what was asked for."""

    url: str
    root: str
    prefix: str
    after: str = ""
    limit: int | None = None

    def objects(
        self, entries: Iterable[E], key_of: Callable[[E], str], stat_of: Callable[[str, E], ObjectStat]
    ) -> Iterator[ObjectStat]:
        """Yield the objects among *entries*, which are read no further than needed."""
        left, last = self.limit, ""
        for entry in entries:
            name = self._told(partial(self._name, key_of, entry))
            if not is_name(name) or name <= self.after:
                continue  # not ours, or a server that begins with the name itself, or at the beginning
            if name <= last:
                raise UsageError(
                    f"{self.url}: the server lists {last} before {name}; one that keeps byte order is needed, such as "
                    "a bucket without directories of its own"
                )
            last = name
            yield self._told(partial(stat_of, name, entry))
            left = None if left is None else left - 1
            if left == 0:
                return

    def directories(self, prefixes: Iterable[str]) -> Iterator[str]:
        """Yield the components that *prefixes*, keys that end with `/`, have below the prefix asked for."""
        for key in prefixes:
            directory = key.removeprefix(self.root)
            if is_name(directory.removesuffix("/")):
                yield directory[len(self.prefix) : -1]

    def _name(self, key_of: Callable[[E], str], entry: E) -> str:
        return key_of(entry).removeprefix(self.root)

    def _told(self, read: Callable[[], T]) -> T:
        """Return what *read* finds in the server's answer."""
        try:
            return read()
        except _MALFORMED as error:
            raise StorageUnavailable(f"{self.url}: {self.prefix}: the answer is no listing; try again") from error
