"""Azure: who asks, and what is signed for others, against azurite, which checks keys and signatures."""

import os
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import closing
from dataclasses import replace

import pytest

from datasync.errors import AlreadyExists, NotAuthorized, NotFound, UsageError
from datasync.storage.azure import AzureOptions, AzureStore
from datasync.storage.azure.signing import authorization
from datasync.storage.extras import Notes, Presign, SignedRequest
from datasync.storage.location import parse_url
from tests.support.azurite import ACCOUNT, KEY, AzureServer
from tests.support.faulty_server import Answer, faulty_server
from tests.support.stores import Running

VARIABLES = (
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_ACCOUNT",
)


@pytest.fixture
def server(running: Running, monkeypatch: pytest.MonkeyPatch) -> AzureServer:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    found = running.server("azure")
    assert isinstance(found, AzureServer)
    return found


@pytest.fixture
def bucket(server: AzureServer, fresh_bucket: str) -> str:
    server.make_bucket(fresh_bucket)
    return fresh_bucket


def test_a_wrong_key_is_not_authorized(server: AzureServer, bucket: str) -> None:
    wrong = replace(server, key=b64encode(b"a wrong key").decode())
    with closing(wrong.open(bucket)) as store:
        for call in (lambda: store.put_if_absent("one", bytes(300_000)), lambda: list(store.list(""))):
            with pytest.raises(NotAuthorized) as caught:
                call()
            assert wrong.key not in str(caught.value)


def test_a_key_that_is_no_key_is_told_without_repeating_it() -> None:
    store = AzureStore(parse_url("az://bucket?account=acme"), AzureOptions(key="not base64!"))
    with pytest.raises(UsageError, match="base64") as caught:
        store.stat("one")
    assert "not base64!" not in str(caught.value)


def test_a_missing_container_is_named(server: AzureServer, fresh_bucket: str) -> None:
    with closing(server.open(fresh_bucket)) as store, pytest.raises(NotFound, match="does not exist; create"):
        store.put_if_absent("one", b"x")


@pytest.mark.parametrize("way", ["key", "connection string", "signature"])
def test_the_vendors_variables_let_in(
    server: AzureServer, bucket: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "key":
        monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    elif way == "connection string":
        text = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={server.endpoint}"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    else:
        server.open(bucket).put_if_absent("one", b"x")
        signed = server.open(bucket).presign_get("one", 600)
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", signed.url.partition("?")[2])
    url = f"az://{bucket}" if way == "connection string" else server.url(bucket)
    with closing(AzureStore(parse_url(url))) as store:
        if way != "signature":
            store.put_if_absent("one", b"x")
        assert store.get("one", limit=10) == b"x"


def test_a_signature_for_reading_does_not_write(
    server: AzureServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = server.open(bucket).presign_get("two", 600)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?" + signed.url.partition("?")[2])
    with closing(AzureStore(parse_url(server.url(bucket)))) as store, pytest.raises(NotAuthorized):
        store.put_if_absent("two", b"x")


def test_each_request_asks_for_the_token_anew() -> None:
    tokens = iter(["first", "second", "third"])
    with faulty_server(lambda _: Answer(201)) as made:
        where = parse_url(f"az://bucket?endpoint=http://127.0.0.1:{made.port}/acme")
        store = AzureStore(where, AzureOptions(token=lambda: next(tokens)))
        store.put_if_absent("one", b"x")
        store.put_if_absent("two", b"x")
    assert [request.headers["Authorization"] for request in made.requests] == ["Bearer first", "Bearer second"]


def test_a_token_never_goes_over_plain_http() -> None:
    where = parse_url("az://bucket?endpoint=http://blobs.example/acme")
    with pytest.raises(UsageError, match="https only"):
        AzureStore(where, AzureOptions(token=lambda: "token")).stat("one")


@pytest.mark.usefixtures("server")
def test_an_account_that_is_not_known_is_asked_for() -> None:
    with pytest.raises(UsageError, match="account=NAME"):
        AzureStore(parse_url("az://bucket"))


def send(request: SignedRequest, body: bytes | None = None) -> tuple[int, bytes]:
    asked = urllib.request.Request(request.url, body, dict(request.headers), method=request.method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def test_a_signed_request_lets_in_whoever_has_it(server: AzureServer, bucket: str) -> None:
    store = server.open(bucket, "prefix")
    assert isinstance(store, Presign)
    put, get = store.presign_put("one", 600), store.presign_get("one", 600)
    assert send(put, b"sent by another")[0] == 201
    assert send(put, b"sent twice")[0] in (403, 409)
    assert send(get) == (200, b"sent by another")
    other = SignedRequest("GET", get.url.replace("/one?", "/two?"), get.headers, get.expires)
    assert send(other)[0] in (403, 404)
    assert "sig=" not in repr(get)


def test_only_a_key_signs_for_others(server: AzureServer, bucket: str) -> None:
    store = AzureStore(parse_url(server.url(bucket)), AzureOptions(token=lambda: "token"))
    with pytest.raises(UsageError, match="AZURE_STORAGE_KEY"):
        store.presign_get("one", 60)


@pytest.mark.parametrize("seconds", [0, 7 * 24 * 3600 + 1])
def test_a_signed_request_holds_a_week_at_most(server: AzureServer, bucket: str, seconds: int) -> None:
    with pytest.raises(UsageError, match="7 days"):
        server.open(bucket).presign_put("one", seconds)


def test_new_objects_go_into_the_class_that_the_url_asks_for(server: AzureServer, bucket: str) -> None:
    store = AzureStore(parse_url(f"{server.url(bucket)}&storage_class=cool"), server.options())
    assert isinstance(store, Notes)
    assert "fee for each byte read" in store.notes()[0]
    store.put_if_absent("one", b"x")
    assert store.get("one", limit=1) == b"x"
    with pytest.raises(AlreadyExists):
        store.put_if_absent("one", b"y")
    with pytest.raises(UsageError, match="restored"):
        AzureStore(parse_url(f"{server.url(bucket)}&storage_class=Archive"), server.options())


def test_the_signature_is_the_one_that_the_vendors_page_describes() -> None:
    """The text to sign, written out by hand from "Authorize with Shared Key"."""
    import hashlib
    import hmac

    headers = {"x-ms-version": "2021-12-02", "x-ms-date": "Fri, 26 Jun 2015 23:39:12 GMT", "Range": "bytes=0-9"}
    text = (
        "GET\n\n\n\n\n\n\n\n\n\n\nbytes=0-9\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2021-12-02\n"
        "/acme/box/a%20b\ncomp:metadata\ntimeout:20"
    )
    expected = b64encode(hmac.new(b"key", text.encode(), hashlib.sha256).digest()).decode()
    found = authorization("acme", b"key", "GET", "/box/a%20b?timeout=20&comp=metadata", headers)
    assert found == f"SharedKey acme:{expected}"


def test_without_any_credentials_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *(key for key in os.environ if key.startswith("AZURE_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "azure.identity", None)
    with pytest.raises(NotAuthorized, match="set AZURE_STORAGE_KEY"):
        AzureStore(parse_url("az://bucket?account=acme")).stat("one")
