"""What the SDK raises, for `datasync.storage.s3.errors`. Imports the SDK."""

import http.client

import urllib3.exceptions
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from datasync.errors import DatasyncError, NotAuthorized, UsageError
from datasync.storage.s3.errors import Refused, no_answer, no_tls

FAILURES = (
    sdk.BotoCoreError, sdk.ClientError, urllib3.exceptions.HTTPError, http.client.HTTPException,
)  # fmt: skip
"""Everything that the SDK raises of its own."""

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


def refusal(error: Exception) -> Refused | None:
    """Return the server's answer that *error* stands for."""
    if not isinstance(error, sdk.ClientError):
        return None
    about = error.response.get("ResponseMetadata", {})
    code = str(error.response.get("Error", {}).get("Code", ""))
    return Refused(int(about.get("HTTPStatusCode", 0)), code, about.get("HTTPHeaders", {}))


def meaning(error: Exception, what: str) -> DatasyncError | None:
    """Return the error for *error* when it is the SDK's own."""
    kind = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return NotAuthorized(
            f"{what}: no usable credentials ({kind}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if isinstance(error, sdk.SSLError):
        return no_tls(what, kind)
    if isinstance(error, sdk.BotoCoreError) and not isinstance(error, _UNREACHABLE):
        return UsageError(f"{what}: the S3 client refuses the settings ({kind}); check bucket, endpoint and region")
    return no_answer(what, kind) if isinstance(error, FAILURES) else None
