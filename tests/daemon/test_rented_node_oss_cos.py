"""A job on a rented node whose data lies on OSS or COS: the owner's daemon lends the key and a session of a role, both
processes of their own; the object server holds the session to its policy.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from datasync.config import Flags, load_config
from datasync.errors import NotAuthorized
from datasync.service.borrow import Lender
from tests.policy.clouds import Cloud, cloud_of
from tests.support.daemons import configure, daemon, make_certificates, mirror_table, wait_until
from tests.support.machine import Machine, contents
from tests.support.servers import free_ports
from tests.support.stores import Running


@pytest.fixture(params=["oss-v2", "cos"])
def cloud(request: pytest.FixtureRequest, running: Running, fresh_bucket: str) -> Iterator[Cloud]:
    with cloud_of(running, request.param, fresh_bucket) as found:
        yield found


@pytest.fixture
def node(cloud: Cloud, scratch: Path, source: Path) -> Iterator[Machine]:
    """A node with a token and nothing else, while the owner's daemon runs."""
    files, (port,) = make_certificates(scratch / "tls"), free_ports(1)
    owner = Machine.make(scratch / "owner", cloud.server.url(cloud.bucket, "ds"), cloud.settings)
    owner.must("init")
    found = Machine.make(scratch / "node", "", {"DATASYNC_TOKEN_FILE": str(scratch / "token")})
    shutil.copy(files.ca, found.home / "ca.pem")
    configure(found, f'[control]\nurl = "https://localhost:{port}"\nca = "{found.home}/ca.pem"\nnode = "n1"\n')
    settings = f"""
        [daemon]
        socket = "{owner.home}/d.sock"
        listen = "tcp://127.0.0.1:{port}"
        certificate = "{files.certificate}"
        key = "{files.key}"
        hosts = ["localhost"]
        {mirror_table(source)}
    """
    with daemon(owner, settings) as running:
        wait_until("it is pushed", lambda: running.status()["mirrors"] and running.mirror()["seq"])
        made = owner.must("token", "create", "--node", "n1", "--dataset", "data", "--ttl", "12h", "--json").result
        (scratch / "token").write_text(made["token"])
        yield found


def test_a_node_warms_with_what_it_was_lent_and_can_do_no_more(cloud: Cloud, node: Machine, source: Path) -> None:
    warmed = node.spawn("warm", "data", "--json")
    assert warmed.code == 0, warmed
    assert contents(Path(warmed.result["path"])) == contents(source)
    assert not node.identity.exists()

    config = load_config(Flags(), node.environment())
    lender = Lender(config)
    with closing(lender.session(config, "data", lambda _: None)) as session:
        with pytest.raises(NotAuthorized):
            session.store.put_if_absent("d/x", b"x")
        with pytest.raises(NotAuthorized):
            session.store.delete("datasync.json")
        with pytest.raises(NotAuthorized):
            list(session.store.list("d/"))
    keys = cloud.server.environment().values()
    left = [path.read_bytes() for path in node.home.rglob("*") if path.is_file() and "objects" not in path.parts]
    assert not any(key.encode() in data for key in keys for data in left)
