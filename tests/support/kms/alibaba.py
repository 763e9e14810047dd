"""Alibaba Cloud KMS as its documents have it: Encrypt and Decrypt of API 2016-01-20, signature V3.

https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature (updated 2025-02-05) and
https://www.alibabacloud.com/help/en/kms/key-management-service/developer-reference/api-kms-2016-01-20-decrypt.
"""

import base64
import hashlib
import hmac
import json
import time
from calendar import timegm
from urllib.parse import parse_qs, quote

from tests.support.kms.server import Call, KeyServer, Reply

KEY_ID = "key-hzz62f1cb66fa42qo0001"
ACCESS_KEY, SECRET = "LTAI-test", "canary-alibaba-secret"
TOKEN = "canary-alibaba-token"
SKEW_SECONDS = 900
_SIGNED = ("host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version")


def _error(status: int, code: str) -> Reply:
    return Reply.of(status, {"Code": code, "Message": f"said at length: {SECRET}", "RequestId": "r", "HostId": "h"})


class AlibabaServer(KeyServer):
    """Answers for one key; a nonce is taken once."""

    def __init__(self) -> None:
        super().__init__()
        self._nonces: set[str] = set()

    def answer(self, call: Call) -> Reply:
        refusal = self._unsigned(call)
        if refusal:
            return _error(400 if refusal != "InvalidAccessKeyId.NotFound" else 404, refusal)
        given = {key: values[0] for key, values in parse_qs(call.query).items()}
        context = json.dumps(json.loads(given.get("EncryptionContext", "{}")), sort_keys=True).encode()
        if call.headers["x-acs-action"] == "Encrypt":
            if given["KeyId"] != KEY_ID:
                return _error(404, "Forbidden.KeyNotFound")
            blob = base64.b64encode(self.seal(base64.b64decode(given["Plaintext"]), context)).decode()
            return Reply.of(200, {"CiphertextBlob": blob, "KeyId": KEY_ID, "KeyVersionId": "v", "RequestId": "r"})
        key = self.open(base64.b64decode(given["CiphertextBlob"]), context)
        if key is None:
            return _error(400, "InvalidParameter")
        return Reply.of(200, {"Plaintext": base64.b64encode(key).decode(), "KeyId": KEY_ID, "RequestId": "r"})

    def _unsigned(self, call: Call) -> str:
        head = call.headers
        scheme, _, rest = head.get("authorization", "").partition(" ")
        said = dict(part.split("=", 1) for part in rest.split(",") if "=" in part)
        if scheme != "ACS3-HMAC-SHA256" or set(said) != {"Credential", "SignedHeaders", "Signature"}:
            return "IncompleteSignature"
        if said["Credential"] != ACCESS_KEY:
            return "InvalidAccessKeyId.NotFound"
        if head.get("x-acs-security-token") != TOKEN:
            return "InvalidSecurityToken.Malformed"
        names = said["SignedHeaders"].split(";")
        if names != sorted(names) or not {*_SIGNED, "x-acs-security-token"} <= set(names):
            return "IncompleteSignature"
        if abs(timegm(time.strptime(head["x-acs-date"], "%Y-%m-%dT%H:%M:%SZ")) - time.time()) > SKEW_SECONDS:
            return "InvalidTimeStamp.Expired"
        if head["x-acs-content-sha256"] != hashlib.sha256(call.body).hexdigest():
            return "SignatureDoesNotMatch"
        pairs = sorted((key, values[0]) for key, values in parse_qs(call.query, keep_blank_values=True).items())
        query = "&".join(f"{quote(key, safe='-_.~')}={quote(value, safe='-_.~')}" for key, value in pairs)
        canonical = f"{call.method}\n{call.path}\n{query}\n"
        canonical += "".join(f"{name}:{head[name].strip()}\n" for name in names)
        canonical += f"\n{';'.join(names)}\n{head['x-acs-content-sha256']}"
        text = "ACS3-HMAC-SHA256\n" + hashlib.sha256(canonical.encode()).hexdigest()
        if not hmac.compare_digest(hmac.digest(SECRET.encode(), text.encode(), "sha256").hex(), said["Signature"]):
            return "SignatureDoesNotMatch"
        nonce = head["x-acs-signature-nonce"]
        if nonce in self._nonces:
            return "SignatureNonceUsed"
        self._nonces.add(nonce)
        return ""
