"""Checks COS signatures, in headers and in URLs (vendor's page "Request signature"): q-sign-algorithm=sha1.

The host is signed without its port: the service has none but the standard ones, and the SDK leaves it out.
"""

import hashlib
import hmac
from urllib.parse import quote

from tests.support.object_server import SKEW_SECONDS, Account, Call, Refusal, State

FIELDS = ("q-sign-algorithm", "q-ak", "q-sign-time", "q-key-time", "q-header-list", "q-url-param-list", "q-signature")
_SAFE = "-_.~"


def check(call: Call, state: State) -> Account:
    """Return the account that signed *call*; raise the vendor's refusal."""
    authorization, query = call.headers.get("authorization", ""), call.query
    if authorization:
        fields = dict(part.partition("=")[::2] for part in authorization.split("&"))
    else:
        fields = {name: query[name] for name in FIELDS if name in query}
    if not fields:
        raise Refusal(403, "AccessDenied", "Access Denied.")
    if set(fields) != set(FIELDS) or fields["q-sign-algorithm"] != "sha1":
        raise Refusal(403, "SignatureDoesNotMatch", "The authorization is malformed.")
    account = state.account(fields["q-ak"])
    _times(fields, state, in_url=not authorization)
    _match(call, account, fields)
    _token(account, call.headers.get("x-cos-security-token") or query.get("x-cos-security-token", ""), state)
    return account


def _times(fields: dict[str, str], state: State, *, in_url: bool) -> None:
    try:
        start, end = (int(part) for part in fields["q-sign-time"].split(";"))
    except ValueError:
        raise Refusal(403, "AccessDenied", "The q-sign-time is malformed.") from None
    if start > state.now() + SKEW_SECONDS or (not in_url and start < state.now() - SKEW_SECONDS - 60):
        raise Refusal(
            403, "RequestTimeTooSkewed", "The difference between the request time and the server's is too large."
        )
    if state.now() > end:
        raise Refusal(403, "AccessDenied", "Request has expired.")


def _match(call: Call, account: Account, fields: dict[str, str]) -> None:
    headers = call.headers | {"host": call.host}
    query = {name.lower(): value for name, value in call.query.items()}
    lines = [call.method.lower(), f"/{call.key}"]
    for names, values in ((fields["q-url-param-list"], query), (fields["q-header-list"], headers)):
        listed = [name for name in names.split(";") if name]
        if listed != sorted(listed) or not all(name in values for name in listed):
            raise Refusal(403, "SignatureDoesNotMatch", "A signed header or parameter is missing.")
        lines.append("&".join(f"{name}={quote(values[name], safe=_SAFE)}" for name in listed))
    text = "\n".join([*lines, ""])
    key = hmac.digest(account.secret.encode(), fields["q-key-time"].encode(), "sha1").hex()
    wanted = f"sha1\n{fields['q-sign-time']}\n{hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()}\n"
    if not hmac.compare_digest(hmac.digest(key.encode(), wanted.encode(), "sha1").hex(), fields["q-signature"]):
        raise Refusal(403, "SignatureDoesNotMatch", "The Signature you specified is invalid.", StringToSign=wanted)


def _token(account: Account, given: str, state: State) -> None:
    if account.token != given:
        raise Refusal(403, "InvalidAccessKeyId", "The access key or its token is not valid.")
    if account.expires is not None and state.now() >= account.expires:
        raise Refusal(403, "ExpiredToken", "The token has expired.")
