"""Checks OSS signatures, V1 and V4, in headers and in URLs (vendor's pages "Include a signature in the Authorization
header", "Include a V4 signature in a URL"). What does not hold is refused with the vendor's codes.
"""

import hashlib
import hmac
import re
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote

from tests.support.object_server import SKEW_SECONDS, Account, Call, Refusal, State

WEEK_SECONDS = 7 * 86_400  # a V4 URL lives no longer
SUBRESOURCES = {
    "acl", "bucketInfo", "continuation-token", "delete", "location", "partNumber", "response-cache-control",
    "response-content-disposition", "response-content-encoding", "response-content-language",
    "response-content-type", "response-expires", "security-token", "stat", "tagging", "uploadId", "uploads",
    "versionId", "versioning", "versions", "worm", "wormId", "x-oss-process", "x-oss-traffic-limit",
}  # fmt: skip
_V4 = re.compile(r"OSS4-HMAC-SHA256 (.*)")


def check(call: Call, state: State, bucket: str) -> Account:
    """Return the account that signed *call*; raise the vendor's refusal."""
    authorization, query = call.headers.get("authorization", ""), call.query
    if authorization.startswith("AWS4-") or "x-amz-content-sha256" in call.headers:
        raise Refusal(403, "AccessDenied", "The Amazon S3-compatible authentication mode is not enabled.")
    if authorization.startswith("OSS4-HMAC-SHA256 "):
        return _v4_header(call, state, bucket, authorization)
    if authorization.startswith("OSS "):
        return _v1_header(call, state, bucket, authorization)
    if "x-oss-signature" in query:
        return _v4_url(call, state, bucket)
    if "Signature" in query:
        return _v1_url(call, state, bucket)
    if authorization:
        raise Refusal(400, "InvalidArgument", "Unsupported Authorization Type.")
    raise Refusal(403, "AccessDenied", "You have no right to access this object because of bucket acl.")


def _token(account: Account, given: str, state: State) -> None:
    if account.token and not given:
        raise Refusal(403, "InvalidAccessKeyId", "The OSS Access Key Id you provided does not exist in our records.")
    if account.token != given:
        raise Refusal(403, "InvalidSecurityToken", "The security token you provided is invalid.")
    if account.expires is not None and state.now() >= account.expires:
        raise Refusal(403, "SecurityTokenExpired", "The security token you provided has expired.")


def _clock(signed: float, state: State) -> None:
    if abs(signed - state.now()) > SKEW_SECONDS:
        raise Refusal(
            403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.",
            MaxAllowedSkewMilliseconds=str(SKEW_SECONDS * 1000),
        )  # fmt: skip


def _same(expected: str, given: str, text: str) -> None:
    if not hmac.compare_digest(expected, given):
        message = "The request signature we calculated does not match the signature you provided."
        raise Refusal(403, "SignatureDoesNotMatch", message, SignatureProvided=given, StringToSign=text)


# V4


def _v4_header(call: Call, state: State, bucket: str, authorization: str) -> Account:
    match = _V4.fullmatch(authorization)
    fields = dict(part.strip().partition("=")[::2] for part in match[1].split(",")) if match else {}
    if not {"Credential", "Signature"} <= fields.keys() <= {"Credential", "Signature", "AdditionalHeaders"}:
        raise Refusal(400, "InvalidArgument", "Invalid Authorization header.")
    if call.headers.get("x-oss-content-sha256") != "UNSIGNED-PAYLOAD":
        raise Refusal(400, "InvalidArgument", "The x-oss-content-sha256 must be UNSIGNED-PAYLOAD.")
    date = call.headers.get("x-oss-date", "")
    account, scope = _v4_scope(fields["Credential"], date, state)
    _clock(_v4_time(date), state)
    _token(account, call.headers.get("x-oss-security-token", ""), state)
    additional = fields.get("AdditionalHeaders", "")
    _v4_match(call, account, scope, bucket, date, additional, fields["Signature"], call.query)
    return account


