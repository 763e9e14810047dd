"""Credentials for a part of an OSS bucket: sessions of a RAM role, each with a policy of its own.

`AssumeRole` gives at most what both the role and the policy allow (vendor's page "AssumeRole", API 2015-04-01; request
signature "V3 request structure and signature"). A session lasts 15 minutes or more; a scope that ends before that is
ended by a condition on the time (`acs:CurrentTime`). OSS has no condition key for `x-oss-forbid-overwrite` (vendor's
page "Authorization syntax and elements"), so a session that creates could also overwrite what its prefixes hold, unless
the bucket forbids it (`PutBucketOverwriteConfig`, or a retention policy); it can never delete.
"""

import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import quote

from datasync.storage.brokers import Credential, Scope, check_policy
from datasync.storage.location import StoreUrl
from datasync.storage.oss.credentials import oss_keys
from datasync.storage.oss.store import open_oss
from datasync.storage.protocol import ObjectStore
from datasync.storage.sdk.credentials import Keys, Provider
from datasync.storage.sts import SESSION_NAME, SHORTEST_SECONDS, Codes, Session, TokenService, longest

API_VERSION = "2015-04-01"
ALGORITHM = "ACS3-HMAC-SHA256"
ENDPOINT = "https://sts.aliyuncs.com"
POLICY_CHARACTERS = 2_048  # of a session's policy, by the vendor
EVERY_ROLE_SECONDS = 3_600  # what every role gives; its MaxSessionDuration may be more
CODES = Codes(
    denied=(
        "NoPermission", "InvalidAccessKeyId.", "InvalidSecurityToken.", "MissingSecurityToken", "SignatureDoesNotMatch",
        "IncompleteSignature", "SignatureNonceUsed", "InvalidTimeStamp.",
    ),
    busy=("Throttling", "Throttling.", "ServiceUnavailable"),
    too_long="InvalidParameter.DurationSeconds",
)  # fmt: skip


def session_policy(where: StoreUrl, scope: Scope) -> str:
    """Return the RAM policy that allows *scope* in the repository at *where*, and nothing else."""
    bucket, keys = f"acs:oss:*:*:{where.place}", scope.keys(where)
    objects = [f"{bucket}/{key}" for key in keys]
    ends = {"DateLessThan": {"acs:CurrentTime": scope.ends}}
    statements = [_allow("oss:ListObjects", [bucket], {**ends, "StringLike": {"oss:Prefix": keys}})]
    if scope.read:
        statements.append(_allow("oss:GetObject", objects, ends))
    if scope.create:
        statements.append(_allow("oss:PutObject", objects, ends))
    text = json.dumps({"Version": "1", "Statement": statements}, separators=(",", ":"))
    return check_policy(text, scope, POLICY_CHARACTERS)


def _allow(action: str, resources: list[str], condition: Mapping[str, object]) -> dict[str, object]:
    return {"Effect": "Allow", "Action": [action], "Resource": resources, "Condition": condition}


class OssStsBroker:
    """Issues sessions of one RAM role, `acs:ram::ACCOUNT:role/NAME`."""

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
        self._keys = keys or oss_keys()
        self._service = TokenService(role, endpoint or ENDPOINT, CODES)

    def issue(self, scope: Scope) -> Credential:
        """Return the variables of a session for *scope*; shorter where the role gives no longer ones."""
        seconds = max(SHORTEST_SECONDS, scope.seconds(self._clock()))
        policy = session_policy(self._where, scope)
        found = longest(lambda asked: self._assume(policy, asked), seconds, EVERY_ROLE_SECONDS)
        variables = {
            "OSS_ACCESS_KEY_ID": found.access_key,
            "OSS_ACCESS_KEY_SECRET": found.secret_key,
            "OSS_SESSION_TOKEN": found.token,
        }
        return Credential(variables, min(scope.until, found.until))

    def _assume(self, policy: str, seconds: int) -> Session:
        asked = {
            "RoleArn": self._role,
            "RoleSessionName": SESSION_NAME,
            "DurationSeconds": str(seconds),
            "Policy": policy,
        }
        query = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(asked.items()))
        found = self._service.post(query, self._headers(query))
        if "Code" in found:
            raise self._service.refusal(found["Code"])
        try:
            said = found["Credentials"]
            until = int(datetime.fromisoformat(said["Expiration"]).timestamp())
            return Session(said["AccessKeyId"], said["AccessKeySecret"], said["SecurityToken"], until)
        except (KeyError, TypeError, ValueError):
            raise self._service.unreadable() from None

    def _headers(self, query: str) -> dict[str, str]:
        keys = self._keys()
        headers = {
            "host": self._service.host,
            "x-acs-action": "AssumeRole",
            "x-acs-content-sha256": hashlib.sha256(b"").hexdigest(),
            "x-acs-date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock())),
            "x-acs-signature-nonce": uuid.uuid4().hex,
            "x-acs-version": API_VERSION,
        } | ({"x-acs-security-token": keys.token} if keys.token else {})
        return headers | {"Authorization": authorization(keys, query, headers)}


def authorization(keys: Keys, query: str, headers: Mapping[str, str]) -> str:
    """Return the Authorization header of a POST to `/` without a body; all of *headers*, in lower case, are signed."""
    names = sorted(headers)
    lines = "".join(f"{name}:{headers[name]}\n" for name in names)
    canonical = "\n".join(("POST", "/", query, lines, ";".join(names), headers["x-acs-content-sha256"]))
    text = f"{ALGORITHM}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.digest(keys.secret_key.encode(), text.encode(), "sha256").hex()
    return f"{ALGORITHM} Credential={keys.access_key},SignedHeaders={';'.join(names)},Signature={signature}"


def open_lent(where: StoreUrl, variables: Mapping[str, str]) -> ObjectStore:
    """Return the store at *where*, opened with a credential's variables; `KeyError` when one is missing."""
    keys = Keys(variables["OSS_ACCESS_KEY_ID"], variables["OSS_ACCESS_KEY_SECRET"], variables["OSS_SESSION_TOKEN"])
    return open_oss(where, keys=lambda: keys)
