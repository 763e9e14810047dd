"""What an answer of Azure Blob Storage means: status and `x-ms-error-code` -> datasync's errors.

Messages carry the store's URL, the object, the server's code and what to do; never the server's own text. Codes: the
vendor's pages "Common REST API error codes" and "Blob Storage error codes".
"""

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

SKEW_SECONDS = 300  # the service refuses requests that are 15 minutes off

_TRY_AGAIN = {"OperationTimedOut", "InternalError", "Md5Mismatch", "Crc64Mismatch", "ContainerBeingDeleted"}
_EXISTS = {"BlobAlreadyExists", "ConditionNotMet", "UnauthorizedBlobOverwrite", "BlobImmutableDueToPolicy"}
_HINTS = {
    "AuthorizationFailure": "the account's firewall or network rules keep this machine out, or a right is missing",
    "AuthorizationPermissionMismatch": "this identity lacks the role Storage Blob Data Contributor (or Reader) here, "
    "or the signature the permission",
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
    slow, again = code == "ServerBusy", code in _TRY_AGAIN
    if (passing := trouble(what, said, status, answer.headers, slow=slow, again=again)) is not None:
        return passing
    if status in (401, 403):
        ahead = seconds_ahead(answer.headers.get("date", ""), time.time())
        hint = _HINTS.get(code, "these credentials lack the right; ask for access to this container")
        hint = wrong_clock(ahead) if abs(ahead) > SKEW_SECONDS else hint
        return NotAuthorized(f"{what}: {said}; {hint}")
    return UsageError(f"{what}: {said}, which no retry changes; check account, container and endpoint of the URL")


def code_of(answer: Answer) -> str:
    """Return the server's code, reduced to letters and digits."""
    found = answer.headers.get("x-ms-error-code", "")
    if not found and (match := re.search(rb"<Code>([A-Za-z0-9]{1,60})</Code>", answer.body[:4096])):
        found = match[1].decode()
    return re.sub(r"[^A-Za-z0-9]", "", found)[:60]
