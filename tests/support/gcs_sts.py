"""Google's side of a downscoped token, in front of fake-gcs-server: the token's server, impersonation, the exchange,
and a gate that holds every request for an object to what its token allows.

Written from the vendor's pages: "Using OAuth 2.0 for server to server applications" (the signed assertion), "Method:
projects.serviceAccounts.generateAccessToken", "Method: token" of the Security Token Service, "Credential Access
Boundaries overview" and "IAM roles for Cloud Storage". Strict where the pages are: an unknown field, a rule too many, a
condition about anything but names and listings is refused. `google_conditions` has the conditions. Not known from the
pages, and so decided here: a put under a condition on a taken name is answered by the condition (412), and one without
by the right that is missing (403).
"""

import json
import os
import re
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.faulty_server import Answer, Request, faulty_server
from tests.support.gcs import GcsServer
from tests.support.google_conditions import Boundary, Refused, parse_boundary

CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
STORAGE_SCOPES = {CLOUD_SCOPE, "https://www.googleapis.com/auth/devstorage.read_write"}
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ALL = frozenset({"storage.objects.get", "storage.objects.list", "storage.objects.create", "storage.objects.delete"})
AUDIENCE = "https://oauth2.googleapis.com/token"
LONGEST_SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class Account:
    """A service account: what it may do in every bucket, and whom it may impersonate."""

    email: str
    permissions: frozenset[str] = frozenset()
    impersonates: frozenset[str] = frozenset()
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048), repr=False)


@dataclass(frozen=True, slots=True)
class Issued:
    """A token that was issued."""

    account: Account
    scopes: frozenset[str]
    expires: float
    boundary: Boundary | None = None


