"""OSS alone: where a bucket is, whose keys, which SDK, and what the test server refuses as the service does."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import oss2
import pytest
from alibabacloud_credentials.utils import auth_util

from datasync.errors import NotAuthorized, UsageError
from datasync.storage.http import HttpOptions
from datasync.storage.location import open_store, parse_url
from datasync.storage.oss import endpoint, open_oss
from datasync.storage.oss.credentials import oss_keys
from datasync.storage.sdk.credentials import Keys
from datasync.storage.sdk.session import SdkSession
from tests.support.object_server import Account
from tests.support.oss_server import ACCESS_KEY, REGION, SECRET_KEY, OssServer
from tests.support.stores import Running

VARIABLES = (
    "OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN", "ALIBABA_CLOUD_ACCESS_KEY_ID",
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN", "ALIBABA_CLOUD_CREDENTIALS_URI",
    "ALIBABA_CLOUD_ECS_METADATA", "ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_PROFILE",
)  # fmt: skip


@pytest.fixture(params=["oss-oss2", "oss-v2"])
def server(request: pytest.FixtureRequest, running: Running) -> Iterator[OssServer]:
    found = running.server(request.param)
    assert isinstance(found, OssServer)
    found.make_bucket("theone")
    yield found
    found.state.buckets.pop("theone")
    found.state.regions.clear()


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")


def session_of(server: OssServer) -> oss2.Session:
    session = oss2.Session()
    session.session = SdkSession(HttpOptions())  # which knows that .localhost is here
    return session


# where


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("oss://bucket/p", "needs the bucket's region"),
        ("oss://bucket/p?region=oss-cn-beijing", "region=cn-beijing"),
        ("oss://bucket/p?region=cn-beijing&endpoint=https://oss-cn-shanghai.aliyuncs.com", "of region cn-shanghai"),
        ("oss://Bucket/p?region=cn-beijing", "3 to 63 of a-z"),
        ("oss://my_bucket/p?region=cn-beijing", "3 to 63 of a-z"),
        ("oss://ab/p?region=cn-beijing", "3 to 63 of a-z"),
        ("oss://bucket-/p?region=cn-beijing", "3 to 63 of a-z"),
        ("oss://bucket/p?region=cn-beijing&client=v3", "client must be v2 or oss2"),
        ("oss://bucket/p?region=cn-beijing&storage_class=Archive&endpoint=http://h.localhost:1", "must be restored"),
    ],
)
def test_what_can_not_work_is_said_before_any_request(url: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("asked the network"))
    with pytest.raises(UsageError, match=word):
        open_store(url)


def test_the_region_is_read_off_the_endpoint() -> None:
    for host in ("oss-cn-hangzhou.aliyuncs.com", "oss-cn-hangzhou-internal.aliyuncs.com"):
        assert endpoint.region_of(parse_url(f"oss://bucket?endpoint=https://{host}")) == "cn-hangzhou"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [(True, "https://oss-cn-beijing-internal.aliyuncs.com"), (False, "https://oss-cn-beijing.aliyuncs.com")],
)
def test_the_internal_endpoint_is_taken_when_it_answers(
    answers: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def reachable(host: str) -> bool:
        asked.append(host)
        return answers

    monkeypatch.setattr(endpoint, "reachable", reachable)
    assert endpoint.endpoint_of(parse_url("oss://bucket?region=cn-beijing")) == expected
    assert asked == ["oss-cn-beijing-internal.aliyuncs.com"]
    given = "https://oss-cn-beijing.aliyuncs.com"
    assert endpoint.endpoint_of(parse_url(f"oss://bucket?region=cn-beijing&endpoint={given}")) == given
    assert len(asked) == 1


def test_whether_a_host_answers_is_asked_once() -> None:
    endpoint.reachable.cache_clear()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.listen()
        assert endpoint.reachable("127.0.0.1", port)
    assert endpoint.reachable("127.0.0.1", port)  # gone by now, but known
    endpoint.reachable.cache_clear()
    assert not endpoint.reachable("127.0.0.1", port)


def test_a_bucket_of_another_region_is_told_where_it_is(server: OssServer) -> None:
    server.state.regions["theone"] = "cn-shanghai"
    store = server.open("theone")
    with pytest.raises(UsageError, match=r"the bucket is at oss-cn-shanghai\.aliyuncs\.com; correct region="):
        store.put_if_absent("one", b"x")
    with pytest.raises(UsageError, match=r"oss-cn-shanghai\.aliyuncs\.com"):
        store.stat("one")  # told in a header: an answer to HEAD has no body


def test_an_endpoint_of_another_region_is_told(server: OssServer) -> None:
    url = f"oss://theone?endpoint=http://oss-cn-shanghai.localhost:{server.port}&client={server.client}"
    with pytest.raises(UsageError, match=r"the bucket is at oss-cn-beijing\.aliyuncs\.com"):
        open_oss(parse_url(url), keys=lambda: server.keys).get("one", limit=1)


def test_a_signature_for_another_region_is_refused(server: OssServer) -> None:
    url = f"oss://theone?endpoint=http://oss-{REGION}.localhost:{server.port}&client={server.client}"
    store = open_oss(parse_url(url), keys=lambda: server.keys)
    server.state.region = "cn-other"
    server.state.regions["theone"] = REGION
    try:
        with pytest.raises(UsageError, match="region"):
            store.get("one", limit=1)
    finally:
        server.state.region = REGION


# which SDK


def test_the_newer_sdk_is_chosen_when_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    place = "oss://bucket?endpoint=http://oss-cn-beijing.localhost:1{}"
    assert type(open_oss(parse_url(place.format("")))._client).__name__ == "V2Client"
    installed = {"oss2"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in installed else None)
    assert type(open_oss(parse_url(place.format("")))._client).__name__ == "Oss2Client"
    with pytest.raises(UsageError, match=r"pip install 'gpu-datasync\[oss2v2\]'"):
        open_oss(parse_url(place.format("&client=v2")))


IMPORTS = """
import sys
from datasync.storage.location import open_store
open_store(sys.argv[1])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("oss://bucket?endpoint=http://oss-a.localhost:1&client=oss2", "oss2"),
        ("oss://bucket?endpoint=http://oss-a.localhost:1&client=v2", "alibabacloud_oss_v2"),
        ("cos://bucket-1250000000?endpoint=http://cos.a.localhost:1", "qcloud_cos"),
        ("memory://here", ""),
    ],
)
def test_a_driver_imports_no_other_sdk(url: str, own: str) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS, url], capture_output=True, text=True, check=True)
    sdks = {
        "oss2",
        "alibabacloud_oss_v2",
        "qcloud_cos",
        "botocore",
        "boto3",
        "alibabacloud_credentials",
        "tencentcloud",
    }
    sdks |= {"google", "azure", "fsspec"}
    assert set(done.stdout.split()) & sdks == ({own} if own else set())


