"""Bearer tokens of Google and Azure: fetched when needed, kept in this process until shortly before they expire."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from datasync.crypto.kms.calls import TOKEN, Dialect, call, text_field
from datasync.crypto.kms.http import Client, Request
from datasync.errors import UsageError

EARLY_SECONDS = 120  # a token is not used so shortly before its end
FILE_BYTES = 64 * 1024


class BearerToken:
    """A token that `fetch` gets anew when it is about to expire. Never shown by repr."""

    def __init__(self, client: Client, make: Callable[[], Request]) -> None:
        self._client = client
        self._make = make
        self._token = ""
        self._ends = 0.0

    def header(self) -> str:
        """Return the Authorization header's value."""
        if time.monotonic() >= self._ends:
            fields = call(self._client, self._make, OAUTH, TOKEN)
            self._token = text_field(self._client.what, fields, "access_token")
            self._ends = time.monotonic() + _seconds(fields) - EARLY_SECONDS
        return f"Bearer {self._token}"


def _seconds(fields: Mapping[str, Any]) -> float:
    """Return expires_in, which Azure's metadata service gives as text; 0 for anything else."""
    text = str(fields.get("expires_in"))
    return float(text) if text.isdecimal() and len(text) < 8 else 0.0


def _code(fields: Mapping[str, Any]) -> object:
    found = fields.get("error")
    return found if isinstance(found, str) else ""


OAUTH = Dialect(
    _code,
    denied=("invalid_client", "invalid_grant", "unauthorized_client", "access_denied", "invalid_scope"),
    busy=("temporarily_unavailable",),
)
"""RFC 6749, section 5.2."""


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Return the JSON object in a credentials file."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(FILE_BYTES))
    except (OSError, ValueError, RecursionError):  # the text is secret, so the parser's own words are not shown
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{what}: the credentials file {path} can not be read as a JSON object")
    return found
