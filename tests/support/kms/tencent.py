"""Tencent Cloud KMS as its documents have it: Encrypt and Decrypt of API 2019-01-18, signature TC3-HMAC-SHA256.

https://www.tencentcloud.com/document/api/1030/32189 and https://tencentcloud.com/document/api/614/42761 (signature v3).
Errors come with HTTP 200, and a CiphertextBlob has parts joined by `-k-`.
"""

import base64
import hashlib
import hmac
import json
import re
import time

from tests.support.kms.server import Call, KeyServer, Reply

KEY_ID = "23e80852-1e38-11e9-b129-5cb9019b4b01"
SECRET_ID, SECRET_KEY = "AKID-test", "canary-tencent-secret"
TOKEN = "canary-tencent-token"
SKEW_SECONDS = 300
_SAID = re.compile(
    r"TC3-HMAC-SHA256 Credential=([^/]+)/(\d{4}-\d\d-\d\d)/kms/tc3_request, SignedHeaders=([a-z0-9;-]+), "
    r"Signature=([0-9a-f]{64})"
)


def _error(code: str) -> Reply:
    return Reply.of(200, {"Response": {"Error": {"Code": code, "Message": f"at length: {TOKEN}"}, "RequestId": "r"}})


class TencentServer(KeyServer):
    """Answers for one key."""

    def answer(self, call: Call) -> Reply:
        refusal = self._unsigned(call)
        if refusal:
            return _error(refusal)
        given = call.json()
        context = json.dumps(json.loads(given.get("EncryptionContext") or "{}"), sort_keys=True).encode()
        if call.headers["x-tc-action"] == "Encrypt":
            if given["KeyId"] != KEY_ID:
                return _error("ResourceUnavailable.CmkNotFound")
            sealed = self.seal(base64.b64decode(given["Plaintext"]), context)
            blob = "-k-".join(base64.b64encode(part).decode() for part in (sealed, b"key name"))
            return self._good({"CiphertextBlob": blob})
        key = self.open(base64.b64decode(given["CiphertextBlob"].split("-k-")[0]), context)
        return _error("FailedOperation.DecryptError") if key is None else self._good({"Plaintext": _b64(key)})

    def _good(self, fields: dict[str, str]) -> Reply:
        return Reply.of(200, {"Response": fields | {"KeyId": KEY_ID, "RequestId": "r"}})

    def _unsigned(self, call: Call) -> str:
        head = call.headers
        found = _SAID.fullmatch(head.get("authorization", ""))
        if found is None:
            return "AuthFailure.InvalidAuthorization"
        secret_id, date, names, signature = found.groups()
        stamp = head["x-tc-timestamp"]
        if secret_id != SECRET_ID:
            return "AuthFailure.SecretIdNotFound"
        if head.get("x-tc-token") != TOKEN or head["x-tc-version"] != "2019-01-18" or not head["x-tc-region"]:
            return "AuthFailure.TokenFailure"
        if abs(int(stamp) - time.time()) > SKEW_SECONDS or date != time.strftime("%Y-%m-%d", time.gmtime(int(stamp))):
            return "AuthFailure.SignatureExpire"
        if not {"content-type", "host"} <= set(names.split(";")):
            return "AuthFailure.SignatureFailure"
        lines = "".join(f"{name}:{head[name].strip().lower()}\n" for name in names.split(";"))
        hashed = hashlib.sha256(call.body).hexdigest()
        request = f"{call.method}\n{call.path}\n{call.query}\n{lines}\n{names}\n{hashed}"
        text = f"TC3-HMAC-SHA256\n{stamp}\n{date}/kms/tc3_request\n{hashlib.sha256(request.encode()).hexdigest()}"
        day = hmac.digest(b"TC3" + SECRET_KEY.encode(), date.encode(), "sha256")
        signing = hmac.digest(hmac.digest(day, b"kms", "sha256"), b"tc3_request", "sha256")
        right = hmac.digest(signing, text.encode(), "sha256").hex()
        return "" if hmac.compare_digest(right, signature) else "AuthFailure.SignatureFailure"


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
