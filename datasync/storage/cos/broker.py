"""Credentials for a part of a COS bucket: sessions of a CAM role, each with a policy of its own.

`AssumeRole` gives at most what both the role and the policy allow (vendor's pages "AssumeRole", API 2018-08-13, and
"Signature v3": TC3-HMAC-SHA256). The policy stands URL-encoded in the request; within it the value of `cos:prefix` is
URL-encoded once more (vendor's page "Descriptions and use cases of condition keys"). Every statement ends by a
condition on the time (`qcs:current_time`); creating is bound to `x-cos-forbid-overwrite: true` by the condition key of
that name. In a bucket that has or had versions COS ignores that header: there a session that creates could overwrite.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

from datasync.storage.brokers import Credential, Scope, check_policy
from datasync.storage.cos.credentials import cos_keys
from datasync.storage.cos.store import open_cos, region_of
from datasync.storage.location import StoreUrl
from datasync.storage.protocol import ObjectStore
from datasync.storage.sdk.credentials import Keys, Provider
from datasync.storage.sts import SESSION_NAME, SHORTEST_SECONDS, Codes, Session, TokenService, longest

API_VERSION = "2018-08-13"
ALGORITHM = "TC3-HMAC-SHA256"
ENDPOINT = "https://sts.tencentcloudapi.com"
CONTENT_TYPE = "application/json; charset=utf-8"
POLICY_CHARACTERS = 2_048  # before URL-encoding; the vendor names no limit, and a token of 4,096 bytes has to hold it
EVERY_ROLE_SECONDS = 7_200  # the vendor's default
CODES = Codes(
    denied=("AuthFailure", "AuthFailure.", "UnauthorizedOperation", "UnauthorizedOperation."),
    busy=(
        "RequestLimitExceeded", "RequestLimitExceeded.", "InvalidParameter.OverLimit", "InternalError",
        "InternalError.",
    ),
    too_long="InvalidParameter.OverTimeError",
)  # fmt: skip


def session_policy(where: StoreUrl, scope: Scope) -> str:
    """Return the CAM policy that allows *scope* in the repository at *where*, and nothing else."""
    appid = where.place.rpartition("-")[2]
    bucket, keys = f"qcs::cos:{region_of(where)}:uid/{appid}:{where.place}", scope.keys(where)
    objects = [f"{bucket}/{key}" for key in keys]
    ends = {"date_less_than": {"qcs:current_time": scope.ends}}
    prefixes = {"string_like": {"cos:prefix": [quote(key, safe="*") for key in keys]}}
    statements = [_allow(["name/cos:GetBucket"], [f"{bucket}/*"], {**ends, **prefixes})]
    if scope.read:
        statements.append(_allow(["name/cos:GetObject", "name/cos:HeadObject"], objects, ends))
    if scope.create:
        forbids = {"string_equal": {"cos:x-cos-forbid-overwrite": "true"}}
        statements.append(_allow(["name/cos:PutObject"], objects, {**ends, **forbids}))
    text = json.dumps({"version": "2.0", "statement": statements}, separators=(",", ":"))
    return check_policy(text, scope, POLICY_CHARACTERS)


def _allow(actions: list[str], resources: list[str], condition: Mapping[str, object]) -> dict[str, object]:
    return {"effect": "allow", "action": actions, "resource": resources, "condition": condition}


class CosStsBroker:
    """Issues sessions of one CAM role, `qcs::cam::uin/ACCOUNT:roleName/NAME`."""

    def __init__(
        self,
        where: StoreUrl,
        role: str,
        keys: Provider | None = None,
        *,
        endpoint: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._where, self._role, self._clock = where, role, clock
        self._keys = keys or cos_keys()
        self._service = TokenService(role, endpoint or ENDPOINT, CODES)

    def issue(self, scope: Scope) -> Credential:
        """Return the variables of a session for *scope*; shorter where the role gives no longer ones."""
        seconds = max(SHORTEST_SECONDS, scope.seconds(self._clock()))
        policy = session_policy(self._where, scope)
        found = longest(lambda asked: self._assume(policy, asked), seconds, EVERY_ROLE_SECONDS)
        variables = {
            "COS_SECRET_ID": found.access_key,
            "COS_SECRET_KEY": found.secret_key,
            "COS_SESSION_TOKEN": found.token,
        }
        return Credential(variables, min(scope.until, found.until))

    def _assume(self, policy: str, seconds: int) -> Session:
        asked = {
            "RoleArn": self._role,
            "RoleSessionName": SESSION_NAME,
            "DurationSeconds": seconds,
            "Policy": quote(policy, safe=""),
        }
        body = json.dumps(asked).encode()
        said = self._service.post("", self._headers(body), body).get("Response")
        if not isinstance(said, dict):
            raise self._service.unreadable()
        if isinstance(error := said.get("Error"), dict):  # comes with status 200
            raise self._service.refusal(error.get("Code", ""))
        try:
            keys = said["Credentials"]
            return Session(keys["TmpSecretId"], keys["TmpSecretKey"], keys["Token"], int(said["ExpiredTime"]))
        except (KeyError, TypeError, ValueError):
            raise self._service.unreadable() from None

    def _headers(self, body: bytes) -> dict[str, str]:
        keys, now = self._keys(), int(self._clock())
        return {
            "Host": self._service.host,
            "Content-Type": CONTENT_TYPE,
            "X-TC-Action": "AssumeRole",
            "X-TC-Version": API_VERSION,
            "X-TC-Timestamp": str(now),
            "X-TC-Region": region_of(self._where),
            "Authorization": authorization(keys, self._service.host, now, body),
        } | ({"X-TC-Token": keys.token} if keys.token else {})


def authorization(keys: Keys, host: str, now: int, body: bytes) -> str:
    """Return the Authorization header of a POST of JSON to `/` at *now* (Unix seconds)."""
    date, names = time.strftime("%Y-%m-%d", time.gmtime(now)), "content-type;host;x-tc-action"
    lines = f"content-type:{CONTENT_TYPE}\nhost:{host}\nx-tc-action:assumerole\n"
    canonical = "\n".join(("POST", "/", "", lines, names, hashlib.sha256(body).hexdigest()))
    scope = f"{date}/sts/tc3_request"
    text = "\n".join((ALGORITHM, str(now), scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"TC3{keys.secret_key}".encode()
    for part in (date, "sts", "tc3_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return f"{ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"


def open_lent(where: StoreUrl, variables: Mapping[str, str]) -> ObjectStore:
    """Return the store at *where*, opened with a credential's variables; `KeyError` when one is missing."""
    keys = Keys(variables["COS_SECRET_ID"], variables["COS_SECRET_KEY"], variables["COS_SESSION_TOKEN"])
    return open_cos(where, keys=lambda: keys)
