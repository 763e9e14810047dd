"""Storage credentials for a while and for a part of a bucket: what a decision releases besides a key.

A broker holds a credential of its own that may do more, and never hands that out. Values are secrets: kept out of
`repr`, never logged. Raises `NotAuthorized`, `StorageUnavailable`, `UsageError`.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from datasync.errors import UsageError
from datasync.storage.extras import Presign, SignedRequest
from datasync.storage.location import DRIVERS, StoreUrl
from datasync.storage.protocol import ObjectStore

LONGEST_SECONDS = 12 * 3600  # the longest session that any provider here gives
URL_SECONDS = 7 * 24 * 3600  # the longest life of a signed URL (version 4 of AWS's and of OSS's signature)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a credential is for: names under these prefixes of the repository, until that time (Unix seconds).

    `create` adds objects and overwrites none, where the provider can say so.
    """

    prefixes: tuple[str, ...]
    until: int
    read: bool = True
    create: bool = False

    def seconds(self, now: float) -> int:
        """Return how long it lasts from *now* on; raise `UsageError` when it is over."""
        left = int(self.until - now)
        if left <= 0 or not self.prefixes or not (self.read or self.create):
            raise UsageError("credential: expected a time to come, a prefix and something that it may do")
        return min(left, LONGEST_SECONDS)

    def keys(self, where: StoreUrl) -> list[str]:
        """Return what a policy has to match: the keys of the prefixes in the bucket of *where*, each with a `*` behind.

        `*` and `?` would match more, and `$` begins a variable: `UsageError`.
        """
        root = f"{where.prefix}/" if where.prefix else ""
        for prefix in self.prefixes:
            if set(root + prefix) & set("*?$"):
                raise UsageError(f"repository prefix {root + prefix!r}: a policy can not name *, ? or $")
        return [f"{root}{prefix}*" for prefix in self.prefixes]

    @property
    def ends(self) -> str:
        """The end as policies write it."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.until))


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential that was issued: settings for the clouds' own variables, and until when (Unix seconds) it lasts."""

    variables: Mapping[str, str] = field(repr=False)
    until: int


class CredentialBroker(Protocol):
    """Issues credentials for one bucket."""

    def issue(self, scope: Scope) -> Credential:
        """Return a credential for *scope* and nothing else."""


def check_policy(text: str, scope: Scope, limit: int) -> str:
    """Return *text* unless it is longer than *limit* characters."""
    if len(text) > limit:
        raise UsageError(
            f"credential: {len(scope.prefixes)} prefixes make a policy of {len(text)} characters, at most {limit} are "
            "taken: ask for fewer"
        )
    return text


def sign_requests(
    store: ObjectStore, names: Iterable[str], seconds: int, *, create: bool = False
) -> dict[str, SignedRequest]:
    """Return for each name a request that reads it, or creates it, for *seconds* and needs no credential: secrets.

    One that creates overwrites nothing: its headers belong to the signature and have to be sent.
    """
    if not 0 < seconds <= URL_SECONDS:
        raise UsageError(f"signed URL: expected 1 to {URL_SECONDS} seconds, found {seconds}")
    if not isinstance(store, Presign):
        raise UsageError(f"{store.url}: this kind of store signs no URLs")
    sign = store.presign_put if create else store.presign_get
    return {name: sign(name, seconds) for name in names}


def load(name: str, scheme: str) -> Any:
    """Return what *name*, `module:attribute`, means for URLs of *scheme*; a provider is imported only here."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("datasync"):
            raise
        extra = DRIVERS[scheme][2]
        raise UsageError(
            f"credentials for {scheme}:// need the package {error.name}: pip install 'gpu-datasync[{extra}]'"
        ) from None
