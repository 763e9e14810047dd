"""Alibaba's security token service beside an OSS test server: AssumeRole of API 2015-04-01, signature V3 (vendor's
pages "AssumeRole" and "V3 request structure and signature").

A session's key is an account of the object server, with the policies of role and session in force.
"""

import hashlib
import hmac
import os
import re
import time
from calendar import timegm
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs, quote

from aiohttp import web

from tests.support.object_server import SKEW_SECONDS, Account, Call, Refusal, State, iso, serving
from tests.support.oss_server.policy import POLICY_CHARACTERS, RAM
from tests.support.policies import NoPolicy, Role, parse

_SIGNED = {"host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version"}


@contextmanager
def oss_sts(state: State, roles: Mapping[str, Role]) -> Iterator[str]:
    """Serve on a free loopback port; yield the endpoint."""
    with serving(state, _answer(state, roles)) as port:
        yield f"http://127.0.0.1:{port}"


def _answer(state: State, roles: Mapping[str, Role]) -> Callable[[Call], web.Response]:
    nonces = set[str]()

    def answered(call: Call) -> web.Response:
        try:
            return web.json_response(_assume(call, state, roles, _check(call, state, nonces)))
        except Refusal as refusal:
            told = {"Code": refusal.code, "Message": "said at length", "RequestId": "R", "HostId": call.host}
            return web.json_response(told, status=refusal.status)

    return answered


def _check(call: Call, state: State, nonces: set[str]) -> str:
    """Return the access key that signed *call*."""
    head = call.headers
    scheme, _, rest = head.get("authorization", "").partition(" ")
    said = dict(part.partition("=")[::2] for part in rest.split(","))
    names = said.get("SignedHeaders", "").split(";")
    if scheme != "ACS3-HMAC-SHA256" or names != sorted(names) or not set(names) >= _SIGNED:
        raise Refusal(400, "IncompleteSignature")
    account = state.accounts.get(said["Credential"])
    if account is None:
        raise Refusal(404, "InvalidAccessKeyId.NotFound")
    if head.get("x-acs-security-token", "") != account.token:
        raise Refusal(400, "InvalidSecurityToken.Malformed")
    if abs(timegm(time.strptime(head["x-acs-date"], "%Y-%m-%dT%H:%M:%SZ")) - state.now()) > SKEW_SECONDS:
        raise Refusal(400, "InvalidTimeStamp.Expired")
    if head["x-acs-content-sha256"] != hashlib.sha256(call.body).hexdigest():
        raise Refusal(400, "SignatureDoesNotMatch")
    pairs = sorted((name, values[0]) for name, values in parse_qs(call.target.partition("?")[2]).items())
    query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)
    lines = "".join(f"{name}:{head[name].strip()}\n" for name in names)
    canonical = "\n".join([call.method, call.path, query, lines, ";".join(names), head["x-acs-content-sha256"]])
    text = "ACS3-HMAC-SHA256\n" + hashlib.sha256(canonical.encode()).hexdigest()
    if not hmac.compare_digest(hmac.digest(account.secret.encode(), text.encode(), "sha256").hex(), said["Signature"]):
        raise Refusal(400, "SignatureDoesNotMatch")
    if head["x-acs-signature-nonce"] in nonces:
        raise Refusal(400, "SignatureNonceUsed")
    nonces.add(head["x-acs-signature-nonce"])
    return said["Credential"]


def _assume(call: Call, state: State, roles: Mapping[str, Role], caller: str) -> dict[str, object]:
    if (call.headers["x-acs-action"], call.headers["x-acs-version"]) != ("AssumeRole", "2015-04-01"):
        raise Refusal(404, "InvalidAction.NotFound")
    given = call.query
    role = roles.get(given["RoleArn"])
    if role is None:
        raise Refusal(404, "EntityNotExist.Role")
    if caller not in role.trusts:
        raise Refusal(403, "NoPermission")
    if re.fullmatch(r"[A-Za-z0-9.@_-]{2,64}", given["RoleSessionName"]) is None:
        raise Refusal(400, "InvalidParameter.RoleSessionName")
    seconds = int(given.get("DurationSeconds", "3600"))
    if not 900 <= seconds <= role.longest:
        raise Refusal(400, "InvalidParameter.DurationSeconds")
    if len(given["Policy"]) > POLICY_CHARACTERS:
        raise Refusal(400, "InvalidParameter.PolicySize")
    try:
        policies = tuple(parse(text, RAM) for text in (role.policy, given["Policy"]) if text)
    except NoPolicy:
        raise Refusal(400, "InvalidParameter.PolicyGrammar") from None
    key, secret, token = f"STS.{os.urandom(9).hex()}", os.urandom(15).hex(), os.urandom(40).hex()
    expires = int(state.now()) + seconds
    state.accounts[key] = Account(secret, token, float(expires), policies=policies)
    keys = {"AccessKeyId": key, "AccessKeySecret": secret, "SecurityToken": token}
    return {"Credentials": keys | {"Expiration": iso(expires).replace(".000", "")}, "RequestId": "R"}
