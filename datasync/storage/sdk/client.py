"""What a driver on a vendor's SDK gives to `SdkStore`: one bucket's requests, and the provider's words.

Keys are full object keys. A method raises whatever the SDK raises; `said` reads it. After `get` and `head` the answer
is the session's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from datasync.storage.body import Body
from datasync.storage.sdk.session import SdkSession


@dataclass(frozen=True, slots=True)
class Item:
    """One object of a listing; `modified` in Unix seconds."""

    key: str
    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; *more* continues it, empty at the end."""

    items: Sequence[Item]
    prefixes: Sequence[str]
    more: str


@dataclass(frozen=True, slots=True)
class VersionItem:
    """One version, or the marker of a deletion."""

    key: str
    version: str
    newest: bool
    deleted: bool
    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class VersionPage:
    """One page of versions; *more* is where the next begins (key, version), empty at the end."""

    items: Sequence[VersionItem]
    more: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a listing asks for."""

    prefix: str
    delimiter: str
    after: str
    limit: int
    more: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A refusal as the server worded it: HTTP status, code, and where else it told us to go."""

    status: int
    code: str = ""
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A provider's words."""

    name: str
    header: str  # what its own headers begin with
    credentials: str  # what to set when there are none
    where: str  # what of the URL to check
    hints: Mapping[str, str]  # code of a refusal for lack of rights -> what to do
    try_again: frozenset[str]  # codes, besides all 5xx
    slow_down: frozenset[str]  # codes, besides 429 and 503
    classes: Mapping[str, str]  # storage class -> what it costs besides storage, empty for nothing
    no_space: frozenset[str] = field(default=frozenset())


class SdkClient(Protocol):
    """One bucket through one SDK."""

    session: SdkSession
    failures: tuple[type[Exception], ...]  # everything that the SDK raises for requests

    def put(self, key: str, body: Body | bytes, headers: Mapping[str, str]) -> None: ...

    def get(self, key: str, headers: Mapping[str, str]) -> None: ...

    def head(self, key: str) -> None: ...

    def delete(self, key: str, version: str = "") -> None: ...

    def delete_many(self, keys: Sequence[str]) -> Sequence[tuple[str, str]]:
        """Remove at most 1,000 objects with one request; return key and code of each that could not be."""

    def list(self, asked: Asked) -> Page: ...

    def sign(self, method: str, key: str, seconds: int, headers: Mapping[str, str]) -> str:
        """Return a URL that lets in for *seconds*; *headers* have to be sent with it."""

    def versioning(self) -> str:
        """Return the provider's word: empty, `Enabled` or `Suspended`."""

    def list_versions(self, prefix: str, more: tuple[str, str]) -> VersionPage: ...

    def retention_days(self) -> int | None: ...

    def said(self, error: BaseException) -> Said | None:
        """Return what the server said if *error* is its answer."""

    def close(self) -> None: ...
