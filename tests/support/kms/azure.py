"""Azure Key Vault and its token services as their documents have them.

https://learn.microsoft.com/en-us/rest/api/keyvault/keys/wrap-key/wrap-key (api-version 7.4);
https://learn.microsoft.com/en-us/entra/identity-platform/v2-oauth2-client-creds-grant-flow (client secret); managed
identity: https://learn.microsoft.com/en-us/entra/identity/managed-identities-azure-resources/how-to-use-vm-token.
"""

import base64
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.kms.server import Call, KeyServer, Reply

HOST, KEY = "team.vault.azure.net", "datasets/0123456789abcdef0123456789abcdef"
TENANT, CLIENT, SECRET = "t1", "c1", "canary-azure-secret"
ACCESS = "canary-azure-access"
MANAGED = "/metadata/identity/oauth2/token"
_OAEP = OAEP(MGF1(SHA256()), SHA256(), None)


def _error(status: int, code: str) -> Reply:
    return Reply.of(status, {"error": {"code": code, "message": f"at length: {ACCESS}"}})


class AzureServer(KeyServer):
    """Answers for one key version, the tenant's token endpoint and the managed identity."""

    def __init__(self) -> None:
        super().__init__()
        self._rsa = generate_private_key(65537, 2048)

    def is_token(self, call: Call) -> bool:
        return call.path in (f"/{TENANT}/oauth2/v2.0/token", MANAGED)

    def answer(self, call: Call) -> Reply:
        if self.is_token(call):
            return self._token(call)
        if call.headers.get("authorization") != f"Bearer {ACCESS}":
            return _error(401, "Unauthorized")
        path, _, verb = call.path.rpartition("/")
        if path != f"/keys/{KEY}" or call.query != "api-version=7.4":
            return _error(404, "KeyNotFound")
        given = call.json()
        value = base64.urlsafe_b64decode(given["value"] + "==")
        if given["alg"] != "RSA-OAEP-256" or verb not in ("wrapkey", "unwrapkey"):
            return _error(400, "BadParameter")
        try:
            made = (
                self._rsa.public_key().encrypt(value, _OAEP) if verb == "wrapkey" else self._rsa.decrypt(value, _OAEP)
            )
        except ValueError:
            return _error(400, "BadParameter")
        return Reply.of(200, {"kid": f"https://{HOST}/keys/{KEY}", "value": _url(made)})

    def _token(self, call: Call) -> Reply:
        if call.path == MANAGED:
            query = {key: values[0] for key, values in parse_qs(call.query).items()}
            good = call.headers.get("metadata") == "true" and query["resource"] == "https://vault.azure.net"
            good = good and query["api-version"] == "2018-02-01" and call.method == "GET"
            expires: object = "86399"
        else:
            form = {key: values[0] for key, values in parse_qs(call.body.decode()).items()}
            good = form == {
                "grant_type": "client_credentials", "client_id": CLIENT, "client_secret": SECRET,
                "scope": "https://vault.azure.net/.default",
            }  # fmt: skip
            expires = 3599
        if not good:
            return Reply.of(401, {"error": "invalid_client", "error_description": f"at length: {SECRET}"})
        return Reply.of(200, {"access_token": ACCESS, "expires_in": expires, "token_type": "Bearer"})


def _url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
