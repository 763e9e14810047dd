"""Storage credentials for a while and for a part of a bucket: what a decision releases besides a key.

A broker holds a credential of its own that may do more, and never hands that out. Values are secrets: kept out of
`repr`, never logged. Raises `NotAuthorized`, `StorageUnavailable`, `UsageError`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from datasync.errors import UsageError

LONGEST_SECONDS = 12 * 3600  # the longest session that any provider here gives


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


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential that was issued: settings for the clouds' own variables, and until when (Unix seconds) it lasts."""

    variables: Mapping[str, str] = field(repr=False)
    until: int


class CredentialBroker(Protocol):
    """Issues credentials for one bucket."""

    def issue(self, scope: Scope) -> Credential:
        """Return a credential for *scope* and nothing else."""
