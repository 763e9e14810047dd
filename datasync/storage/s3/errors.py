"""What an S3 failure means: the server's codes, our client's and the SDK's exceptions -> datasync's errors.

Messages carry the store's URL, the object, the server's code and what to do; never the server's own text, a request
URL or a header, which may hold keys and signatures. Imports no SDK: one that is not loaded raises nothing.
"""

import re
import sys
import time
from collections.abc import Mapping

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
    UsageError,
)
from datasync.storage.s3.wire import TlsError, WireError
from datasync.storage.skew import seconds_ahead, wrong_clock
from datasync.storage.trouble import trouble

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


class Refused(Exception):
    """The server said no: its status, its code reduced to letters and digits, its headers (names in lower case), and
    the region where the bucket is, if it told.
    """

    def __init__(self, status: int, code: str, headers: Mapping[str, str], region: str = "") -> None:
        self.status = status
        self.code = re.sub(r"[^A-Za-z0-9]", "", code)[:60]
        super().__init__(status, self.code)
        self.headers = headers
        self.region = region


def failures() -> tuple[type[Exception], ...]:
    """Return everything that our client, the SDK and the sockets beneath them raise; ValueError for numbers or times
    that are none.
    """
    ours: tuple[type[Exception], ...] = (Refused, WireError, OSError, ValueError)
    if "botocore" not in sys.modules:
        return ours
    from datasync.storage.s3.sdk_errors import FAILURES

    return ours + FAILURES


def refusal_of(error: Exception) -> Refused | None:
    """Return what the server's answer said, whichever client met it; None when there was none."""
    if isinstance(error, Refused) or "botocore" not in sys.modules:
        return error if isinstance(error, Refused) else None
    from datasync.storage.s3.sdk_errors import refusal

    return refusal(error)


def code_of(error: Exception) -> str:
    """Return the server's error code, reduced to letters and digits, or an empty string."""
    refused = refusal_of(error)
    return refused.code if refused else ""


def status_of(error: Exception) -> int:
    """Return the HTTP status of the server's answer, 0 without one."""
    refused = refusal_of(error)
    return refused.status if refused else 0


def translate(error: Exception, *, url: str, bucket: str, name: str) -> DatasyncError:
    """Return the error that the caller shall raise for *error*, met while working on *name*."""
    what = f"{url}: {name}" if name else url
    if (refused := refusal_of(error)) is not None:
        return _from_answer(refused, what, bucket)
    if isinstance(error, WireError):
        return no_tls(what, str(error)) if isinstance(error, TlsError) else no_answer(what, str(error))
    if "botocore" in sys.modules:
        from datasync.storage.s3.sdk_errors import meaning

        if (meant := meaning(error, what)) is not None:
            return meant
    return no_answer(what, type(error).__name__)


def no_answer(what: str, kind: str) -> StorageUnavailable:
    """Return the error for a network that failed in the way *kind*."""
    return StorageUnavailable(f"{what}: no complete answer from the server ({kind}); run the same line again")


def no_tls(what: str, kind: str) -> StorageUnavailable:
    """Return the error for a connection without TLS."""
    return StorageUnavailable(f"{what}: no TLS connection ({kind}); check the endpoint's certificate and AWS_CA_BUNDLE")


def _from_answer(refused: Refused, what: str, bucket: str) -> DatasyncError:
    code, status = refused.code, refused.status
    said = f"the server answered {status} {code}".rstrip() if code != str(status) else f"the server answered {status}"
    if code == "NoSuchBucket":
        return NotFound(f"{what}: bucket {bucket} does not exist; create it with your provider, or correct the URL")
    if status == 412:
        return AlreadyExists(f"{what} exists")
    full, slow, again = code in _NO_SPACE, code in _SLOW, code in _TRY_AGAIN
    if (passing := trouble(what, said, status, refused.headers, full=full, slow=slow, again=again)) is not None:
        return passing
    if status == 409:
        return AlreadyExists(f"{what} exists")
    if code in _DENIED or status in (401, 403):
        return NotAuthorized(f"{what}: {said}; {_hint(refused)}")
    if status == 404:
        return NotFound(f"{what} does not exist")
    return UsageError(f"{what}: {said}, which no retry changes; check endpoint, addressing and region of the URL")


def _hint(refused: Refused) -> str:
    if refused.code == "RequestTimeTooSkewed":
        return wrong_clock(seconds_ahead(str(refused.headers.get("date")), time.time()))
    return _HINTS.get(refused.code, "these credentials lack the right; ask for access to this bucket and prefix")
