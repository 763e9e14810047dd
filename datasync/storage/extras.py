"""What some stores can do beyond `ObjectStore`: one small protocol each. A driver that can, has the methods.

Ask with `isinstance(store, BatchDelete)`; a decorator hides them, so ask the driver itself. Errors are those of
`datasync.storage.protocol`. Names are relative to the store's root and of its grammar, as everywhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from datasync.storage.protocol import Created

BATCH_NAMES = 1_000  # what S3, OSS and COS take in one request; others take fewer


@runtime_checkable
class BatchDelete(Protocol):
    """Removes many objects with few requests."""

    def delete_many(self, names: Iterable[str]) -> None:
        """Remove all objects *names*, as many a request as the provider takes; names that are not there are no error.

        Raises the error of the first object that could not be removed, after all were tried.
        """


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What somebody without credentials sends before *expires* (Unix time). The URL is a secret: it lets in."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]  # all of them have to be sent, exactly so
    expires: float

    def __repr__(self) -> str:
        return f"SignedRequest({self.method} <redacted>, expires={self.expires:.0f})"


@runtime_checkable
class Presign(Protocol):
    """Signs a request for somebody else. Asks the store nothing; the object need not exist."""

    def presign_get(self, name: str, seconds: int) -> SignedRequest:
        """Return a GET of the whole object, or of a range by a Range header of the sender's own."""

    def presign_put(self, name: str, seconds: int) -> SignedRequest:
        """Return a PUT that creates the object unless the name is taken; its answers are the provider's own."""


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of one object. `deleted`: a marker that hides the versions before it."""

    name: str
    version: str
    newest: bool
    deleted: bool
    size: int
    modified: float


@runtime_checkable
class Versions(Protocol):
    """Sees and removes old versions. A repository overwrites nothing: what is here was made by others, or deleted."""

    def versioning(self) -> str:
        """Return `off`, `enabled` or `suspended`."""

    def list_versions(self, prefix: str) -> Iterable[ObjectVersion]:
        """Yield every version and marker of the names that start with *prefix*; a name's newest comes first."""

    def delete_version(self, name: str, version: str) -> None:
        """Remove one version for ever; one that is not there is no error."""


@runtime_checkable
class Retention(Protocol):
    """Keeps objects from being changed or removed, by anybody, for a time."""

    def retention_days(self) -> int | None:
        """Return for how many days the bucket keeps each object, or None when it keeps none."""

    def retain_until(self, name: str, until: float) -> None:
        """Keep the object until *until* (Unix time); never shortens. `UsageError` where only whole buckets keep."""


@runtime_checkable
class StorageClass(Protocol):
    """Puts new objects into a class of the provider's."""

    def with_storage_class(self, name: str) -> "StorageClass":
        """Return the same store whose puts go to the class *name*.

        Raises `UsageError` for an unknown class and for one that has to be restored before it can be read.
        """

    def fees_of(self, name: str) -> str:
        """Return what the class *name* costs besides storage, for people; empty when nothing."""


@runtime_checkable
class Notes(Protocol):
    """Knows what a user should hear about this store as it is set up."""

    def notes(self) -> tuple[str, ...]:
        """Return sentences: what the storage class costs besides storage, what versions or retention do here.

        May ask the store; `NotAuthorized` when these credentials may not ask.
        """


@dataclass(frozen=True, slots=True)
class Lock:
    """What keeps one object: until when (Unix time, 0 for not), a legal hold without an end, and if nobody at all may
    lift the first before its end."""

    until: float
    legal_hold: bool
    compliance: bool


@runtime_checkable
class ObjectLock(Protocol):
    """Creates objects that are kept from their first moment on; needs a bucket that was made for it."""

    def put_locked(
        self, name: str, data: bytes | bytearray | memoryview, *, until: float, legal_hold: bool = False
    ) -> Created:
        """As `put_if_absent`, kept until *until* (Unix time) even from the account's owner, and longer under a hold."""

    def lock_of(self, name: str) -> Lock:
        """Return what keeps the object. Raises `NotFound`."""
