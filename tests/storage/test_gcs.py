"""GCS: who asks. Google's own chain with a service account, whose token's server is ours; tokens are renewed."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from datasync.errors import NotAuthorized, NotFound, StorageUnavailable, UsageError
from datasync.storage.extras import Notes, Presign, SignedRequest
from datasync.storage.gcs import GcsStore
from datasync.storage.location import parse_url
from tests.support.faulty_server import Answer, FaultyServer, Request, faulty_server
from tests.support.gcs import GcsServer
from tests.support.stores import Running


@dataclass
class Google:
    """A token's server and a bucket that takes the newest token only."""

    seconds: int = 3600
    tokens: int = 0
    refuse: bool = False
    server: FaultyServer = field(init=False)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def answer(self, request: Request) -> Answer:
        if request.path == "/token":
            if self.refuse:
                return Answer(400, {}, b'{"error": "invalid_grant", "error_description": "SECRET"}')
            self.tokens += 1
            granted = {"access_token": f"token{self.tokens}", "expires_in": self.seconds, "token_type": "Bearer"}
            return Answer(200, {"Content-Type": "application/json"}, json.dumps(granted).encode())
        if request.headers.get("Authorization") != f"Bearer token{self.tokens}":
            return Answer(401, {}, b"{}")
        return Answer(200, {}, b"{}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def account(self, path: Path) -> str:
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        about = {
            "type": "service_account", "client_email": "test@example.iam.gserviceaccount.com",
            "private_key_id": "1", "private_key": pem.decode(), "token_uri": f"{self.url}/token",
        }  # fmt: skip
        path.write_text(json.dumps(about))
        return str(path)


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    made = Google()
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    with faulty_server(made.answer) as server:
        made.server = server
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", made.account(tmp_path / "account.json"))
        yield made


def store_at(google: Google) -> GcsStore:
    return GcsStore(parse_url(f"gs://bucket?endpoint={google.url}"))


def test_a_service_account_lets_in_with_one_token(google: Google) -> None:
    with closing(store_at(google)) as store:
        for number in range(3):
            store.put_if_absent(f"{number}", b"x")
    assert google.tokens == 1


def test_a_token_that_runs_out_is_renewed_in_the_middle(google: Google) -> None:
    google.seconds = 1  # the vendor's client renews minutes before the end
    with closing(store_at(google)) as store:
        for number in range(3):
            store.put_if_absent(f"{number}", b"x")
    assert google.tokens == 3


def test_an_account_that_is_refused_is_not_authorized(google: Google) -> None:
    google.refuse = True
    with closing(store_at(google)) as store, pytest.raises(NotAuthorized, match="can not be renewed") as caught:
        store.stat("one")
    assert "SECRET" not in str(caught.value)


def test_a_tokens_server_that_is_gone_is_unavailable(google: Google, tmp_path: Path) -> None:
    path = tmp_path / "account.json"
    path.write_text(path.read_text().replace(f":{google.server.port}/token", ":1/token"))
    with closing(store_at(google)) as store, pytest.raises(StorageUnavailable, match="token's server"):
        store.stat("one")


def test_an_emulator_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with faulty_server(lambda _: Answer(200, {}, b"{}")) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.port}")
        GcsStore(parse_url("gs://bucket")).put_if_absent("one", b"x")
    assert "Authorization" not in server.requests[0].headers


def test_a_file_that_is_no_account_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(NotAuthorized, match="no usable credentials"):
        GcsStore(parse_url("gs://bucket")).stat("one")


@pytest.fixture
def server(running: Running) -> GcsServer:
    found = running.server("gcs")
    assert isinstance(found, GcsServer)
    return found


def test_a_missing_bucket_is_told_by_the_real_server_too(server: GcsServer, fresh_bucket: str) -> None:
    with closing(server.open(fresh_bucket)) as store, pytest.raises(NotFound):
        store.put_if_absent("one", b"x")


def test_who_reads_pays_when_the_url_says_so() -> None:
    with faulty_server(lambda _: Answer(200, {}, b"{}")) as made:
        store = GcsStore(parse_url(f"gs://bucket?endpoint=http://127.0.0.1:{made.port}&project=mine"))
        store.put_if_absent("one", b"x")
        list(store.list(""))
        store.delete("one")
    assert all("userProject=mine" in request.path for request in made.requests)


def test_new_objects_go_into_the_class_that_the_url_asks_for(server: GcsServer, fresh_bucket: str) -> None:
    server.make_bucket(fresh_bucket)
    store = GcsStore(parse_url(f"{server.url(fresh_bucket)}&storage_class=nearline"))
    assert isinstance(store, Notes)
    assert "fee for each byte read" in store.notes()[0]
    store.put_if_absent("one", b"x")
    with urllib.request.urlopen(f"{server.endpoint}/storage/v1/b/{fresh_bucket}/o/one", timeout=30) as answer:
        assert json.load(answer)["storageClass"] == "NEARLINE"
    with pytest.raises(UsageError, match="unknown"):
        GcsStore(parse_url(f"{server.url(fresh_bucket)}&storage_class=FAST"))


def test_what_a_bucket_keeps_is_told() -> None:
    about = {
        "versioning": {"enabled": True},
        "retentionPolicy": {"retentionPeriod": "604800"},
        "softDeletePolicy": {"retentionDurationSeconds": "604800"},
    }
    with faulty_server(lambda _: Answer(200, {}, json.dumps(about).encode())) as made:
        told = GcsStore(parse_url(f"gs://bucket?endpoint=http://127.0.0.1:{made.port}")).notes()
    assert [word in text for word, text in zip(("versions", "for 7 days", "7 more days"), told, strict=True)] == [
        True
    ] * 3


def send(request: SignedRequest, body: bytes | None = None) -> int:
    asked = urllib.request.Request(request.url, body, dict(request.headers), method=request.method)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return int(answer.status)


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_signed_request_is_signed_as_the_vendors_page_says(google: Google, method: str) -> None:
    """V4: algorithm, time, scope and the hash of the request, each on a line; checked with the account's public key."""
    import hashlib

    store = store_at(google)
    assert isinstance(store, Presign)
    signed = store.presign_get("a/one", 600) if method == "GET" else store.presign_put("a/one", 600)
    parts = urllib.parse.urlsplit(signed.url)
    query = dict(urllib.parse.parse_qsl(parts.query))
    signature = bytes.fromhex(query.pop("X-Goog-Signature"))
    canonical_query = "&".join(f"{k}={urllib.parse.quote(v, safe='')}" for k, v in sorted(query.items()))
    headers = {"host": parts.netloc, **{key.lower(): value for key, value in signed.headers}}
    lines = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    names = ";".join(sorted(headers))
    assert query["X-Goog-SignedHeaders"] == names
    asked = f"{method}\n/bucket/a/one\n{canonical_query}\n{lines}\n{names}\nUNSIGNED-PAYLOAD"
    scope = query["X-Goog-Credential"].partition("/")[2]
    digest = hashlib.sha256(asked.encode()).hexdigest()
    text = f"GOOG4-RSA-SHA256\n{query['X-Goog-Date']}\n{scope}\n{digest}"
    google.key.public_key().verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
    assert ("x-goog-if-generation-match" in headers) == (method == "PUT")
    assert "Signature" not in repr(signed)


def test_only_a_service_account_signs_for_others(monkeypatch: pytest.MonkeyPatch, server: GcsServer) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with pytest.raises(UsageError, match="service account"):
        server.open("bucket").presign_get("one", 60)
