"""When S3Store does without the SDK, and that its requests are then the SDK's: settings, signatures, answers."""

import hashlib
import os
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from datasync.errors import NotAuthorized, NotFound, StorageUnavailable
from datasync.storage.location import parse_url
from datasync.storage.s3 import S3Credentials, S3Options, S3Store
from datasync.storage.s3.plain import PlainClient, plain_settings
from datasync.storage.s3.sigv4 import UNSIGNED, signed, target_of
from tests.acceptance.test_imports import modules_after
from tests.contract import test_store_contract as contract
from tests.support.cli import Machine
from tests.support.faulty_server import Answer, Request, fault, faulty_server
from tests.support.servers import S3Server

KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}
PLACE = "s3://bucket/ds?endpoint=https://s3.example.com&region=eu-west-1"
# The vendor's own example keys ("Signature Calculations for the Authorization Header", Amazon S3 API Reference).
EXAMPLE = S3Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
EXAMPLE_TIME = datetime(2013, 5, 24, tzinfo=UTC).timestamp()
EXAMPLE_HOST = {"Host": "examplebucket.s3.amazonaws.com"}


@pytest.fixture(autouse=True)
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of the vendor's on this machine has a say."""
    monkeypatch.setenv("HOME", str(tmp_path))


# Settings


@pytest.mark.parametrize(
    ("url", "endpoint", "path"),
    [
        (PLACE, "https://s3.example.com", "/bucket/"),
        (f"{PLACE}&addressing=virtual", "https://bucket.s3.example.com", "/"),
        (f"{PLACE}&addressing=path", "https://s3.example.com", "/bucket/"),
        ("s3://bucket?endpoint=http://127.0.0.1:9000", "http://127.0.0.1:9000", "/bucket/"),
        ("s3://bucket?endpoint=http://[::1]:9000", "http://[::1]:9000", "/bucket/"),
        ("s3://bucket?endpoint=http://localhost:80&addressing=virtual", "http://bucket.localhost", "/"),
        ("s3://bucket?endpoint=https://h:443&addressing=path", "https://h", "/bucket/"),
        ("s3://my.bucket?endpoint=https://h&addressing=path", "https://h", "/my.bucket/"),
    ],
)
def test_the_url_says_where_requests_go_as_the_sdk_understands_it(url: str, endpoint: str, path: str) -> None:
    settings = plain_settings(parse_url(url), S3Options(), KEYS)
    assert settings is not None
    assert (settings.endpoint, settings.path) == (endpoint, path)
    with closing(S3Store(parse_url(url), S3Options(S3Credentials("AKID", "secret"), sdk=True))) as store:
        there = store.sdk.generate_presigned_url("get_object", Params={"Bucket": store._bucket, "Key": "key"})
    assert re.sub(":(80|443)/", "/", there.partition("?")[0]) == f"{endpoint}{path}key"


def test_regions_and_keys_come_from_the_url_the_program_and_the_environment() -> None:
    place = parse_url("s3://bucket?endpoint=https://h")
    settings = plain_settings(place, S3Options(), KEYS)
    assert settings is not None
    assert (settings.region, settings.keys) == ("us-east-1", S3Credentials("AKID", "secret"))
    settings = plain_settings(place, S3Options(), {**KEYS, "AWS_DEFAULT_REGION": "r1", "AWS_SESSION_TOKEN": "token"})
    assert settings is not None
    assert (settings.region, settings.keys.token) == ("r1", "token")
    given_keys = S3Credentials("other", "secret")
    settings = plain_settings(parse_url(PLACE), S3Options(given_keys), {**KEYS, "AWS_DEFAULT_REGION": "r1"})
    assert settings is not None
    assert (settings.region, settings.keys) == ("eu-west-1", given_keys)


