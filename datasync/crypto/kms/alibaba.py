"""Alibaba Cloud KMS, API 2016-01-20: Encrypt and Decrypt with the V3 signature (ACS3-HMAC-SHA256).

https://www.alibabacloud.com/help/en/kms/key-management-service/developer-reference/api-kms-2016-01-20-encrypt and
https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature. The parameters stand in
the query of a POST, as that API has it. Credentials: ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET and,
for temporary ones, ALIBABA_CLOUD_SECURITY_TOKEN. The context is the EncryptionContext.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from datasync.crypto.kdf import random_bytes
from datasync.crypto.kms.calls import UNWRAP, WRAP, Dialect, blob_text, call, decoded, encoded, text_field
from datasync.crypto.kms.http import Client, HttpLimits, Request, parse_endpoint
from datasync.crypto.kms.protocol import KeyUri, context_text
from datasync.errors import NotAuthorized, UsageError

API_VERSION = "2016-01-20"
ALGORITHM = "ACS3-HMAC-SHA256"
_REGION = re.compile(r"[a-z0-9-]{1,64}")


def _code(fields: Mapping[str, Any]) -> object:
    return fields.get("Code")


_DIALECT = Dialect(
    _code,
    denied=(
        "Forbidden.NoPermission", "Forbidden.AccessKeyNotFound", "NoPermission", "SignatureDoesNotMatch",
        "IncompleteSignature", "SignatureNonceUsed", "InvalidTimeStamp.", "InvalidAccessKeyId.",
        "InvalidSecurityToken.", "Forbidden.RAM",
    ),
    missing=("Forbidden.KeyNotFound", "Forbidden.AliasNotFound", "Rejected.Disabled", "Rejected.PendingDeletion",
             "Rejected.Unavailable"),
    busy=("Throttling", "Throttling.", "Rejected.Throttling", "InternalFailure", "ServiceUnavailableTemporary"),
)  # fmt: skip


class AlibabaKey:
    """A `KeyService` on one key of Alibaba Cloud KMS."""

    def __init__(self, uri: KeyUri, client: Client, environment: Mapping[str, str]) -> None:
        self.uri = uri
        self._client = client
        self._environment = environment

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        """Return the CiphertextBlob, a text."""
        fields = self._call(WRAP, "Encrypt", {"KeyId": self.uri.path, "Plaintext": encoded(key)}, context)
        return text_field(self.uri.name, fields, "CiphertextBlob").encode()

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        """Return the Plaintext."""
        fields = self._call(UNWRAP, "Decrypt", {"CiphertextBlob": blob_text(self.uri.name, blob)}, context)
        return decoded(self.uri.name, text_field(self.uri.name, fields, "Plaintext"))

    def _call(self, doing: str, action: str, query: dict[str, str], context: Mapping[str, str]) -> dict[str, Any]:
        told = query | {"EncryptionContext": context_text(context)}
        return call(self._client, lambda: self._signed(action, told), _DIALECT, doing)

    def _signed(self, action: str, parameters: Mapping[str, str]) -> Request:
        access_key, secret, token = self._credentials()
        query = "&".join(f"{quote(key, safe='')}={quote(parameters[key], safe='')}" for key in sorted(parameters))
        headers = {
            "Host": self._client.endpoint.authority,
            "x-acs-action": action,
            "x-acs-content-sha256": hashlib.sha256(b"").hexdigest(),
            "x-acs-date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "x-acs-signature-nonce": random_bytes(16).hex(),
            "x-acs-version": API_VERSION,
        } | ({"x-acs-security-token": token} if token else {})
        path = self._client.endpoint.path + "/"
        headers["Authorization"] = authorization(access_key, secret, path, query, headers)
        return Request("POST", f"{path}?{query}", headers)

    def _credentials(self) -> tuple[str, str, str]:
        names = ("ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "SECURITY_TOKEN")
        access_key, secret, token = (self._environment.get(f"ALIBABA_CLOUD_{name}", "").strip() for name in names)
        if not access_key or not secret:
            raise NotAuthorized(
                f"{self.uri.name}: no credentials: set ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET"
            )
        return access_key, secret, token


def authorization(access_key: str, secret: str, path: str, query: str, headers: Mapping[str, str]) -> str:
    """Return the Authorization header of a POST without a body; all of *headers* are signed."""
    lower = {name.lower(): value for name, value in headers.items()}
    names = sorted(lower)
    lines = "".join(f"{name}:{lower[name]}\n" for name in names)
    canonical = "\n".join(("POST", path, query, lines, ";".join(names), lower["x-acs-content-sha256"]))
    to_sign = f"{ALGORITHM}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.new(secret.encode(), to_sign.encode(), hashlib.sha256).hexdigest()
    return f"{ALGORITHM} Credential={access_key},SignedHeaders={';'.join(names)},Signature={signature}"


def make(uri: KeyUri, environment: Mapping[str, str], limits: HttpLimits) -> AlibabaKey:
    """Return the key that *uri* names."""
    if _REGION.fullmatch(uri.place) is None:
        raise UsageError("KMS URI: expected alibaba-kms://REGION/KEY-ID, the region as in eu-central-1")
    endpoint = parse_endpoint(uri.endpoint or f"https://kms.{uri.place}.aliyuncs.com", uri.name)
    return AlibabaKey(uri, Client(uri.name, endpoint, limits), environment)
