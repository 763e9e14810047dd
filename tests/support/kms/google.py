"""Google Cloud KMS and its token services as their documents have them.

https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys/encrypt; the service
account's JWT: https://developers.google.com/identity/protocols/oauth2/service-account (HTTP/REST); the metadata
service: https://cloud.google.com/compute/docs/access/authenticate-workloads.
"""

import base64
import json
import time
from typing import Any
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.kms.server import Call, KeyServer, Reply

KEY_NAME = "projects/p1/locations/global/keyRings/ring/cryptoKeys/datasets"
EMAIL = "reader@p1.iam.gserviceaccount.com"
REFRESH, CLIENT_SECRET = "canary-google-refresh", "canary-google-client-secret"
ACCESS = "canary-google-access"
METADATA = "/computeMetadata/v1/instance/service-accounts/default/token"


def _error(status: int, name: str) -> Reply:
    return Reply.of(status, {"error": {"code": status, "message": f"at length: {ACCESS}", "status": name}})


class GoogleServer(KeyServer):
    """Answers for one key, /token and the metadata path."""

    def __init__(self) -> None:
        super().__init__()
        self._signer = generate_private_key(65537, 2048)

    def service_account(self) -> dict[str, str]:
        pem = self._signer.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return {
            "type": "service_account", "client_email": EMAIL, "private_key_id": "k1", "private_key": pem,
            "token_uri": f"{self.endpoint}/token",
        }  # fmt: skip

    def user(self) -> dict[str, str]:
        return {
            "type": "authorized_user", "client_id": "c1", "client_secret": CLIENT_SECRET, "refresh_token": REFRESH,
            "token_uri": f"{self.endpoint}/token",
        }  # fmt: skip

    def is_token(self, call: Call) -> bool:
        return call.path in ("/token", METADATA)

    def answer(self, call: Call) -> Reply:
        if self.is_token(call):
            good = self._granted(call)
            fields = {"access_token": ACCESS, "expires_in": 3599, "token_type": "Bearer"}
            return Reply.of(200, fields) if good else Reply.of(400, {"error": "invalid_grant"})
        if call.headers.get("authorization") != f"Bearer {ACCESS}":
            return _error(401, "UNAUTHENTICATED")
        name, _, verb = call.path.removeprefix("/v1/").partition(":")
        if name != KEY_NAME:
            return _error(404, "NOT_FOUND")
        given = {key: base64.b64decode(value) for key, value in call.json().items()}
        context = given["additionalAuthenticatedData"]
        if verb == "encrypt":
            sealed = base64.b64encode(self.seal(given["plaintext"], context)).decode()
            return Reply.of(200, {"name": f"{name}/cryptoKeyVersions/1", "ciphertext": sealed})
        key = self.open(given["ciphertext"], context)
        if key is None:
            return _error(400, "INVALID_ARGUMENT")
        return Reply.of(200, {"plaintext": base64.b64encode(key).decode(), "usedPrimary": True})

    def _granted(self, call: Call) -> bool:
        if call.path == METADATA:
            return call.method == "GET" and call.headers.get("metadata-flavor") == "Google"
        form = {key: values[0] for key, values in parse_qs(call.body.decode()).items()}
        if form["grant_type"] == "refresh_token":
            return (form["client_id"], form["client_secret"], form["refresh_token"]) == ("c1", CLIENT_SECRET, REFRESH)
        return form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer" and self._jwt(form["assertion"])

    def _jwt(self, text: str) -> bool:
        head, claims, signature = text.split(".")
        try:
            self._signer.public_key().verify(_raw(signature), f"{head}.{claims}".encode(), PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        told: dict[str, Any] = json.loads(_raw(claims))
        whole = told["iss"] == EMAIL and told["aud"] == f"{self.endpoint}/token" and "cloudkms" in told["scope"]
        timely = told["iat"] - 60 <= time.time() < told["exp"] <= told["iat"] + 3600
        return json.loads(_raw(head)) == {"alg": "RS256", "typ": "JWT", "kid": "k1"} and whole and timely


def _raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