@pytest.mark.parametrize(
    ("url", "environment"),
    [
        (PLACE, {}),
        (PLACE, {"AWS_ACCESS_KEY_ID": "AKID"}),
        (PLACE, {**KEYS, "AWS_PROFILE": "gpu"}),
        (PLACE, {**KEYS, "AWS_CREDENTIAL_EXPIRATION": "2030-01-01T00:00:00Z"}),
        (PLACE, {**KEYS, "AWS_USE_FIPS_ENDPOINT": "true"}),
        (PLACE, {**KEYS, "https_proxy": "http://proxy:3128"}),
        (PLACE, {**KEYS, "HTTPS_PROXY": "http://proxy:3128"}),
        ("s3://bucket?endpoint=http://h", {**KEYS, "http_proxy": "http://proxy:3128"}),
        ("s3://bucket?region=eu-west-1", KEYS),
        ("s3://my.bucket?endpoint=https://h&addressing=virtual", KEYS),
        ("s3://bucket?endpoint=http://127.0.0.1:9000&addressing=virtual", KEYS),
        ("s3://bucket?endpoint=http://[::1]:9000&addressing=virtual", KEYS),
        (PLACE, {**KEYS, "AWS_SESSION_TOKEN": "token\n"}),
        (PLACE, {**KEYS, "AWS_SECRET_ACCESS_KEY": "secret\r"}),
        (PLACE, {**KEYS, "AWS_ACCESS_KEY_ID": "A KID"}),
        (f"{PLACE}&accelerate=true", KEYS),
        (f"{PLACE}&dualstack=true", KEYS),
    ],
)
def test_what_only_the_sdk_knows_is_left_to_the_sdk(url: str, environment: Mapping[str, str]) -> None:
    assert plain_settings(parse_url(url), S3Options(), environment) is None


def test_the_older_name_of_a_token_comes_first_as_in_the_sdk() -> None:
    both = {**KEYS, "AWS_SESSION_TOKEN": "new", "AWS_SECURITY_TOKEN": "old"}
    settings = plain_settings(parse_url(PLACE), S3Options(), both)
    assert settings is not None
    assert settings.keys.token == "old"


def test_a_home_that_can_not_be_looked_into_holds_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/" + "x" * 300)
    with pytest.raises(OSError, match="too long"):
        os.stat(Path.home())
    assert plain_settings(parse_url(PLACE), S3Options(), KEYS) is not None


@pytest.mark.parametrize("name", ["config", "credentials"])
def test_a_file_of_the_sdks_is_the_sdks(tmp_path: Path, name: str) -> None:
    variable = {"config": "AWS_CONFIG_FILE", "credentials": "AWS_SHARED_CREDENTIALS_FILE"}[name]
    assert plain_settings(parse_url(PLACE), S3Options(), KEYS) is not None
    (tmp_path / "elsewhere").write_text("[default]\n")
    elsewhere = {**KEYS, variable: str(tmp_path / "elsewhere")}
    assert plain_settings(parse_url(PLACE), S3Options(), elsewhere) is None
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / name).write_text("[default]\n")
    assert plain_settings(parse_url(PLACE), S3Options(), KEYS) is None


