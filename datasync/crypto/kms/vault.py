"""HashiCorp Vault and OpenBao: the transit engine (https://developer.hashicorp.com/vault/api-docs/secret/transit).

The key must be of an AEAD type (aes256-gcm96, chacha20-poly1305): the context goes along as associated data, and as
the derivation context of derived keys. Token: VAULT_TOKEN, else the file ~/.vault-token; address: the URI's endpoint,
else VAULT_ADDR; also VAULT_NAMESPACE and VAULT_CACERT. `vault:v1:…` blobs survive a rotation of the key.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from datasync.crypto.kms.calls import UNWRAP, WRAP, Dialect, blob_text, call, decoded, encoded, text_field
from datasync.crypto.kms.http import Client, HttpLimits, Request, parse_endpoint
from datasync.crypto.kms.protocol import KeyUri, context_text
from datasync.errors import NotAuthorized, UsageError

TOKEN_FILE_BYTES = 4096


def _code(fields: Mapping[str, Any]) -> str:
    """Vault has no codes, only sentences: one of them is told apart."""
    said = " ".join(str(item) for item in fields.get("errors", ()))
    return "key-not-found" if "encryption key not found" in said else ""


_DIALECT = Dialect(_code, missing=("key-not-found",))


class TransitKey:
    """A `KeyService` on one key of a transit engine."""

    def __init__(self, uri: KeyUri, client: Client, environment: Mapping[str, str]) -> None:
        self.uri = uri
        self._client = client
        self._environment = environment
        self._mount, _, self._key = f"{uri.place}/{uri.path}".rpartition("/")

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        """Return Vault's ciphertext text."""
        fields = self._call(WRAP, "encrypt", {"plaintext": encoded(key)}, context)
        return text_field(self.uri.name, fields, "data", "ciphertext").encode()

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        """Return the plaintext."""
        fields = self._call(UNWRAP, "decrypt", {"ciphertext": blob_text(self.uri.name, blob)}, context)
        return decoded(self.uri.name, text_field(self.uri.name, fields, "data", "plaintext"))

    def _call(self, doing: str, verb: str, body: dict[str, str], context: Mapping[str, str]) -> dict[str, Any]:
        told = encoded(context_text(context).encode())
        data = json.dumps(body | {"context": told, "associated_data": told}).encode()
        path = f"{self._client.endpoint.path}/v1/{quote(self._mount)}/{verb}/{quote(self._key)}"
        headers = {"X-Vault-Token": self._token(), "X-Vault-Request": "true", "Content-Type": "application/json"}
        if namespace := self._environment.get("VAULT_NAMESPACE"):
            headers["X-Vault-Namespace"] = namespace
        return call(self._client, lambda: Request("POST", path, headers, data), _DIALECT, doing)

    def _token(self) -> str:
        if token := self._environment.get("VAULT_TOKEN", "").strip():
            return token
        try:
            with Path(self._environment.get("HOME", "~")).expanduser().joinpath(".vault-token").open("rb") as file:
                token = file.read(TOKEN_FILE_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            token = ""
        if not token:
            raise NotAuthorized(f"{self.uri.name}: no token: set VAULT_TOKEN, or run `vault login`")
        return token


def make(uri: KeyUri, environment: Mapping[str, str], limits: HttpLimits) -> TransitKey:
    """Return the key that *uri* names."""
    address = uri.endpoint or environment.get("VAULT_ADDR")
    if not address:
        raise UsageError(f"{uri.name}: no address: set VAULT_ADDR, or endpoint= in the KMS URI")
    endpoint = parse_endpoint(address, uri.name)
    return TransitKey(uri, Client(uri.name, endpoint, limits, environment.get("VAULT_CACERT")), environment)