@dataclass
class Google:
    """A running server; tests may shift its clock and let it keep the exchange's `expires_in` to itself."""

    objects: GcsServer
    accounts: dict[str, Account]
    ahead: float = 0.0
    tokens: dict[str, Issued] = field(default_factory=dict)
    broken: tuple[str, Answer] | None = None  # what is answered to requests whose path holds the first
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, bucket: str, prefix: str = "") -> str:
        return f"gs://{bucket}/{prefix}?endpoint={quote(self.endpoint, safe=':/')}"

    def now(self) -> float:
        return time.time() + self.ahead

    def write_account(self, path: Path, email: str) -> str:
        """Write the key file of the account *email*."""
        pem = self.accounts[email].key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        about = {"type": "service_account", "client_email": email, "private_key_id": "1", "private_key": pem.decode()}
        path.write_text(json.dumps(about | {"token_uri": f"{self.endpoint}/token"}))
        return str(path)

    def issue(self, account: Account, scopes: set[str], seconds: float, boundary: Boundary | None = None) -> str:
        """Return a new token."""
        token = f"ya29.{os.urandom(12).hex()}"
        self.tokens[token] = Issued(account, frozenset(scopes), self.now() + seconds, boundary)
        return token

    def answer(self, request: Request) -> Answer:
        path = urlsplit(request.path).path
        if self.broken and self.broken[0] in path:
            return self.broken[1]
        try:
            if path == "/token":
                return self._granted(request)
            if path.startswith("/v1/projects/-/serviceAccounts/"):
                return self._impersonated(request, path)
            if path == "/v1/token":
                return self._exchanged(request)
            return self._object(request)
        except Refused as refused:
            body = {"error": {"code": refused.status, "message": str(refused), "errors": [{"reason": refused.reason}]}}
            return Answer(refused.status, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def _granted(self, request: Request) -> Answer:
        """Give a token to who signs with an account's key."""
        fields = dict(parse_qsl(request.body.decode(), strict_parsing=True))
        if fields.keys() != {"grant_type", "assertion"} or fields["grant_type"] != ASSERTION:
            raise Refused(400, "unsupported_grant_type")
        head, body, signature = fields["assertion"].split(".")
        claims = json.loads(_decoded(body))
        account = self._account(claims["iss"])
        try:
            account.key.public_key().verify(
                _decoded(signature), f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            raise Refused(400, "invalid_grant") from None
        if claims["aud"] != AUDIENCE or not claims["iat"] - 300 <= self.now() < claims["exp"]:
            raise Refused(400, "invalid_grant")
        token = self.issue(account, set(claims["scope"].split()), 3600)
        return _document({"access_token": token, "expires_in": 3600, "token_type": "Bearer"})

    def _impersonated(self, request: Request, path: str) -> Answer:
        """Give a token of another account, for as long as asked for."""
        caller, email = self._caller(request), unquote(path.split("/")[-1].removesuffix(":generateAccessToken"))
        if not path.endswith(":generateAccessToken") or CLOUD_SCOPE not in caller.scopes:
            raise Refused(403, "ACCESS_TOKEN_SCOPE_INSUFFICIENT")
        if email not in caller.account.impersonates or caller.boundary is not None:
            raise Refused(403, "IAM_PERMISSION_DENIED")
        asked = json.loads(request.body)
        lifetime = re.fullmatch(r"([1-9][0-9]*)s", asked.get("lifetime", ""))
        if asked.keys() != {"scope", "lifetime"} or not asked["scope"] or lifetime is None:
            raise Refused(400, "INVALID_ARGUMENT")
        if (seconds := int(lifetime[1])) > LONGEST_SECONDS:
            raise Refused(400, "INVALID_ARGUMENT")
        token = self.issue(self._account(email), set(asked["scope"]), seconds)
        ends = datetime.fromtimestamp(int(self.tokens[token].expires), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return _document({"accessToken": token, "expireTime": ends})

    def _exchanged(self, request: Request) -> Answer:
        """Give the same token with a boundary; it ends with the one that it was made from."""
        if request.headers.get("Content-Type") != "application/x-www-form-urlencoded":
            raise Refused(400, "invalid_request")
        fields = dict(parse_qsl(request.body.decode(), strict_parsing=True))
        expected = {"grant_type", "subject_token", "subject_token_type", "requested_token_type", "options"}
        types = (fields.get("subject_token_type"), fields.get("requested_token_type"))
        if fields.keys() != expected or fields["grant_type"] != GRANT or types != (ACCESS_TOKEN, ACCESS_TOKEN):
            raise Refused(400, "invalid_request")
        source = self.tokens.get(fields["subject_token"])
        if source is None or self.now() >= source.expires or source.boundary is not None:
            raise Refused(400, "invalid_grant")
        left = source.expires - self.now()
        token = self.issue(source.account, set(source.scopes), left, parse_boundary(fields["options"]))
        return _document({"access_token": token, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer"})

    # Objects

    def _object(self, request: Request) -> Answer:
        parts = urlsplit(request.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        caller, bucket = self._caller(request), unquote(parts.path.partition("/b/")[2].partition("/")[0])
        if not caller.scopes & STORAGE_SCOPES:
            raise Refused(403, "insufficientPermissions")
        name = unquote(parts.path.partition("/o/")[2])
        for permission, about in self._needed(request, parts.path, query, bucket, name):
            resource = f"projects/_/buckets/{bucket}" + (f"/objects/{about}" if about else "")
            self._check(caller, bucket, permission, resource, query.get("prefix", ""))
        return self._forwarded(request)

    def _needed(
        self, request: Request, path: str, query: dict[str, str], bucket: str, name: str
    ) -> list[tuple[str, str]]:
        """Return the permissions that a request needs, and for which object each."""
        if request.method == "POST" and path == f"/upload/storage/v1/b/{quote(bucket, safe='')}/o":
            match = re.search(rb"\r\n\r\n(\{.*?\})\r\n--", request.body)
            created = json.loads(match[1])["name"] if match else ""
            needed = [("storage.objects.create", created)]
            if query.get("ifGenerationMatch") != "0" and self._exists(bucket, created):
                needed.append(("storage.objects.delete", created))
            return needed
        kinds = {
            ("GET", True): "storage.objects.get",
            ("GET", False): "storage.objects.list",
            ("DELETE", True): "storage.objects.delete",
        }
        found = kinds.get((request.method, bool(name)))
        if found is None or not path.startswith("/storage/v1/b/") or "/rewriteTo/" in path:
            raise Refused(403, "forbidden")  # nothing else is in any of the roles
        return [(found, name)]

    def _check(self, caller: Issued, bucket: str, permission: str, resource: str, listed: str) -> None:
        within = caller.boundary is None or caller.boundary.allows(bucket, permission, resource, listed)
        if permission not in caller.account.permissions or not within:
            raise Refused(403, "forbidden")

    def _exists(self, bucket: str, name: str) -> bool:
        place = f"{self.objects.endpoint}/storage/v1/b/{quote(bucket, safe='')}/o/{quote(name, safe='')}"
        try:
            urllib.request.urlopen(place, timeout=30).close()
        except urllib.error.HTTPError:
            return False
        return True

    def _forwarded(self, request: Request) -> Answer:
        headers = {key: value for key, value in request.headers.items() if key.lower() in ("content-type", "range")}
        passed = urllib.request.Request(
            self.objects.endpoint + request.path, request.body or None, headers, method=request.method
        )
        try:
            with urllib.request.urlopen(passed, timeout=30) as answer:
                kept = {key: answer.headers[key] for key in ("Content-Type", "Content-Range") if key in answer.headers}
                return Answer(answer.status, kept, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, {"Content-Type": error.headers.get("Content-Type", "")}, error.read())

    # Who asks

    def _caller(self, request: Request) -> Issued:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        found = self.tokens.get(token)
        if found is None or self.now() >= found.expires:
            raise Refused(401, "authError")
        return found

    def _account(self, email: str) -> Account:
        if email not in self.accounts:
            raise Refused(404, "NOT_FOUND")
        return self.accounts[email]


@contextmanager
def google(objects: GcsServer, *accounts: Account) -> Iterator[Google]:
    """Run one server in front of *objects*."""
    made = Google(objects, {account.email: account for account in accounts})
    with faulty_server(made.answer, keep=False) as server:
        made.port = server.port
        yield made


def _document(found: dict[str, object]) -> Answer:
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(found).encode())


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
