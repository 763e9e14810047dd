"""S3 credentials through botocore's own chain, against moto that checks signatures and policies: profiles, AssumeRole,
web identity, keys that a program gives; rotated and expired in the middle of a push.
"""

import json
import os
import shlex
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from datasync.errors import NotAuthorized
from datasync.storage.location import parse_url
from datasync.storage.protocol import ObjectStore
from datasync.storage.s3 import S3Store
from tests.support.fault_proxy import Proxy, fault_proxy
from tests.support.faulty_server import Answer, Request, faulty_server
from tests.support.machine import Machine, contents
from tests.support.servers import S3Server, free_ports, serve

FILES = 10_000  # what is pushed while the keys change
REGION = "us-east-1"
BUCKET = "guarded"
ROLE_POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
}


@dataclass
class Guarded:
    """A moto server that lets in whom IAM lets in."""

    endpoint: str
    admin: dict[str, str]

    def client(self, service: str) -> Any:
        keys = self.admin
        return botocore.session.Session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"],
        )

    def user(self, name: str) -> dict[str, str]:
        """Return a key of a new user that may use S3 and assume roles."""
        iam = self.client("iam")
        iam.create_user(UserName=name)
        policy = json.loads(json.dumps(ROLE_POLICY))
        policy["Statement"][0]["Action"] = ["s3:*", "sts:*"]
        iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=json.dumps(policy))
        key: dict[str, str] = iam.create_access_key(UserName=name)["AccessKey"]
        return key

    def url(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint}&region={REGION}&addressing=path"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serve("moto", command, port, extra={"INITIAL_NO_AUTH_ACTION_COUNT": "1000000"}):
        made = Guarded(f"http://127.0.0.1:{port}", {"AccessKeyId": "setup", "SecretAccessKey": "setup"})
        iam, s3 = made.client("iam"), made.client("s3")
        iam.create_user(UserName="admin")
        everything = json.dumps({**ROLE_POLICY, "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
        iam.put_user_policy(UserName="admin", PolicyName="all", PolicyDocument=everything)
        iam.create_role(RoleName="writer", AssumeRolePolicyDocument=json.dumps(TRUST))
        iam.put_role_policy(RoleName="writer", PolicyName="s3", PolicyDocument=json.dumps(ROLE_POLICY))
        s3.create_bucket(Bucket=BUCKET)
        made.admin = iam.create_access_key(UserName="admin")["AccessKey"]
        guard = urllib.request.Request(f"{made.endpoint}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
        with urllib.request.urlopen(guard, timeout=30):
            yield made


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The vendor's two files, empty, and no other source of credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def works(store: ObjectStore) -> None:
    with closing(store):
        store.put_if_absent("one", b"x")
        assert store.get("one", limit=1) == b"x"


def as_profile(name: str, key: dict[str, str]) -> str:
    secret = key["SecretAccessKey"]
    return f"[{name}]\naws_access_key_id = {key['AccessKeyId']}\naws_secret_access_key = {secret}\n"


def test_the_server_of_these_tests_refuses_strangers(guarded: Guarded, files: Path, fresh_bucket: str) -> None:
    (files / "credentials").write_text(as_profile("default", {"AccessKeyId": "AKIDX", "SecretAccessKey": "x"}))
    with closing(S3Store(parse_url(guarded.url(fresh_bucket)))) as store, pytest.raises(NotAuthorized, match="unknown"):
        store.put_if_absent("one", b"x")


def test_a_profile_lets_in(guarded: Guarded, files: Path, fresh_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "credentials").write_text(as_profile("gpu", guarded.user(fresh_bucket)))
    monkeypatch.setenv("AWS_PROFILE", "gpu")
    works(S3Store(parse_url(guarded.url(fresh_bucket))))


def test_a_role_is_assumed(guarded: Guarded, files: Path, fresh_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "credentials").write_text(as_profile("base", guarded.user(fresh_bucket)))
    role = "role_arn = arn:aws:iam::123456789012:role/writer\nsource_profile = base"
    (files / "config").write_text(f"[profile node]\n{role}\nregion = {REGION}\n")
    monkeypatch.setenv("AWS_PROFILE", "node")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", guarded.endpoint)
    works(S3Store(parse_url(guarded.url(fresh_bucket))))


def test_a_web_identity_is_exchanged_for_a_role(moto: S3Server, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pods and CI jobs have: a token in a file. The exchange is unsigned: it goes to a server without guards."""
    (files / "token").write_text("a.web.token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(files / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/writer")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
    with faulty_server(lambda _: Answer()) as server:
        S3Store(server.place()).put_if_absent("one", b"x")
    (request,) = server.requests
    assert "Credential=ASIA" in request.headers["Authorization"]
    assert request.headers["X-Amz-Security-Token"]


class Program:
    """A credential_process: prints the keys of a file, valid for so short that the SDK asks for each request."""

    def __init__(self, files: Path) -> None:
        self.path = files / "keys.json"
        code = f"print(open({str(self.path)!r}).read())"
        (files / "config").write_text(f"[default]\ncredential_process = {shlex.join([sys.executable, '-c', code])}\n")

    def give(self, key: dict[str, str]) -> None:
        end = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
        about = {"Version": 1, "Expiration": end, **{name: key[name] for name in ("AccessKeyId", "SecretAccessKey")}}
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(about))
        fresh.replace(self.path)


@pytest.fixture
def proxy(guarded: Guarded) -> Iterator[Proxy]:
    with fault_proxy(guarded.endpoint, "s3") as made:
        yield made


def small_files(root: Path) -> Path:
    root.mkdir()
    for number in range(FILES):
        (root / f"{number:05}").write_bytes(os.urandom(500))
    return root


def machine_for(guarded: Guarded, proxy: Proxy, files: Path, prefix: str) -> Machine:
    kept = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return Machine.make(files / "owner", proxy.through(guarded.url(prefix)), kept)


def test_keys_rotated_in_the_middle_of_ten_thousand_files_fail_nothing(
    guarded: Guarded, proxy: Proxy, files: Path, fresh_bucket: str
) -> None:
    program, iam = Program(files), guarded.client("iam")
    old, new = guarded.user(f"{fresh_bucket}-old"), guarded.user(f"{fresh_bucket}-new")
    program.give(old)
    machine, source = machine_for(guarded, proxy, files, fresh_bucket), small_files(files / "source")
    machine.must("init")
    writes: list[str] = []

    def rotate(request: Request) -> bool:
        if request.method == "PUT":
            writes.append(request.headers["Authorization"])
            if len(writes) == 4:  # after two packs: keyset, trust root and these are there
                program.give(new)
        return False

    proxy.arm(lambda *_: pytest.fail("nothing is spoilt"), rotate)
    machine.must("push", source, "--dataset", "data")
    iam.delete_access_key(UserName=f"{fresh_bucket}-old", AccessKeyId=old["AccessKeyId"])
    used = {
        key["AccessKeyId"]
        for key in (old, new)
        for text in writes
        if f"/{key['AccessKeyId']}/" in text.replace("=", "/")
    }
    assert used == {old["AccessKeyId"], new["AccessKeyId"]}
    machine.must("verify", "--read-data")


def test_expired_keys_stop_at_once_with_one_message_and_the_same_line_resumes(
    guarded: Guarded, proxy: Proxy, files: Path, fresh_bucket: str
) -> None:
    program, iam = Program(files), guarded.client("iam")
    key = guarded.user(fresh_bucket)
    program.give(key)
    machine, source = machine_for(guarded, proxy, files, fresh_bucket), small_files(files / "source")
    machine.must("init")
    writes, gone = [0], [0.0]

    def expire(request: Request) -> bool:
        writes[0] += request.method == "PUT"
        if writes[0] == 4 and not gone[0]:
            iam.delete_access_key(UserName=fresh_bucket, AccessKeyId=key["AccessKeyId"])
            gone[0] = time.monotonic()
        return False

    proxy.arm(lambda *_: pytest.fail("nothing is spoilt"), expire)
    ran = machine.run("push", source, "--dataset", "data")
    after = [request for request in proxy.requests if request.method == "PUT"][4:]
    assert ran.code == 6, ran
    assert len(ran.err.splitlines()) == 1
    assert "access key" in ran.err
    assert len(after) <= 8  # what was on the way; nothing is tried again
    proxy.heal()
    program.give(iam.create_access_key(UserName=fresh_bucket)["AccessKey"])
    machine.must("push", source, "--dataset", "data")
    node = machine.sibling(files / "node", DATASYNC_CACHE=str(files / "cache"))
    assert contents(Path(node.must("warm", "data").out.strip())) == contents(source)
