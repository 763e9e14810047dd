"""One request to a security token service, and what its refusal means: what the brokers of OSS and COS share.

A service is asked over https, over http on this machine's loopback alone, because the answer is a secret. Nothing is
retried. Messages carry the role, the service's code and what to do; never its text or a header. Raises
`NotAuthorized`, `SlowDown`, `StorageUnavailable`, `UsageError`.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from datasync.errors import DatasyncError, NotAuthorized, SlowDown, StorageUnavailable, UsageError
from datasync.storage.http import Answer, Http, HttpOptions

SHORTEST_SECONDS = 900  # a session that OSS and S3 give; a scope that ends sooner is ended by the policy's condition
SESSION_NAME = "datasync"
DEFAULT = HttpOptions()


@dataclass(frozen=True, slots=True)
class Session:
    """Temporary keys and their end (Unix seconds)."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(repr=False)
    until: int


@dataclass(frozen=True, slots=True)
class Codes:
    """What a service's codes mean; one that ends with a dot stands for all that begin so."""

    denied: tuple[str, ...]
    busy: tuple[str, ...]
    too_long: str  # the role's sessions are shorter than was asked


class TooLong(UsageError):
    """The role gives no session of the asked length."""


class TokenService:
    """One service for one role."""

    def __init__(self, role: str, endpoint: str, codes: Codes, options: HttpOptions = DEFAULT) -> None:
        parts = urlsplit(endpoint)
        if not (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or ""))):
            raise UsageError("[policy] sts_endpoint: expected https://host, or http:// on this machine's loopback")
        if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise UsageError("[policy] sts_endpoint: expected https://host or https://host:port and no more")
        self.host = parts.netloc
        self._role, self._codes = role, codes
        self._http = Http(f"{parts.scheme}://{parts.netloc}", options)

    def post(self, query: str, headers: Mapping[str, str], body: bytes = b"") -> dict[str, Any]:
        """Return the JSON object that the service answers with, whatever its status; empty for anything else."""
        target = f"/?{query}" if query else "/"
        answer = self._http.exchange("POST", target, headers, what=f"role {self._role}", body=(body,) if body else ())
        found = _fields(answer)
        if answer.status >= 300 and "Code" not in found:
            raise self.refusal("", answer.status)
        return found

    def refusal(self, code: object, status: int = 400) -> DatasyncError:
        """Return what the service's *code* means."""
        shown = re.sub(r"[^A-Za-z0-9.]", "", str(code))[:80] or str(status)
        what = f"role {self._role}: the token service answered {shown}"
        if shown == self._codes.too_long:
            return TooLong(f"{what}: set the role's longest session to an hour or more")
        if _is_one(shown, self._codes.busy) or status == 429:
            return SlowDown(f"{what}; try again")
        if _is_one(shown, self._codes.denied):
            return NotAuthorized(
                f"{what}: the broker's own credential is not valid, or the role's trust policy does not name it"
            )
        if status >= 500 or not code:
            return StorageUnavailable(f"{what}; try again")
        return UsageError(f"{what}: check [policy] role and sts_endpoint")

    def unreadable(self) -> StorageUnavailable:
        """Return the error for an answer without a session."""
        return StorageUnavailable(f"role {self._role}: the answer holds no session; a proxy may have sent it")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def longest(ask: Callable[[int], Session], seconds: int, every_role: int) -> Session:
    """Return a session of *seconds*, or of what *every_role* gives where this one gives no longer ones."""
    try:
        return ask(seconds)
    except TooLong:
        if seconds <= every_role:
            raise
        return ask(every_role)


def _fields(answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_one(code: str, known: tuple[str, ...]) -> bool:
    return any(code == item or (item.endswith(".") and code.startswith(item)) for item in known)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
