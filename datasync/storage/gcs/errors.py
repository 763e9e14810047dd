"""What an answer of Google Cloud Storage means: status and reason -> datasync's errors.

Messages carry the store's URL, the object, the server's reason and what to do; never the server's own text.
Statuses: the vendor's page "HTTP status and error codes for JSON".
"""

import json
import re
import time

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    NotAuthorized,
    NotFound,
    UsageError,
)
from datasync.storage.http import Answer
from datasync.storage.skew import seconds_ahead, wrong_clock
from datasync.storage.trouble import trouble

SKEW_SECONDS = 300  # a token from a clock that is further off is refused

_NO_SPACE = {"quotaExceeded", "storageQuotaExceeded"}
_SLOW = {"rateLimitExceeded", "userRateLimitExceeded", "slowDown"}


def translate(answer: Answer, *, url: str, bucket: str, name: str) -> DatasyncError:
    """Return the error that the caller shall raise for *answer*, met while working on *name*."""
    what = f"{url}: {name}" if name else url
    status, reason, message = answer.status, *_said(answer.body)
    said = f"the server answered {status} {reason}".rstrip()
    if status == 404 and "bucket does not exist" in message:
        return NotFound(f"{what}: bucket {bucket} does not exist; create it with your provider, or correct the URL")
    if status == 404:
        return NotFound(f"{what} does not exist")
    if status == 412:
        return AlreadyExists(f"{what} exists")
    full, again = reason in _NO_SPACE and status not in (429, 503), status == 400 and "hash" in message
    if (
        passing := trouble(what, said, status, answer.headers, full=full, slow=reason in _SLOW, again=again)
    ) is not None:
        return passing
    if status in (401, 403):
        return NotAuthorized(f"{what}: {said}; {_hint(answer, message)}")
    return UsageError(f"{what}: {said}, which no retry changes; check bucket and endpoint of the URL")


def _said(body: bytes) -> tuple[str, str]:
    """Return the reason, letters and digits only, and the text for comparing, never for showing."""
    try:
        error = json.loads(body)["error"]
        first = (error.get("errors") or [{}])[0]
        return re.sub(r"[^A-Za-z0-9]", "", str(first.get("reason", "")))[:60], str(error.get("message", "")).lower()
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "", body[:1000].decode(errors="replace").lower()


def _hint(answer: Answer, message: str) -> str:
    if "project" in message and "requester pays" in message:
        return "the bucket makes its readers pay: add project=YOUR-PROJECT to the repository URL"
    ahead = seconds_ahead(answer.headers.get("date", ""), time.time())
    if abs(ahead) > SKEW_SECONDS:
        return wrong_clock(ahead)
    if answer.status == 401:
        return "the credentials have expired or are not valid here; log in again"
    return "these credentials lack the right; ask for access to this bucket and prefix"