# whose keys


@pytest.mark.usefixtures("no_keys")
def test_variables_are_read_for_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = oss_keys()
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "A1")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "B1")
    monkeypatch.setenv("ALIBABA_CLOUD_SECURITY_TOKEN", "C1")
    assert keys() == Keys("A1", "B1", "C1")
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", "A2")
    assert keys() == Keys("A1", "B1", "C1")  # half a pair is none
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "B2")
    assert keys() == Keys("A2", "B2", "")
    assert "B2" not in repr(keys())


@pytest.mark.usefixtures("no_keys")
def test_without_any_keys_it_is_said_what_to_set(server: OssServer) -> None:
    store = open_oss(parse_url(server.url("theone")))
    before = len(server.state.requests)
    with pytest.raises(NotAuthorized, match="set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET"):
        store.get("one", limit=1)
    assert len(server.state.requests) == before


@pytest.mark.usefixtures("no_keys")
def test_the_vendor_s_chain_renews_what_expires(server: OssServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real alibabacloud-credentials against a credentials URI whose keys last too short to be used twice."""
    given = list[Keys]()

    class Source(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = len(given)
            keys = Keys(f"STS.{number}", f"secret-{number}", f"token-{number}")
            given.append(keys)
            server.state.accounts[keys.access_key] = Account(keys.secret_key, keys.token, time.time() + 60)
            expires = datetime.fromtimestamp(time.time() + 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            names = {"Code": "Success", "AccessKeyId": keys.access_key, "AccessKeySecret": keys.secret_key}
            body = json.dumps({**names, "SecurityToken": keys.token, "Expiration": expires}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Source) as source:
        threading.Thread(target=source.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{source.server_address[1]}/keys"
        monkeypatch.setattr(auth_util, "environment_credentials_uri", uri)  # read from the variable at import
        store = open_oss(parse_url(server.url("theone")))
        for number in range(3):
            store.put_if_absent(f"o/{number}", b"x")
        source.shutdown()
    assert len(given) >= 2
    assert len(list(server.open("theone").list("o/"))) == 3


# what the test server holds to


def test_the_older_signature_is_checked_too(server: OssServer) -> None:
    bucket = oss2.Bucket(
        oss2.Auth(ACCESS_KEY, SECRET_KEY), server.endpoint, "theone", session=session_of(server), connect_timeout=5
    )
    bucket.put_object("a b/ü", b"hello", headers={"x-oss-forbid-overwrite": "true"})
    with pytest.raises(oss2.exceptions.ServerError) as caught:
        bucket.put_object("a b/ü", b"again", headers={"x-oss-forbid-overwrite": "true"})
    assert (caught.value.status, caught.value.code) == (409, "FileAlreadyExists")
    assert bucket.get_object("a b/ü").read() == b"hello"
    assert [item.key for item in bucket.list_objects_v2("a").object_list] == ["a b/ü"]
    assert bucket.get_bucket_versioning().status is None
    wrong = oss2.Bucket(oss2.Auth(ACCESS_KEY, "wrong"), server.endpoint, "theone", session=session_of(server))
    with pytest.raises(oss2.exceptions.SignatureDoesNotMatch):
        wrong.get_object("a b/ü")
    signed = bucket.sign_url("GET", "a b/ü", 60, slash_safe=True)
    with SdkSession(HttpOptions()) as session:
        assert session.get(signed).content == b"hello"
        assert session.get(signed.replace("Signature=", "Signature=A")).status_code == 403
    assert bucket.get_object("a b/ü").client_crc is not None  # the SDK compared the server's CRC-64 with its own


def test_the_sdk_s_own_checksum_agrees_with_the_server_s(server: OssServer) -> None:
    bucket = oss2.Bucket(
        oss2.AuthV4(ACCESS_KEY, SECRET_KEY), server.endpoint, "theone", session=session_of(server), region=REGION
    )
    answer = bucket.put_object("sum", b"123456789")
    assert answer.crc == 0x995DC9BBDF1939FA  # the check value of CRC-64/XZ


def test_path_style_is_refused(server: OssServer) -> None:
    bucket = oss2.Bucket(
        oss2.AuthV4(ACCESS_KEY, SECRET_KEY), server.endpoint, "theone",
        session=session_of(server), region=REGION, is_path_style=True,
    )  # fmt: skip
    with pytest.raises(oss2.exceptions.ServerError) as caught:
        bucket.put_object("one", b"x")
    assert caught.value.code == "SecondLevelDomainForbidden"


def test_a_range_past_the_end_is_everything_unless_it_is_asked_for_by_the_standard(server: OssServer) -> None:
    bucket = oss2.Bucket(
        oss2.AuthV4(ACCESS_KEY, SECRET_KEY), server.endpoint, "theone", session=session_of(server), region=REGION
    )
    bucket.put_object("ten", b"0123456789")
    assert bucket.get_object("ten", (5, 20)).read() == b"0123456789"
    assert bucket.get_object("ten", (5, 20), headers={"x-oss-range-behavior": "standard"}).read() == b"56789"
    with pytest.raises(oss2.exceptions.ServerError) as caught:
        bucket.get_object("ten", (15, 20), headers={"x-oss-range-behavior": "standard"})
    assert caught.value.status == 416