def test_a_push_and_a_warm_through_an_endpoint_load_no_sdk(
    moto: S3Server, fresh_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_bytes(b"content")
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    machine = Machine(tmp_path, moto.make_bucket(fresh_bucket))
    machine.run("init")
    for command in (("push", tmp_path / "data"), ("push", tmp_path / "data"), ("warm", "data")):
        loaded = modules_after(machine, *command)
        assert "datasync.storage.s3.wire" in loaded
        assert loaded & {"botocore", "boto3", "urllib3", "http.client", "ssl"} == set()


# Signatures


@pytest.mark.parametrize(
    ("method", "target", "headers", "payload", "signature"),
    [
        (
            "GET", "/test.txt", {"Range": "bytes=0-9"}, hashlib.sha256(b"").hexdigest(),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT", target_of("/test$file.text", {}),
            {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            hashlib.sha256(b"Welcome to Amazon S3.").hexdigest(),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET", target_of("/", {"prefix": "J", "max-keys": "2"}), {}, hashlib.sha256(b"").hexdigest(),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)  # fmt: skip
def test_the_vendors_examples_are_signed_as_the_vendor_says(
    method: str, target: str, headers: Mapping[str, str], payload: str, signature: str
) -> None:
    made = signed(
        method, target, {**EXAMPLE_HOST, **headers}, keys=EXAMPLE, region="us-east-1", payload=payload, now=EXAMPLE_TIME
    )
    assert made["Authorization"].endswith(f"Signature={signature}")


NAMES = st.text("abcXYZ019/._-", min_size=1, max_size=40)
TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)


@given(
    method=st.sampled_from(["GET", "PUT", "HEAD", "DELETE"]),
    name=NAMES.filter(lambda name: "//" not in name),
    query=st.dictionaries(st.sampled_from(["prefix", "max-keys", "start-after", "list-type", "a b"]), TEXTS),
    token=st.none() | st.text("abc/+=", min_size=1, max_size=20),
)
def test_any_request_is_signed_as_the_sdk_signs_it(
    method: str, name: str, query: dict[str, str], token: str | None
) -> None:
    target = target_of(f"/bucket/{name}", query)
    keys = S3Credentials("AKID", "secret", token)
    ours = signed(method, target, {"Host": "h:9"}, keys=keys, region="r1", payload=UNSIGNED, now=EXAMPLE_TIME)
    request = AWSRequest(method, f"http://h:9{target_of(f'/bucket/{name}', {})}", params=query)
    request.context["payload_signing_enabled"] = False
    request.headers["X-Amz-Content-SHA256"] = UNSIGNED
    now = datetime.fromtimestamp(EXAMPLE_TIME, UTC)
    signer = botocore.auth.S3SigV4Auth(Credentials("AKID", "secret", token), "s3", "r1")
    with (
        mock.patch.object(botocore.auth, "get_current_datetime", return_value=now),
        mock.patch.object(signer, "payload", return_value=UNSIGNED),
    ):
        signer.add_auth(request)
    assert request.headers["Authorization"] == ours["Authorization"]


# Answers


CLAUSES = {
    name: clause
    for name, clause in vars(contract).items()
    if name.startswith("test_") and clause.__code__.co_varnames[: clause.__code__.co_argcount] == ("any_store",)
}


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_of_the_contract_holds_through_the_sdk_too(clause: str, moto: S3Server, fresh_bucket: str) -> None:
    """What the contract suite runs through our own client."""
    place, keys = parse_url(moto.make_bucket(fresh_bucket)), moto.options().credentials
    with closing(S3Store(place, S3Options(keys, sdk=True))) as store:
        assert not isinstance(store._client, PlainClient)
        CLAUSES[clause](store)


def test_both_clients_send_the_same_requests() -> None:
    def rule(request: Request) -> Answer:
        listing = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
        dated = {"Last-Modified": "Mon, 30 Nov 2026 08:00:00 GMT"}
        if request.method in ("PUT", "DELETE"):
            return Answer(200, dated)
        return Answer(200, dated, listing if "list-type" in request.path else b"0123456789")

    def sent(*, sdk: bool) -> list[dict[str, str]]:
        with faulty_server(rule) as server:
            place = server.place().with_option("storage_class", "STANDARD_IA").with_option("requester_pays", "true")
            with closing(S3Store(place, S3Options(S3Credentials("AKID", "s"), sdk=sdk))) as store:
                store.put_if_absent("one", b"x")
                store.put_if_absent("two", bytes(300_000))
                store.get("one", limit=10)
                store.get_range("one", 0, memoryview(bytearray(10)))
                store.stat("one")
                store.delete("one")
                list(store.list("d/", after="d/a", limit=7))
                list(store.list_directories("d/"))
            return [meant(request) for request in server.requests]

    assert sent(sdk=False) == sent(sdk=True)


def meant(request: Request) -> dict[str, str]:
    """Return what of a request has a meaning to the server: not who made it, when, and in which order."""
    path, _, query = request.path.partition("?")
    said = {key.lower(): value for key, value in request.headers.items()}
    chosen = ("range", "if-none-match", "expect", "x-amz-content-sha256", "content-length")
    kept = {key: value for key, value in said.items() if key in chosen or key.startswith("x-amz-")}
    kept.pop("x-amz-date")
    kept["signed"] = re.findall("SignedHeaders=([^,]*)", said["authorization"])[0]
    if request.method != "PUT":
        kept.pop("content-length", None)  # the SDK says 0 now and then
    return {**kept, "method": request.method, "path": path, "query": "&".join(sorted(query.split("&")))}


@pytest.mark.parametrize("sdk", [False, True])
def test_a_header_with_a_region_in_any_other_refusal_moves_nobody(*, sdk: bool) -> None:
    """A gateway may pass the header of the bucket behind it on."""
    with faulty_server(lambda _: fault(404, "NoSuchKey", headers={"x-amz-bucket-region": "eu-west-3"})) as server:
        with closing(S3Store(server.place(), S3Options(S3Credentials("AKID", "s"), sdk=sdk))) as store:
            for _ in range(2):
                with pytest.raises(NotFound):
                    store.get("one", limit=1)
        assert ["/us-east-1/s3/" in request.headers["Authorization"] for request in server.requests] == [True, True]


def test_threads_that_meet_the_wrong_region_together_all_get_there() -> None:
    together = threading.Barrier(4, timeout=10)

    def rule(request: Request) -> Answer:
        if "/eu-west-1/s3/" in request.headers["Authorization"]:
            return Answer(200, {}, b"x")
        together.wait()
        return fault(400, "AuthorizationHeaderMalformed", extra="<Region>eu-west-1</Region>")

    with faulty_server(rule) as server, closing(server.open()) as store, ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: store.get("one", limit=1), range(4))) == [b"x"] * 4


@pytest.mark.parametrize("encoding", ["foo", "hex", "shift_jis", "utf-32"])
def test_xml_in_an_encoding_that_nobody_knows_is_no_xml(encoding: str) -> None:
    page = f'<?xml version="1.0" encoding="{encoding}"?><ListBucketResult/>'.encode()
    with faulty_server(lambda _: Answer(200, {}, page)) as server, pytest.raises(StorageUnavailable):
        list(server.open().list("one"))
    error = f'<?xml version="1.0" encoding="{encoding}"?><Error><Code>AccessDenied</Code></Error>'.encode()
    with faulty_server(lambda _: Answer(403, {}, error)) as server, pytest.raises(NotAuthorized):
        server.open().get("one", limit=1)


@pytest.mark.parametrize("time", ["Mon, 30 Nov 99999999999 08:00:00 GMT", "never", ""])
def test_a_time_that_is_none_matters_only_to_those_who_ask_for_it(time: str) -> None:
    with faulty_server(lambda _: Answer(200, {"Last-Modified": time}, b"x")) as server:
        store = server.open()
        assert store.get("one", limit=1) == b"x"
        with pytest.raises(StorageUnavailable):
            store.stat("one")


@pytest.mark.parametrize(
    "time", ["Mon, 30 Nov 2026 08:00:00 GMT", " 2026-11-30T08:00:00Z ", "2026-11-30T08:00:00.123Z"]
)
def test_times_are_read_in_either_form(time: str) -> None:
    item = f"<Contents><Key>root/one</Key><Size>1</Size><LastModified>{time}</LastModified></Contents>"
    page = f"<ListBucketResult>{item}</ListBucketResult>".encode()

    def rule(request: Request) -> Answer:
        return Answer(200, {"Last-Modified": time}, page if "list-type" in request.path else b"x")

    with faulty_server(rule) as server:
        store = server.open()
        assert int(store.stat("one").modified) == 1796025600
        assert [int(found.modified) for found in store.list("one")] == [1796025600]


def test_a_refusal_shows_no_text_of_the_servers() -> None:
    secret = "https://x/?X-Amz-Signature=SECRET"
    with faulty_server(lambda _: fault(403, secret)) as server, pytest.raises(NotAuthorized) as caught:
        server.open().get("one", limit=1)
    assert "X-Amz-Signature=" not in repr(caught.value.__cause__)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>sign in</html>",
        b"<ListBucketResult>",
        b"<Other/>",
        b"<ListBucketResult><Contents><Key>root/one</Key><Size>x</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>root/one</Key></Contents></ListBucketResult>",
    ],
)
def test_what_is_no_listing_is_unavailable(body: bytes) -> None:
    with faulty_server(lambda _: Answer(200, {}, body)) as server, pytest.raises(StorageUnavailable):
        list(server.open().list("one"))


@pytest.mark.parametrize("body", [b"<Error><Code>SlowDown</Code></Error>", b"not XML"])
@pytest.mark.parametrize("sdk", [True, False])
def test_a_put_that_fails_after_its_status_was_sent_is_unavailable(body: bytes, *, sdk: bool) -> None:
    with faulty_server(lambda _: Answer(200, {}, body)) as server:
        store = S3Store(server.place(), S3Options(S3Credentials("AKID", "s"), sdk=sdk))
        with closing(store), pytest.raises(StorageUnavailable):
            store.put_if_absent("one", b"x")


@pytest.mark.parametrize("encoded", [True, False])
def test_names_in_a_listing_are_read_as_the_server_writes_them(encoded: bool) -> None:
    name, more = ("root/one%2Etwo", "<EncodingType>url</EncodingType>") if encoded else ("root/one.two", "")
    item = f"<Contents><Key>{name}</Key><Size>3</Size><LastModified>2026-11-30T08:00:00.000Z</LastModified></Contents>"
    body = f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{more}{item}</ListBucketResult>'
    with faulty_server(lambda _: Answer(200, {}, body.encode())) as server:
        (found,) = server.open().list("one")
    assert (found.name, found.size, found.modified) == ("one.two", 3, 1796025600.0)