def _v4_url(call: Call, state: State, bucket: str) -> Account:
    query = call.query
    if query.get("x-oss-signature-version") != "OSS4-HMAC-SHA256":
        raise Refusal(400, "InvalidArgument", "Invalid x-oss-signature-version.")
    date, expires = query.get("x-oss-date", ""), query.get("x-oss-expires", "")
    account, scope = _v4_scope(query.get("x-oss-credential", ""), date, state)
    if not expires.isdigit() or not 1 <= int(expires) <= WEEK_SECONDS:
        raise Refusal(400, "AuthorizationQueryParametersError", "x-oss-expires must be between 1 and 604800.")
    if state.now() > _v4_time(date) + int(expires):
        raise Refusal(403, "AccessDenied", "Request has expired.", Expires=expires)
    _token(account, query.get("x-oss-security-token", ""), state)
    signature = query.pop("x-oss-signature")
    additional = query.get("x-oss-additional-headers", "")
    _v4_match(call, account, scope, bucket, date, additional, signature, query)
    return account


def _v4_scope(credential: str, date: str, state: State) -> tuple[Account, list[str]]:
    parts = credential.split("/")
    if len(parts) != 5 or parts[3:] != ["oss", "aliyun_v4_request"] or parts[1] != date[:8]:
        raise Refusal(400, "InvalidArgument", "Invalid Credential.")
    if parts[2] != state.region:
        raise Refusal(400, "InvalidArgument", "Invalid signing region in Authorization header.")
    return state.account(parts[0]), parts[1:]


def _v4_time(date: str) -> float:
    try:
        return datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise Refusal(403, "AccessDenied", "Invalid x-oss-date.") from None


def _v4_match(
    call: Call, account: Account, scope: list[str], bucket: str, date: str, additional: str, given: str,
    query: dict[str, str],
) -> None:  # fmt: skip
    uri = quote(f"/{bucket}/{call.key}" if bucket else "/", safe="/-_.~")
    pairs = sorted((quote(key, safe="-_.~"), quote(value, safe="-_.~")) for key, value in query.items())
    extra = [name for name in additional.split(";") if name]
    signed = sorted(
        name for name in call.headers
        if name in ("content-type", "content-md5", *extra) or name.startswith("x-oss-")
    )  # fmt: skip
    canonical = "\n".join(
        [
            call.method, uri, "&".join(f"{key}={value}" if value else key for key, value in pairs),
            "".join(f"{name}:{call.headers[name].strip()}\n" for name in signed), ";".join(sorted(extra)),
            "UNSIGNED-PAYLOAD",
        ]
    )  # fmt: skip
    text = "\n".join(["OSS4-HMAC-SHA256", date, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"aliyun_v4{account.secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    _same(hmac.digest(key, text.encode(), "sha256").hex(), given, text)


# V1


def _v1_header(call: Call, state: State, bucket: str, authorization: str) -> Account:
    access_key, _, given = authorization.removeprefix("OSS ").partition(":")
    account = state.account(access_key)
    date = call.headers.get("x-oss-date") or call.headers.get("date", "")
    try:
        _clock(parsedate_to_datetime(date).timestamp(), state)
    except (TypeError, ValueError):
        raise Refusal(403, "AccessDenied", "OSS authentication requires a valid Date.") from None
    _token(account, call.headers.get("x-oss-security-token", ""), state)
    _v1_match(call, account, bucket, date, given)
    return account


def _v1_url(call: Call, state: State, bucket: str) -> Account:
    query = call.query
    account, expires = state.account(query.get("OSSAccessKeyId", "")), query.get("Expires", "")
    if not expires.isdigit() or state.now() > int(expires):
        raise Refusal(403, "AccessDenied", "Request has expired.", Expires=expires)
    _token(account, query.get("security-token", ""), state)
    _v1_match(call, account, bucket, expires, query["Signature"])
    return account


def _v1_match(call: Call, account: Account, bucket: str, date: str, given: str) -> None:
    headers = "".join(f"{name}:{call.headers[name]}\n" for name in sorted(call.headers) if name.startswith("x-oss-"))
    query = dict(parse_qsl(call.target.partition("?")[2], keep_blank_values=True))
    chosen = sorted((key, value) for key, value in query.items() if key in SUBRESOURCES)
    parameters = "&".join(f"{key}={value}" if value else key for key, value in chosen)
    resource = (f"/{bucket}/{call.key}" if bucket else "/") + (f"?{parameters}" if parameters else "")
    text = "\n".join(
        [
            call.method,
            call.headers.get("content-md5", ""),
            call.headers.get("content-type", ""),
            date,
            headers + resource,
        ]
    )
    _same(b64encode(hmac.digest(account.secret.encode(), text.encode(), "sha1")).decode(), given, text)
