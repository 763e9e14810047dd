"""What an answer of Azure Blob Storage means: status and `x-ms-error-code` -> datasync's errors.

Messages carry the store's URL, the object, the server's code and what to do; never the server's own text. Codes: the
vendor's pages "Common REST API error codes" and "Blob Storage error codes".
"""

import re
import time
from email.utils import parsedate_to_datetime

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    NoSpace,
    NotAuthorized,
    NotFound,
    SlowDown,
    StorageUnavailable,
    UsageError,
)
from datasync.storage.http import Answer
from datasync.storage.retry import retry_after

SKEW_SECONDS = 300  # the service refuses requests that are 15 minutes off

_TRY_AGAIN = {"OperationTimedOut", "InternalError", "Md5Mismatch", "Crc64Mismatch", "ContainerBeingDeleted"}
_EXISTS = {"BlobAlreadyExists", "ConditionNotMet", "UnauthorizedBlobOverwrite", "BlobImmutableDueToPolicy"}
_HINTS = {
    "AuthorizationFailure": "the account's firewall or network rules keep this machine out, or a right is missing",
    "AuthorizationPermissionMismatch": "this identity lacks the role Storage Blob Data Contributor (or Reader) here",
    "InsufficientAccountPermissions": "these credentials lack the right; ask for access to this container",
    "AccountIsDisabled": "the storage account is disabled; look at the subscription",
    "KeyBasedAuthenticationNotPermitted": "the account takes no keys: unset AZURE_STORAGE_KEY and use a login",
    "InvalidAuthenticationInfo": "the token has expired or is not valid here; log in again",
    "AuthenticationFailed": "the key, signature or token is wrong, or has expired; renew it",
}


def translate(answer: Answer, *, url: str, container: str, name: str) -> DatasyncError:
    """Return the error that the caller shall raise for *answer*, met while working on *name*."""
    what = f"{url}: {name}" if name else url
    code, status = code_of(answer), answer.status
    said = f"the server answered {status} {code}".rstrip()
    if code == "ContainerNotFound":
        return NotFound(
            f"{what}: bucket {container} does not exist; create the container with your provider, or correct the URL"
        )
    if status == 404:
        return NotFound(f"{what} does not exist")
    if code in _EXISTS or status == 412:
        return AlreadyExists(f"{what} exists")
    if code == "ServerBusy" or status in (429, 503):
        return SlowDown(f"{what}: {said}; run the same line again", retry_after(answer.headers, time.time()))
    if status == 507:
        return NoSpace(f"{what}: {said}; the store is full: make room or raise the quota")
    if code in _TRY_AGAIN or status == 408 or (status >= 500 and status != 501):
        return StorageUnavailable(f"{what}: {said}; run the same line again")
    if status in (401, 403):
        hint = _skew(answer.headers.get("date", ""), time.time())
        hint = hint or _HINTS.get(code, "these credentials lack the right; ask for access to this container")
        return NotAuthorized(f"{what}: {said}; {hint}")
    return UsageError(f"{what}: {said}, which no retry changes; check account, container and endpoint of the URL")


def code_of(answer: Answer) -> str:
    """Return the server's code, reduced to letters and digits."""
    found = answer.headers.get("x-ms-error-code", "")
    if not found and (match := re.search(rb"<Code>([A-Za-z0-9]{1,60})</Code>", answer.body[:4096])):
        found = match[1].decode()
    return re.sub(r"[^A-Za-z0-9]", "", found)[:60]


def _skew(date: str, now: float) -> str:
    """Tell by how much the local clock is wrong, when that is why."""
    try:
        ahead = round(now - parsedate_to_datetime(date).timestamp())
    except (ValueError, TypeError):
        return ""
    if abs(ahead) <= SKEW_SECONDS:
        return ""
    wrong = f"{abs(ahead)} seconds {'ahead of' if ahead > 0 else 'behind'}"
    return f"this machine's clock is {wrong} the server's; set it (NTP)"
