"""Tencent Cloud KMS, API 2019-01-18: Encrypt and Decrypt with the signature TC3-HMAC-SHA256.

https://www.tencentcloud.com/document/api/1030/32189 and .../32187 (signature v3). Credentials: TENCENTCLOUD_SECRET_ID,
TENCENTCLOUD_SECRET_KEY and, for temporary ones, TENCENTCLOUD_TOKEN. The context is the EncryptionContext. Errors come
with HTTP 200, so only their code counts.
"""

import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from datasync.crypto.kms.calls import UNWRAP, WRAP, Dialect, blob_text, call, decoded, encoded, text_field
from datasync.crypto.kms.http import Client, HttpLimits, Request, parse_endpoint
from datasync.crypto.kms.protocol import KeyUri, context_text
from datasync.errors import NotAuthorized, UsageError

API_VERSION = "2019-01-18"
SERVICE = "kms"
ALGORITHM = "TC3-HMAC-SHA256"
_CONTENT = "application/json; charset=utf-8"
_REGION = re.compile(r"[a-z0-9-]{1,64}")


def _code(fields: Mapping[str, Any]) -> object:
    return fields["Response"]["Error"]["Code"]


_DIALECT = Dialect(
    _code,
    denied=("AuthFailure", "AuthFailure.", "UnauthorizedOperation", "UnauthorizedOperation."),
    missing=(
        "ResourceUnavailable.", "InvalidParameterValue.InvalidKeyId", "ResourceNotFound", "ResourceNotFound.",
        "UnsupportedOperation.ServiceTemporaryUnavailable",
    ),
    busy=("RequestLimitExceeded", "RequestLimitExceeded.", "InternalError", "InternalError.", "LimitExceeded."),
)  # fmt: skip


class TencentKey:
    """A `KeyService` on one key of Tencent Cloud KMS."""

    def __init__(self, uri: KeyUri, client: Client, environment: Mapping[str, str]) -> None:
        self.uri = uri
        self._client = client
        self._environment = environment

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        """Return the CiphertextBlob, a text."""
        fields = self._call(WRAP, "Encrypt", {"KeyId": self.uri.path, "Plaintext": encoded(key)}, context)
        return text_field(self.uri.name, fields, "Response", "CiphertextBlob").encode()

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        """Return the Plaintext."""
        fields = self._call(UNWRAP, "Decrypt", {"CiphertextBlob": blob_text(self.uri.name, blob)}, context)
        return decoded(self.uri.name, text_field(self.uri.name, fields, "Response", "Plaintext"))

    def _call(self, doing: str, action: str, body: dict[str, str], context: Mapping[str, str]) -> dict[str, Any]:
        data = json.dumps(body | {"EncryptionContext": context_text(context)}).encode()
        return call(self._client, lambda: self._signed(action, data), _DIALECT, doing)

    def _signed(self, action: str, data: bytes) -> Request:
        secret_id, secret_key, token = self._credentials()
        now = int(time.time())
        host, path = self._client.endpoint.authority, self._client.endpoint.path + "/"
        headers = {
            "Authorization": authorization(secret_id, secret_key, f"{host}{path}", SERVICE, action, now, data),
            "Content-Type": _CONTENT,
            "X-TC-Action": action,
            "X-TC-Version": API_VERSION,
            "X-TC-Timestamp": str(now),
            "X-TC-Region": self.uri.place,
        } | ({"X-TC-Token": token} if token else {})
        return Request("POST", path, headers, data)

    def _credentials(self) -> tuple[str, str, str]:
        names = ("SECRET_ID", "SECRET_KEY", "TOKEN")
        secret_id, secret_key, token = (self._environment.get(f"TENCENTCLOUD_{name}", "").strip() for name in names)
        if not secret_id or not secret_key:
            raise NotAuthorized(
                f"{self.uri.name}: no credentials: set TENCENTCLOUD_SECRET_ID and TENCENTCLOUD_SECRET_KEY"
            )
        return secret_id, secret_key, token


def authorization(
    secret_id: str, secret_key: str, target: str, service: str, action: str, now: int, data: bytes
) -> str:
    """Return the Authorization header of a POST of JSON *data* to *target*, `host/path`, at *now* (Unix seconds)."""
    host, _, path = target.partition("/")
    date, names = time.strftime("%Y-%m-%d", time.gmtime(now)), "content-type;host;x-tc-action"
    lines = f"content-type:{_CONTENT}\nhost:{host}\nx-tc-action:{action.lower()}\n"
    canonical = "\n".join(("POST", f"/{path}", "", lines, names, hashlib.sha256(data).hexdigest()))
    scope = f"{date}/{service}/tc3_request"
    to_sign = "\n".join((ALGORITHM, str(now), scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"TC3{secret_key}".encode()
    for part in (date, service, "tc3_request", to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return f"{ALGORITHM} Credential={secret_id}/{scope}, SignedHeaders={names}, Signature={key.hex()}"


def make(uri: KeyUri, environment: Mapping[str, str], limits: HttpLimits) -> TencentKey:
    """Return the key that *uri* names."""
    if _REGION.fullmatch(uri.place) is None:
        raise UsageError("KMS URI: expected tencent-kms://REGION/KEY-ID, the region as in ap-singapore")
    endpoint = parse_endpoint(uri.endpoint or "https://kms.tencentcloudapi.com", uri.name)
    return TencentKey(uri, Client(uri.name, endpoint, limits), environment)
