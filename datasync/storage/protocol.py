"""The object store protocol. These docstrings are the contract that tests/contract holds every driver to.

A store holds immutable byte strings under names relative to its root: ASCII letters, digits and `/ . - _`, no empty,
`.` or `..` component, at most 512 characters. Stores are thread-safe. Nothing here knows keys or formats.

Every method raises `StorageUnavailable` (try again), `NotAuthorized` (credentials or permission), `NoSpace` (quota or
disk), and nothing else except what its docstring names. A driver tries once; `RetryingStore` retries.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """What a listing or a stat tells: name, size in bytes, Unix time in seconds by the store's clock."""

    name: str
    size: int
    modified: float


class Created:
    """Returned by `put_if_absent`: this call made the object, with exactly the bytes that were sent."""


class ObjectStore(Protocol):
    """A place for immutable objects."""

    @property
    def url(self) -> str:
        """The store's URL without credentials, for messages."""

    def get(self, name: str, *, limit: int) -> bytes:
        """Return the whole object.

        Raises `NotFound`; `IntegrityError` when the object is larger than *limit* bytes (nothing is read then).
        A short body is `StorageUnavailable`, never a short return.
        """

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        """Fill *buffer* with the object's bytes from *offset* on.

        Raises `NotFound`; `IntegrityError` when the object ends before the buffer is full. A short or wrong answer of
        the server (status 200 with another range included) is never returned as data.
        """

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        """Create the object with *data*, all or nothing, unless the name is taken. Durable when it returns.

        Raises `AlreadyExists` when the name is taken, whatever its bytes. A driver sends once and never retries inside;
        after a try of unknown outcome (`StorageUnavailable`) `RetryingStore` sends the very same bytes again and, on
        `AlreadyExists`, reads the object back: the same bytes are `Created`. A store without conditional creation
        overwrites: `probe` finds that out.
        """

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        """Yield the objects whose names start with *prefix*, in byte order of their names, at most *limit*,
        those after *after* only.

        Pages through any number of names. A name created before the call began is always there. An unknown prefix
        yields nothing.
        """

    def list_directories(self, prefix: str) -> Iterator[str]:
        """Yield the distinct next components of names under *prefix* (which ends with `/` or is empty),
        in byte order.
        """

    def stat(self, name: str) -> ObjectStat:
        """Return size and time of the object. Raises `NotFound`."""

    def delete(self, name: str) -> None:
        """Remove the object; a name that is not there is no error."""

    def close(self) -> None:
        """Give back connections and threads; the store is not used afterwards."""
