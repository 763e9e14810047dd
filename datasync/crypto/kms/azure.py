"""Azure Key Vault: wrapkey and unwrapkey with RSA-OAEP-256 (https://learn.microsoft.com/rest/api/keyvault/keys).

RSA takes no context, so nothing is told about the slot. The URI names a version: another version is another key.
Token: AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET (AZURE_AUTHORITY_HOST for other clouds), else the
managed identity of an Azure machine (of AZURE_CLIENT_ID, if set; AZURE_POD_IDENTITY_AUTHORITY_HOST moves the service).
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from datasync.crypto.kms.calls import UNWRAP, WRAP, Dialect, call, decoded, encoded, text_field
from datasync.crypto.kms.http import Client, HttpLimits, Request, parse_endpoint
from datasync.crypto.kms.protocol import KeyUri
from datasync.crypto.kms.tokens import BearerToken
from datasync.errors import IntegrityError, UsageError

API_VERSION = "7.4"
ALGORITHM = "RSA-OAEP-256"
AUTHORITY = "https://login.microsoftonline.com"
METADATA_HOST = "169.254.169.254"
METADATA_PATH = "/metadata/identity/oauth2/token"
_HOST = re.compile(r"[a-z0-9-]+\.([a-z0-9-]+(?:\.[a-z0-9-]+)+)", re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z0-9-]{1,127}/[A-Za-z0-9]{1,64}")


def _code(fields: Mapping[str, Any]) -> object:
    return fields["error"]["code"]


_DIALECT = Dialect(_code, denied=("Unauthorized", "Forbidden"), missing=("KeyNotFound",), busy=("Throttled",))


class AzureKey:
    """A `KeyService` on one version of a Key Vault key."""

    def __init__(self, uri: KeyUri, client: Client, token: BearerToken) -> None:
        self.uri = uri
        self._client = client
        self._token = token

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        """Return the RSA ciphertext; *context* has no place in it."""
        return self._call(WRAP, "wrapkey", key)

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        """Return the key."""
        return self._call(UNWRAP, "unwrapkey", blob)

    def _call(self, doing: str, verb: str, value: bytes) -> bytes:
        data = json.dumps({"alg": ALGORITHM, "value": encoded(value, url=True)}).encode()
        path = f"{self._client.endpoint.path}/keys/{self.uri.path}/{verb}?api-version={API_VERSION}"
        headers = {"Authorization": self._token.header(), "Content-Type": "application/json"}
        fields = call(self._client, lambda: Request("POST", path, headers, data), _DIALECT, doing)
        if not text_field(self.uri.name, fields, "kid").endswith(f"/keys/{self.uri.path}"):
            raise IntegrityError(f"{self.uri.name}: the answer was made with another key")
        return decoded(self.uri.name, text_field(self.uri.name, fields, "value"), url=True)


def make(uri: KeyUri, environment: Mapping[str, str], limits: HttpLimits) -> AzureKey:
    """Return the key that *uri* names."""
    host = _HOST.fullmatch(uri.place)
    if host is None or _KEY.fullmatch(uri.path) is None:
        raise UsageError("KMS URI: expected azure-kv://NAME.vault.azure.net/KEY/VERSION")
    endpoint = parse_endpoint(uri.endpoint or f"https://{uri.place}", uri.name)
    token = _token(uri.name, f"https://{host[1]}", environment, limits)
    return AzureKey(uri, Client(uri.name, endpoint, limits), token)


def _token(what: str, resource: str, environment: Mapping[str, str], limits: HttpLimits) -> BearerToken:
    tenant, client_id, secret = (
        environment.get(f"AZURE_{name}", "").strip() for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET")
    )
    if not (tenant and client_id and secret):
        return _managed_identity(what, resource, client_id, environment, limits)
    authority = parse_endpoint(environment.get("AZURE_AUTHORITY_HOST") or AUTHORITY, f"{what}: AZURE_AUTHORITY_HOST")
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": secret,
        "scope": f"{resource}/.default",
    }
    body = urlencode(form).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    path = f"{authority.path}/{quote(tenant, safe='')}/oauth2/v2.0/token"
    client = Client(f"{what}: token service", authority, limits)
    return BearerToken(client, lambda: Request("POST", path, headers, body))


def _managed_identity(
    what: str, resource: str, client_id: str, environment: Mapping[str, str], limits: HttpLimits
) -> BearerToken:
    address = environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or f"http://{METADATA_HOST}"
    endpoint = parse_endpoint(address, f"{what}: AZURE_POD_IDENTITY_AUTHORITY_HOST", (METADATA_HOST,))
    query = {"api-version": "2018-02-01", "resource": resource} | ({"client_id": client_id} if client_id else {})
    client = Client(f"{what}: managed identity", endpoint, limits)
    path = f"{endpoint.path}{METADATA_PATH}?{urlencode(query)}"
    return BearerToken(client, lambda: Request("GET", path, {"Metadata": "true"}))
