"""A call to a key service: send, try again while it is busy, and turn what it says into errors.

A `Dialect` is what differs between vendors: where an error's code stands and what the codes mean. Only the code goes
into a message, reduced to letters, digits and `._-`; never the vendor's text.
"""

import base64
import binascii
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from datasync.crypto.kms.http import Answer, Client, Request
from datasync.errors import (
    DatasyncError,
    IntegrityError,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
    UsageError,
)

WRAP = "wrap"
UNWRAP = "unwrap"
TOKEN = "token"
_BUSY_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_FAILED = 300


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a vendor says what went wrong. A code in `busy` ending with a dot stands for all that begin with it."""

    code: Callable[[Mapping[str, Any]], object]
    denied: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()


def call(client: Client, make: Callable[[], Request], dialect: Dialect, doing: str) -> dict[str, Any]:
    """Return the fields of a good answer; *make* signs anew for each try."""
    for pause in client.limits.pauses:
        try:
            return _once(client, make, dialect, doing)
        except StorageUnavailable:
            time.sleep(pause)
    return _once(client, make, dialect, doing)


def _once(client: Client, make: Callable[[], Request], dialect: Dialect, doing: str) -> dict[str, Any]:
    answer = client.send(make())
    fields = answer.fields()
    code = _code(dialect, fields)
    if answer.status >= _FAILED or code:
        raise _refusal(client.what, answer, code, dialect, doing)
    if fields is None:
        raise IntegrityError(
            f"{client.what}: expected a JSON object, found something else (HTTP {answer.status}): check the endpoint"
        )
    return fields


def _code(dialect: Dialect, fields: Mapping[str, Any] | None) -> str:
    try:
        found = dialect.code(fields or {})
    except (AttributeError, KeyError, TypeError, IndexError):
        return ""
    return re.sub(r"[^A-Za-z0-9._-]", "", str(found or ""))[:60]


def _among(code: str, codes: tuple[str, ...]) -> bool:
    return any(code == one or (one.endswith(".") and code.startswith(one)) for one in codes)


def _refusal(what: str, answer: Answer, code: str, dialect: Dialect, doing: str) -> DatasyncError:
    said = f"HTTP {answer.status}{f', {code}' if code else ''}"
    if _FAILED <= answer.status < 400:
        return UsageError(f"{what}: answered with a redirect ({said}), which is never followed: set the final endpoint")
    if _among(code, dialect.busy) or answer.status in _BUSY_STATUS:
        return StorageUnavailable(f"{what}: busy or down ({said}): try again later")
    if _among(code, dialect.denied) or answer.status in (401, 403):
        return NotAuthorized(f"{what}: refused these credentials ({said}): renew them, or ask for the right to use it")
    if _among(code, dialect.missing) or answer.status == 404:
        return NotFound(f"{what}: there is no such key, or it is disabled ({said}): check the KMS URI")
    if doing == UNWRAP:
        return IntegrityError(
            f"{what}: does not open the wrapped slot key ({said}): it was changed, or is of another key or slot"
        )
    return UsageError(f"{what}: does not accept the request ({said}): check the kind of key, KMS URI and credentials")


def text_field(what: str, fields: Mapping[str, Any], *names: str) -> str:
    """Return the text at *names*, one inside the other."""
    found: Any = fields
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, str) or not found:
        raise IntegrityError(f"{what}: expected {'.'.join(names)} in the answer, found none: check the endpoint")
    return found


def decoded(what: str, text: str, *, url: bool = False) -> bytes:
    """Return the bytes of Base64 *text*, with the URL alphabet and without padding if *url*."""
    try:
        if url:
            return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise IntegrityError(f"{what}: expected Base64 in the answer, found something else") from None


def encoded(data: bytes, *, url: bool = False) -> str:
    """Return the Base64 text of *data*."""
    if url:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")
    return base64.b64encode(data).decode()


def blob_text(what: str, blob: bytes) -> str:
    """Return a blob that the service gave as text."""
    try:
        return blob.decode("ascii")
    except UnicodeDecodeError:
        raise IntegrityError(f"{what}: the wrapped slot key in the slot is not the text that it gives") from None
