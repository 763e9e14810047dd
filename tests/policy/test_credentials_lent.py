"""Sessions of OSS and COS in use: lent to a node by a control side, and issued for a machine without any memory."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from datasync.config import Flags, load_config
from datasync.errors import NotAuthorized
from datasync.service import release
from datasync.service.borrow import BorrowedSession, borrow
from datasync.service.client import Api
from datasync.service.principal import Principal
from datasync.service.session import Session
from tests.policy.clouds import HOUR, Cloud, cloud_of
from tests.support.machine import Machine
from tests.support.stores import Running


@pytest.fixture(params=["oss-oss2", "oss-v2", "cos"])
def cloud(request: pytest.FixtureRequest, running: Running, fresh_bucket: str) -> Iterator[Cloud]:
    with cloud_of(running, request.param, fresh_bucket) as found:
        yield found


class Control(Api):
    """A control side whose network is a function call."""

    def __init__(self, session: Session) -> None:
        super().__init__("control", Path("/nowhere"))
        self.session = session

    def call(self, method: str, path: str, body: Any = None) -> Any:
        asked = release.Asked(body["dataset"], body["recipient"], body["node"])
        admin = Principal("root", "local", "socket", admin=True)
        return msgspec.to_builtins(release.release(self.session, admin, asked))


def test_a_node_is_lent_a_credential_for_the_dataset_alone(cloud: Cloud, tmp_path: Path) -> None:
    url = cloud.server.url(cloud.bucket, "lent")
    owner = Machine.make(tmp_path / "owner", url, cloud.settings)
    cloud.roles[cloud.role] = replace(cloud.roles[cloud.role], longest=2 * HOUR)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(b"a picture " * 400)
    owner.must("init")
    for name in ("data", "other"):
        owner.must("push", tmp_path / "tree", "--dataset", name)

    with mock.patch.dict("os.environ", owner.environment(), clear=True):
        lent = borrow(Control(Session(load_config(Flags()))), "data", "n1")
    assert lent.answer.until <= (time.time() + 2 * HOUR + 30) * 1000, "the key ends with the credential"
    assert all(name.startswith(f"{cloud.scheme.upper()}_") for name in lent.answer.storage)

    node = Machine.make(tmp_path / "node", url)
    with mock.patch.dict("os.environ", node.environment(), clear=True):
        session = BorrowedSession(load_config(Flags()), lent, lambda text: None)
        with closing(session):
            dataset = session.repository.open("data")
            newest = dataset.history.newest()
            assert newest is not None
            assert newest.body.seq == 1
            for call in (
                lambda: session.store.put_if_absent("probe/x", b"x"),
                session.repository.dataset_ids,
                lambda: session.repository.open("other"),
            ):
                with pytest.raises(NotAuthorized):
                    call()


def test_a_credential_opens_its_dataset_on_a_fresh_machine_that_was_told_its_id(cloud: Cloud, tmp_path: Path) -> None:
    url = cloud.server.url(cloud.bucket, "told")
    owner = Machine.make(tmp_path / "owner", url, cloud.settings)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(b"a picture " * 400)
    owner.must("init")
    for name in ("data", "other"):
        owner.must("push", tmp_path / "tree", "--dataset", name)
    issued = owner.must("policy", "credential", "data", "--action", "PushSnapshot").out
    variables = dict(line.split("=", 1) for line in issued.splitlines())
    trust = {item["dataset"]: item["trust"] for item in owner.must("status", "--json").result["datasets"]}

    fresh = owner.sibling(tmp_path / "fresh", **variables)
    assert fresh.run("pull", "data", tmp_path / "out").code == 6, "it may not list what else is there"
    told = replace(fresh, extra={**fresh.extra, "DATASYNC_TRUST": trust["data"]})
    told.must("pull", "data", tmp_path / "out")
    assert (tmp_path / "out/file").read_bytes() == b"a picture " * 400
    (tmp_path / "tree/more").write_bytes(b"another")
    told.must("push", tmp_path / "tree", "--dataset", "data", "--source-change")
    assert told.run("pull", "other", tmp_path / "out2").code == 6
