"""What an S3 failure means: the SDK's exceptions and the server's codes -> datasync's errors.

Messages carry the store's URL, the object, the server's code and what to do; never the server's own text, a request
URL or a header, which may hold keys and signatures.
"""

import http.client
import re
import time
from typing import Any

import urllib3.exceptions
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
    UsageError,
)
from datasync.storage.skew import seconds_ahead, wrong_clock
from datasync.storage.trouble import trouble

FAILURES = (
    sdk.BotoCoreError, sdk.ClientError, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError,
)  # fmt: skip
"""Everything that the SDK and the sockets beneath it raise; ValueError for numbers or times that are none."""

_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.ProfileNotFound,
    sdk.SSOError,
    sdk.TokenRetrievalError,
)
_UNREACHABLE = (
    sdk.HTTPClientError,
    sdk.ConnectionError,
    sdk.ResponseStreamingError,
    sdk.IncompleteReadError,
    sdk.FlexibleChecksumError,
    ResponseParserError,
)
_TRY_AGAIN = {
    "RequestTimeout", "InternalError", "BadDigest", "XAmzContentChecksumMismatch", "IncompleteBody",
    "ConditionalRequestConflict", "OperationAborted",
}  # fmt: skip
_SLOW = {
    "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "RequestLimitExceeded", "ServiceUnavailable",
}  # fmt: skip
_NO_SPACE = {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "InsufficientCapacity"}
_HINTS = {
    "InvalidAccessKeyId": "the access key is unknown to this endpoint; check the key and the endpoint",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key; check both",
    "ExpiredToken": "the temporary credentials have expired; renew them",
    "ExpiredTokenException": "the temporary credentials have expired; renew them",
    "InvalidToken": "the session token is not valid here; renew the credentials",
    "AuthorizationHeaderMalformed": "the region is wrong; set region= in the repository URL",
}
_DENIED = set(_HINTS) | {"AccessDenied", "RequestTimeTooSkewed", "AllAccessDisabled", "AccountProblem", "Unauthorized"}


def code_of(error: BaseException) -> str:
    """Return the server's error code, reduced to letters and digits, or an empty string."""
    found = error.response.get("Error", {}).get("Code", "") if isinstance(error, sdk.ClientError) else ""
    return re.sub(r"[^A-Za-z0-9]", "", str(found))[:60]


def status_of(error: BaseException) -> int:
    """Return the HTTP status of the server's answer, 0 without one."""
    if not isinstance(error, sdk.ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def translate(error: Exception, *, url: str, bucket: str, name: str) -> DatasyncError:
    """Return the error that the caller shall raise for *error*, met while working on *name*."""
    what = f"{url}: {name}" if name else url
    if isinstance(error, sdk.ClientError):
        return _from_answer(error, what, bucket)
    kind = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return NotAuthorized(
            f"{what}: no usable credentials ({kind}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if isinstance(error, sdk.SSLError):
        return StorageUnavailable(
            f"{what}: no TLS connection ({kind}); check the endpoint's certificate and AWS_CA_BUNDLE"
        )
    if isinstance(error, sdk.BotoCoreError) and not isinstance(error, _UNREACHABLE):
        return UsageError(f"{what}: the S3 client refuses the settings ({kind}); check bucket, endpoint and region")
    return StorageUnavailable(f"{what}: no complete answer from the server ({kind}); run the same line again")


def _from_answer(error: sdk.ClientError, what: str, bucket: str) -> DatasyncError:
    code, status = code_of(error), status_of(error)
    said = f"the server answered {status} {code}".rstrip() if code != str(status) else f"the server answered {status}"
    if code == "NoSuchBucket":
        return NotFound(f"{what}: bucket {bucket} does not exist; create it with your provider, or correct the URL")
    if status == 412:
        return AlreadyExists(f"{what} exists")
    full, slow, again = code in _NO_SPACE, code in _SLOW, code in _TRY_AGAIN
    if (passing := trouble(what, said, status, _headers(error), full=full, slow=slow, again=again)) is not None:
        return passing
    if status == 409:
        return AlreadyExists(f"{what} exists")
    if code in _DENIED or status in (401, 403):
        return NotAuthorized(f"{what}: {said}; {_hint(error, code)}")
    if status == 404:
        return NotFound(f"{what} does not exist")
    return UsageError(f"{what}: {said}, which no retry changes; check endpoint, addressing and region of the URL")


def _hint(error: sdk.ClientError, code: str) -> str:
    if code == "RequestTimeTooSkewed":
        return wrong_clock(seconds_ahead(str(_headers(error).get("date")), time.time()))
    return _HINTS.get(code, "these credentials lack the right; ask for access to this bucket and prefix")


def _headers(error: sdk.ClientError) -> dict[str, Any]:
    """Return the answer's headers, names in lower case."""
    found: dict[str, Any] = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return found
