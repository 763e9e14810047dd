"""Tencent's security token service beside a COS test server: AssumeRole of API 2018-08-13, signature TC3-HMAC-SHA256
(vendor's pages "AssumeRole" and "Signature v3"). Errors come with status 200.

A session's key is an account of the object server, with the policies of role and session in force.
"""

import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote

from aiohttp import web

from tests.support.cos_server.policy import CAM, POLICY_CHARACTERS
from tests.support.object_server import Account, Call, Refusal, State, serving
from tests.support.policies import NoPolicy, Role, parse

SKEW_SECONDS = 300
_SAID = re.compile(
    r"TC3-HMAC-SHA256 Credential=([^/]+)/(\d{4}-\d\d-\d\d)/sts/tc3_request, SignedHeaders=([a-z0-9;-]+), "
    r"Signature=([0-9a-f]{64})"
)


@contextmanager
def cos_sts(state: State, roles: Mapping[str, Role]) -> Iterator[str]:
    """Serve on a free loopback port; yield the endpoint."""
    with serving(state, _answer(state, roles)) as port:
        yield f"http://127.0.0.1:{port}"


def _answer(state: State, roles: Mapping[str, Role]) -> Callable[[Call], web.Response]:
    def answered(call: Call) -> web.Response:
        try:
            told = _assume(call, state, roles, _check(call, state))
        except Refusal as refusal:
            told = {"Error": {"Code": refusal.code, "Message": "said at length"}}
        return web.json_response({"Response": told | {"RequestId": "R"}})

    return answered


def _check(call: Call, state: State) -> str:
    """Return the secret id that signed *call*."""
    head = call.headers
    found = _SAID.fullmatch(head.get("authorization", ""))
    if found is None:
        raise Refusal(200, "AuthFailure.InvalidAuthorization")
    caller, date, names, signature = found.groups()
    account = state.accounts.get(caller)
    if account is None:
        raise Refusal(200, "AuthFailure.SecretIdNotFound")
    if head.get("x-tc-token", "") != account.token:
        raise Refusal(200, "AuthFailure.TokenFailure")
    stamp = head["x-tc-timestamp"]
    if abs(int(stamp) - state.now()) > SKEW_SECONDS or date != time.strftime("%Y-%m-%d", time.gmtime(int(stamp))):
        raise Refusal(200, "AuthFailure.SignatureExpire")
    if not {"content-type", "host"} <= set(names.split(";")):
        raise Refusal(200, "AuthFailure.SignatureFailure")
    lines = "".join(f"{name}:{head[name].strip().lower()}\n" for name in names.split(";"))
    hashed = hashlib.sha256(call.body).hexdigest()
    request = f"{call.method}\n{call.path}\n\n{lines}\n{names}\n{hashed}"
    text = f"TC3-HMAC-SHA256\n{stamp}\n{date}/sts/tc3_request\n{hashlib.sha256(request.encode()).hexdigest()}"
    day = hmac.digest(b"TC3" + account.secret.encode(), date.encode(), "sha256")
    signing = hmac.digest(hmac.digest(day, b"sts", "sha256"), b"tc3_request", "sha256")
    if not hmac.compare_digest(hmac.digest(signing, text.encode(), "sha256").hex(), signature):
        raise Refusal(200, "AuthFailure.SignatureFailure")
    return caller


def _assume(call: Call, state: State, roles: Mapping[str, Role], caller: str) -> dict[str, object]:
    head, given = call.headers, json.loads(call.body)
    if (head["x-tc-action"], head["x-tc-version"]) != ("AssumeRole", "2018-08-13") or not head["x-tc-region"]:
        raise Refusal(200, "InvalidAction")
    role = roles.get(given["RoleArn"])
    if role is None:
        raise Refusal(200, "ResourceNotFound.RoleNotFound")
    if caller not in role.trusts:
        raise Refusal(200, "UnauthorizedOperation")
    if re.fullmatch(r"[\w+=,.@-]{2,128}", given["RoleSessionName"]) is None:
        raise Refusal(200, "InvalidParameter.ParamError")
    if not 1 <= given.get("DurationSeconds", 7_200) <= role.longest:
        raise Refusal(200, "InvalidParameter.OverTimeError")
    policy = unquote(given["Policy"])
    if len(policy) > POLICY_CHARACTERS:
        raise Refusal(200, "InvalidParameter.PolicyTooLong")
    try:
        policies = tuple(parse(text, CAM) for text in (role.policy, policy) if text)
    except NoPolicy:
        raise Refusal(200, "InvalidParameter.StrategyFormatError") from None
    key, secret, token = f"AKID{os.urandom(16).hex()}", os.urandom(16).hex(), os.urandom(40).hex()
    expires = int(state.now()) + given.get("DurationSeconds", 7_200)
    state.accounts[key] = Account(secret, token, float(expires), policies=policies)
    keys = {"TmpSecretId": key, "TmpSecretKey": secret, "Token": token}
    return {"Credentials": keys, "ExpiredTime": expires, "Expiration": "as a text"}
