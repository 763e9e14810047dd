"""The whole path as a job on a rented node lives it: an owner's daemon with the keys, an S3 server that checks
signatures and sessions, and a node that has a token and nothing else. Each is a process with a home of its own.
"""

import json
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from datasync.config import Flags, load_config
from datasync.errors import NotAuthorized
from datasync.service.borrow import Lender
from tests.support.daemons import Daemon, configure, daemon, make_certificates, mirror_table, wait_until
from tests.support.machine import Machine, contents
from tests.support.servers import REGION, S3Server, free_ports, moto

TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
}
READ = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}],
}
ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["s3:*", "sts:*"], "Resource": "*"}]}
TRAIN = 'cat "$DATASYNC_DATASET_DATA"/d0/f0 && echo "$DATASYNC_SNAPSHOT_DATA"'


@dataclass(frozen=True)
class Scene:
    """The owner's daemon, and a node that knows the control side's address."""

    owner: Daemon
    node: Machine
    token: Path
    source: Path


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A server of this module alone: from now on it checks who asks."""
    with moto() as found:
        yield found


@pytest.fixture(scope="module")
def owner_keys(server: S3Server) -> dict[str, str]:
    """Make a bucket, a user who may do all, and a role that reads; then let the server check every request."""
    session = botocore.session.Session()
    session.set_credentials(server.access_key, server.secret_key)
    iam: Any = session.create_client("iam", region_name=REGION, endpoint_url=server.endpoint)
    iam.create_user(UserName="owner")
    iam.put_user_policy(UserName="owner", PolicyName="all", PolicyDocument=json.dumps(ALL))
    key = iam.create_access_key(UserName="owner")["AccessKey"]
    role = iam.create_role(RoleName="nodes", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]
    iam.put_role_policy(RoleName="nodes", PolicyName="read", PolicyDocument=json.dumps(READ))
    server.make_bucket("rented")
    request = urllib.request.Request(
        f"{server.endpoint}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"}, method="POST"
    )
    urllib.request.urlopen(request, timeout=10).close()
    return {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        "role": role["Arn"],
    }


@pytest.fixture
def scene(server: S3Server, owner_keys: dict[str, str], scratch: Path, source: Path) -> Iterator[Scene]:
    url, files, (port,) = server.url("rented", scratch.name), make_certificates(scratch / "tls"), free_ports(1)
    keys = {name: value for name, value in owner_keys.items() if name.startswith("AWS_")}
    machine = Machine.make(scratch / "owner", url, keys)
    machine.must("init")
    settings = f"""
        [policy]
        role = "{owner_keys["role"]}"
        sts_endpoint = "{server.endpoint}"
        [daemon]
        socket = "{machine.home}/d.sock"
        listen = "tcp://127.0.0.1:{port}"
        certificate = "{files.certificate}"
        key = "{files.key}"
        hosts = ["localhost"]
        {mirror_table(source)}
    """
    node = Machine.make(scratch / "node", "", {"DATASYNC_TOKEN_FILE": str(scratch / "token")})
    shutil.copy(files.ca, node.home / "ca.pem")
    configure(node, f'[control]\nurl = "https://localhost:{port}"\nca = "{node.home}/ca.pem"\nnode = "n1"\n')
    with daemon(machine, settings) as owner:
        wait_until("it is pushed", lambda: owner.status()["mirrors"] and owner.mirror()["seq"])
        made = machine.must("token", "create", "--node", "n1", "--dataset", "data", "--ttl", "1h", "--json").result
        (scratch / "token").write_text(made["token"])
        yield Scene(owner, node, scratch / "token", source)


def test_a_job_on_a_rented_node_from_the_token_to_the_purge(scene: Scene, scratch: Path) -> None:
    node, owner = scene.node, scene.owner
    assert not node.identity.exists()

    (planned,) = node.spawn("plan", "data", "--json").result["plans"]
    warmed = node.spawn("warm", "data", "--json")
    assert warmed.code == 0, warmed
    assert (planned["wanted"], planned["path"]) == (warmed.result["files"], warmed.result["path"])
    view = Path(warmed.result["path"])
    assert contents(view) == contents(scene.source)

    trained = node.spawn("run", "--data", "data", "--", "sh", "-c", TRAIN)
    assert trained.code == 0, trained
    assert trained.out.splitlines() == ["content 0", warmed.result["snapshot"]]

    assert node.spawn("warm", "other").code == node.spawn("plan", "other").code == 6
    job = node.start("run", "--data", "data", "--", "sleep", "600")
    wait_until("the job holds its lease", lambda: _leased(node), 60)

    token = scene.token.read_text().split("_")[1]
    owner.machine.must("token", "revoke", token)
    denied = node.spawn("warm", "data")
    assert (denied.code, "revoked" in denied.err) == (6, True), denied
    assert node.spawn("cache", "purge", "--yes").code == 11, "the running job keeps its view"

    job.terminate()
    assert job.wait(60) == 128 + 15
    purged = node.spawn("cache", "purge", "--yes", "--output", str(scratch / "receipt"))
    assert purged.code == 0, purged
    receipt = json.loads((scratch / "receipt").read_text())
    assert [item["dataset"] for item in receipt["removed"]] == ["data"]
    assert (receipt["kept"], receipt["objects_left"]) == ([], 0)
    assert not view.exists()

    told = [json.loads(line) for line in owner.machine.must("audit", "query", "--json").out.splitlines()]
    released = [item for item in told if item.get("action") == "key.release"]
    assert [item["outcome"] for item in released][:2] == ["intent", "success"]
    assert "denied" in [item["outcome"] for item in released], "the other dataset"


def _leased(node: Machine) -> bool:
    lines = [json.loads(line) for line in node.run("cache", "ls", "--json").out.splitlines()]
    return any(line["leases"] for line in lines if line["type"] == "view")


def test_nothing_long_lived_is_left_on_the_node(scene: Scene) -> None:
    node = scene.node
    assert node.spawn("warm", "data").code == 0
    keys = [value for name, value in scene.owner.machine.extra.items() if name.startswith("AWS_")]
    secret = scene.token.read_text().split("_", 2)[2]
    for path in node.home.rglob("*"):
        if path.is_file() and "views" not in path.parts and "objects" not in path.parts:
            data = path.read_bytes()
            assert not any(key.encode() in data for key in keys), path
            assert secret.encode() not in data, path
    assert node.run("status").code == 2, "it has no repository of its own"


def test_the_nodes_credential_reads_this_dataset_and_writes_nothing(scene: Scene, scratch: Path) -> None:
    """What the node is lent can not push, even by a client that obeys nothing."""
    environment = scene.node.environment()
    config = load_config(Flags(), environment)
    lender = Lender(config)
    session = lender.session(config, "data", lambda _: None)
    try:
        assert lender.lends
        dataset = session.repository.open("data")
        assert dataset.history.newest() is not None
        with pytest.raises(NotAuthorized):
            session.store.put_if_absent("probe/x", b"x")
        with pytest.raises(NotAuthorized):
            dataset.history.require_writer()
    finally:
        session.close()


def test_a_nodes_daemon_keeps_it_ready_with_lent_keys_and_jobs_ask_it(scene: Scene, scratch: Path) -> None:
    node = scene.node
    table = (node.home / ".config/datasync/config.toml").read_text()
    socket_path = node.home / "d.sock"
    settings = table + f'[[warm]]\ndataset = "data"\nevery = "500ms"\n[daemon]\nsocket = "{socket_path}"\n'
    with daemon(node, settings) as running:
        wait_until("it is ready", lambda: running.status()["warms"][0]["state"] == "ready", 30)
        (scene.source / "later").write_text("later")
        wait_until("the next one is ready", lambda: (running.status()["warms"][0]["seq"] or 0) >= 2)
        scene.owner.machine.must("key", "rotate", "data")
        (scene.source / "latest").write_text("in a new epoch: the node asks for its key")
        wait_until("the new epoch is ready", lambda: (running.status()["warms"][0]["seq"] or 0) >= 3, 60)
        job = Machine.make(scratch / "job", "", {"DATASYNC_DAEMON": str(socket_path)})
        done = job.spawn("run", "--data", "data", "--", "sh", "-c", 'cat "$DATASYNC_DATASET_DATA"/later')
        assert (done.code, done.out) == (0, "later"), done
        assert not list(job.home.rglob("identity"))
        assert job.spawn("warm", "other").code == 6, "the control side's word, through the daemon"


def test_a_control_side_that_is_not_it_is_refused(scene: Scene, scratch: Path) -> None:
    other = make_certificates(scratch / "other")
    shutil.copy(other.ca, scene.node.home / "ca.pem")
    refused = scene.node.spawn("warm", "data")
    assert refused.code == 5
    assert "certificate" in refused.err
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert scene.node.spawn("warm", "data", "--daemon", f"http://127.0.0.1:{port}").code == 5
