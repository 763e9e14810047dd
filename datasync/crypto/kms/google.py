"""Google Cloud KMS, REST v1: cryptoKeys.encrypt and decrypt (https://cloud.google.com/kms/docs/reference/rest).

The context goes along as additionalAuthenticatedData. Credentials are Application Default Credentials: the file that
GOOGLE_APPLICATION_CREDENTIALS names, else gcloud's own file, each a service account (signed JWT, RFC 7523) or a user
with a refresh token; else the metadata service of a Google machine (GCE_METADATA_HOST moves it).
"""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from datasync.crypto.kms.calls import UNWRAP, WRAP, Dialect, call, decoded, encoded, text_field
from datasync.crypto.kms.http import Client, HttpLimits, Request, parse_endpoint
from datasync.crypto.kms.protocol import KeyUri, context_text
from datasync.crypto.kms.tokens import BearerToken, read_json
from datasync.errors import IntegrityError, UsageError

SCOPE = "https://www.googleapis.com/auth/cloudkms"
TOKEN_URI = "https://oauth2.googleapis.com/token"
METADATA_HOST = "metadata.google.internal"
METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
JWT_SECONDS = 3600
_KEY = re.compile(r"[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def _code(fields: Mapping[str, Any]) -> object:
    return fields["error"]["status"]


_DIALECT = Dialect(
    _code,
    denied=("PERMISSION_DENIED", "UNAUTHENTICATED"),
    missing=("NOT_FOUND", "FAILED_PRECONDITION"),
    busy=("RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED"),
)


class GoogleKey:
    """A `KeyService` on one key of Cloud KMS."""

    def __init__(self, uri: KeyUri, client: Client, token: BearerToken) -> None:
        self.uri = uri
        self._client = client
        self._token = token

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        """Return the ciphertext; the answer names the key that made it."""
        fields = self._call(WRAP, "encrypt", {"plaintext": encoded(key)}, context)
        if not text_field(self.uri.name, fields, "name").startswith(f"projects/{self.uri.path}/"):
            raise IntegrityError(f"{self.uri.name}: the answer was made with another key")
        return decoded(self.uri.name, text_field(self.uri.name, fields, "ciphertext"))

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        """Return the plaintext."""
        fields = self._call(UNWRAP, "decrypt", {"ciphertext": encoded(blob)}, context)
        return decoded(self.uri.name, text_field(self.uri.name, fields, "plaintext"))

    def _call(self, doing: str, verb: str, body: dict[str, str], context: Mapping[str, str]) -> dict[str, Any]:
        told = encoded(context_text(context).encode())
        data = json.dumps(body | {"additionalAuthenticatedData": told}).encode()
        path = f"{self._client.endpoint.path}/v1/projects/{self.uri.path}:{verb}"
        headers = {"Authorization": self._token.header(), "Content-Type": "application/json"}
        return call(self._client, lambda: Request("POST", path, headers, data), _DIALECT, doing)


def make(uri: KeyUri, environment: Mapping[str, str], limits: HttpLimits) -> GoogleKey:
    """Return the key that *uri* names."""
    if uri.place != "projects" or _KEY.fullmatch(uri.path) is None:
        raise UsageError("KMS URI: expected google-kms://projects/P/locations/L/keyRings/R/cryptoKeys/K")
    endpoint = parse_endpoint(uri.endpoint or "https://cloudkms.googleapis.com", uri.name)
    return GoogleKey(uri, Client(uri.name, endpoint, limits), _token(uri.name, environment, limits))


def _token(what: str, environment: Mapping[str, str], limits: HttpLimits) -> BearerToken:
    named = environment.get("GOOGLE_APPLICATION_CREDENTIALS")
    home = Path(environment.get("CLOUDSDK_CONFIG") or Path(environment.get("HOME", "/")) / ".config/gcloud")
    path = Path(named) if named else home / "application_default_credentials.json"
    if not named and not path.is_file():
        return _metadata_token(what, environment, limits)
    fields = read_json(path, what)
    if fields.get("type") not in ("service_account", "authorized_user"):
        raise UsageError(f"{what}: {path}: expected a service_account or authorized_user credential")
    address = fields.get("token_uri") or TOKEN_URI
    client = Client(f"{what}: token service", parse_endpoint(str(address), f"{what}: token_uri"), limits)
    path_there = client.endpoint.path or "/"

    def request() -> Request:
        form = _assertion(what, fields, str(address)) if fields["type"] == "service_account" else _refresh(fields)
        return Request("POST", path_there, _FORM, urlencode(form).encode())

    return BearerToken(client, request)


def _metadata_token(what: str, environment: Mapping[str, str], limits: HttpLimits) -> BearerToken:
    host = environment.get("GCE_METADATA_HOST") or METADATA_HOST
    endpoint = parse_endpoint(f"http://{host}", f"{what}: GCE_METADATA_HOST", (METADATA_HOST, "169.254.169.254"))
    client = Client(f"{what}: metadata service", endpoint, limits)
    return BearerToken(client, lambda: Request("GET", METADATA_PATH, {"Metadata-Flavor": "Google"}))


def _refresh(fields: Mapping[str, Any]) -> dict[str, str]:
    wanted = ("client_id", "client_secret", "refresh_token")
    return {"grant_type": "refresh_token"} | {name: str(fields.get(name, "")) for name in wanted}


def _assertion(what: str, fields: Mapping[str, Any], audience: str) -> dict[str, str]:
    """Return the form with a JWT that the service account's key signed."""
    now = int(time.time())
    claims = {"iss": fields.get("client_email"), "scope": SCOPE, "aud": audience, "iat": now, "exp": now + JWT_SECONDS}
    head = {"alg": "RS256", "typ": "JWT", "kid": fields.get("private_key_id")}
    text = ".".join(encoded(json.dumps(part).encode(), url=True) for part in (head, claims))
    try:
        key = load_pem_private_key(str(fields.get("private_key")).encode(), None)
    except (ValueError, TypeError):  # the key is secret, so the library's own words are not shown
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise UsageError(f"{what}: the service account's private_key is not an RSA key in PEM form")
    signature = key.sign(text.encode(), PKCS1v15(), SHA256())
    return {"grant_type": GRANT, "assertion": f"{text}.{encoded(signature, url=True)}"}
