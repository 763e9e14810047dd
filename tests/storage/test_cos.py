"""COS alone: the bucket's name and region, whose keys, and what the test server refuses as the service does."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from qcloud_cos import CosConfig, CosS3Client, CosServiceError

from datasync.errors import NotAuthorized, NotFound, StorageUnavailable, UsageError
from datasync.storage.cos import open_cos
from datasync.storage.cos.credentials import METADATA_URL, RENEW_SECONDS, MachineRole, cos_keys
from datasync.storage.http import HttpOptions
from datasync.storage.location import open_store, parse_url
from datasync.storage.sdk.credentials import Keys
from datasync.storage.sdk.session import SdkSession
from tests.support.cos_server import APPID, REGION, SECRET_ID, SECRET_KEY, CosServer
from tests.support.stores import Running

BUCKET = f"theone-{APPID}"


@pytest.fixture
def server(running: Running) -> Iterator[CosServer]:
    found = running.server("cos")
    assert isinstance(found, CosServer)
    found.make_bucket("theone")
    yield found
    found.state.buckets.pop(BUCKET)


def client_of(server: CosServer, *, secret: str = SECRET_KEY, endpoint: str = "") -> CosS3Client:
    config = CosConfig(
        Region=REGION, SecretId=SECRET_ID, SecretKey=secret, Scheme="http",
        Endpoint=endpoint or f"cos.{REGION}.localhost:{server.port}",
    )  # fmt: skip
    return CosS3Client(config, retry=0, session=SdkSession(HttpOptions()))


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("cos://bucket/p?region=ap-beijing", "ends with the account's APPID, as in cos://bucket-1250000000"),
        ("cos://My-Bucket-1250000000?region=ap-beijing", "lower case"),
        ("cos://bucket-1250000000/p", "needs the bucket's region"),
        (
            "cos://bucket-1250000000?region=ap-beijing&endpoint=https://cos.ap-guangzhou.myqcloud.com",
            "of region ap-guangzhou",
        ),
        ("cos://bucket-1250000000?region=ap-beijing&storage_class=DEEP_ARCHIVE", "must be restored"),
    ],
)
def test_what_can_not_work_is_said_before_any_request(url: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("asked the network"))
    with pytest.raises(UsageError, match=word):
        open_store(url)


def test_a_bucket_of_another_region_does_not_exist_in_this_one(server: CosServer) -> None:
    url = f"cos://{BUCKET}?endpoint=http://cos.ap-guangzhou.localhost:{server.port}"
    with pytest.raises(NotFound, match=f"bucket {BUCKET} does not exist; create it with your provider, or correct"):
        open_cos(parse_url(url), keys=lambda: server.keys).get("one", limit=1)


# whose keys


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for kind in ("COS", "TENCENTCLOUD"):
        for name in ("SECRET_ID", "SECRET_KEY", "SESSION_TOKEN", "TOKEN"):
            monkeypatch.delenv(f"{kind}_{name}", raising=False)
    monkeypatch.delenv("TKE_WEB_IDENTITY_TOKEN_FILE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_variables_are_read_for_every_request(no_keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = cos_keys()
    (no_keys / ".tencentcloud").mkdir()
    (no_keys / ".tencentcloud/credentials").write_text("[default]\nsecret_id = A0\nsecret_key = B0\n")
    assert keys() == Keys("A0", "B0")
    monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", "A1")
    monkeypatch.setenv("TENCENTCLOUD_SECRET_KEY", "B1")
    assert keys() == Keys("A1", "B1")
    monkeypatch.setenv("COS_SECRET_ID", "A2")
    monkeypatch.setenv("COS_SECRET_KEY", "B2")
    monkeypatch.setenv("COS_SESSION_TOKEN", "C2")
    assert keys() == Keys("A2", "B2", "C2")


class Metadata:
    """The metadata service of a machine, and a clock."""

    def __init__(self) -> None:
        self.now, self.lasts, self.number, self.broken = 1_000_000.0, 7_200.0, 0, False

    def fetch(self, url: str) -> bytes:
        if self.broken:
            raise OSError("no answer")
        if url == METADATA_URL:
            return b"the-role"
        assert url == f"{METADATA_URL}the-role"
        self.number += 1
        keys = {"TmpSecretId": f"A{self.number}", "TmpSecretKey": "B", "Token": "C"}
        return json.dumps({**keys, "ExpiredTime": self.now + self.lasts, "Code": "Success"}).encode()

    def role(self) -> MachineRole:
        return MachineRole(self.fetch, lambda: self.now)


def test_the_machine_s_role_is_renewed_before_it_ends() -> None:
    metadata = Metadata()
    role = metadata.role()
    assert [role.keys().access_key for _ in range(3)] == ["A1"] * 3
    metadata.now += metadata.lasts - RENEW_SECONDS + 1
    assert role.keys() == Keys("A2", "B", "C")


def test_keys_that_still_hold_are_used_while_the_metadata_service_is_away() -> None:
    metadata = Metadata()
    role = metadata.role()
    role.keys()
    metadata.broken = True
    metadata.now += metadata.lasts - 1
    assert role.keys().access_key == "A1"
    metadata.now += 2
    with pytest.raises(StorageUnavailable):
        role.keys()


@pytest.mark.parametrize("answer", [b"not json", b"{}", b"[]", b"\xff"])
def test_without_any_keys_it_is_said_what_to_set(answer: bytes) -> None:
    role = MachineRole(lambda _: answer)
    with pytest.raises(NotAuthorized, match="set COS_SECRET_ID and COS_SECRET_KEY"):
        role.keys()


# what the test server holds to


def test_the_sdk_s_own_calls_are_understood(server: CosServer) -> None:
    client = client_of(server)
    answer = client.put_object(BUCKET, b"123456789", "a b/ü", EnableMD5=True)
    assert answer["x-cos-hash-crc64ecma"] == str(0x995DC9BBDF1939FA)  # the check value of CRC-64/XZ
    assert client.get_object(BUCKET, "a b/ü", Range="bytes=2-4")["Body"].get_raw_stream().read() == b"345"
    assert [item["Key"] for item in client.list_objects(BUCKET, "a")["Contents"]] == ["a b/ü"]
    client.delete_object(BUCKET, "a b/ü")
    with pytest.raises(CosServiceError) as caught:
        client.get_object(BUCKET, "a b/ü")
    assert (caught.value.get_status_code(), caught.value.get_error_code()) == (404, "NoSuchKey")


def test_a_wrong_secret_does_not_sign(server: CosServer) -> None:
    with pytest.raises(CosServiceError) as caught:
        client_of(server, secret="wrong").put_object(BUCKET, b"x", "one")
    assert caught.value.get_error_code() == "SignatureDoesNotMatch"


def test_path_style_is_refused(server: CosServer) -> None:
    with SdkSession(HttpOptions()) as session:
        answer = session.get(f"{server.endpoint}/{BUCKET}/one")
    assert answer.status_code == 403
    assert b"PathStyleDomainForbidden" in answer.content


def test_a_signed_header_can_not_be_changed_on_the_way(server: CosServer) -> None:
    request = server.open("theone").presign_put("one", 60)
    headers = {name: "false" if "overwrite" in name else value for name, value in request.headers}
    with SdkSession(HttpOptions()) as session:
        assert session.put(request.url, data=b"x", headers=headers).status_code == 403
        assert session.put(request.url, data=b"x", headers=dict(request.headers)).status_code == 200
