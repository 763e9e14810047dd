"""Keys for one request. A driver asks its provider before every request, so keys may change in the middle of a push."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Keys:
    """An access key, its secret, and the token of temporary ones: all of one moment."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)


Provider = Callable[[], Keys]
"""Returns the keys of this moment; raises `NotAuthorized` without any, `StorageUnavailable` for a failing source."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment variables of one kind of keys."""

    access_key: str
    secret_key: str
    token: str

    def read(self, environment: dict[str, str]) -> Keys | None:
        """Return the keys, or None unless both parts are set."""
        found = environment.get(self.access_key, ""), environment.get(self.secret_key, "")
        return Keys(*found, environment.get(self.token, "")) if all(found) else None
