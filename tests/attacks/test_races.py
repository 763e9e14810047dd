"""Many writers at once: each commit gets a number of its own and follows the one before; nothing is lost."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from datasync.config import Flags, load_config
from datasync.repository.snapshots import Snapshot
from datasync.service import look
from datasync.service.session import Session
from datasync.storage.local import LocalStore
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created, ObjectStore
from tests.attacks.conftest import fill
from tests.support import stores
from tests.support.copies import names
from tests.support.machine import REPOSITORY_ROOT, Machine, tree
from tests.support.scripted import LostAnswers, Wrapped
from tests.support.servers import S3Server
from tests.support.stores import Running

WRITERS = 10
COMMITS = 10

WRITER = """
import sys, time
from pathlib import Path
import datasync
number, commits, start = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
source = Path.home() / "source"
source.mkdir()
with datasync.open() as repository:
    Path(f"{start}.ready{number}").touch()
    while not start.exists():
        time.sleep(0.005)
    for commit in range(commits):
        (source / f"{commit}").write_text(f"{number} {commit}")
        repository.push(source, dataset="data", message=f"{number}/{commit}", source_change=True)
"""


@contextmanager
def opened(machine: Machine) -> Iterator[Session]:
    with mock.patch.dict(os.environ, machine.environment(), clear=True):
        session = Session(load_config(Flags()))
        try:
            yield session
        finally:
            session.close()


def history(machine: Machine) -> list[Snapshot]:
    """Return all snapshots, newest first, verified."""
    with opened(machine) as session:
        return list(look.log(session.repository.open("data")))


def race(machine: Machine, folder: Path, writers: int, commits: int) -> None:
    """Let *writers* processes, each a machine of its own, commit at the same time."""
    with opened(machine) as session:
        session.repository.create_dataset("data")
    start, children = folder / "start", []
    for number in range(writers):
        home = machine.sibling(folder / f"writer{number}")
        command = [sys.executable, "-c", WRITER, str(number), str(commits), str(start)]
        environment = home.environment() | {"PYTHONPATH": str(REPOSITORY_ROOT)}
        children.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    while len(list(folder.glob("start.ready*"))) < writers and all(child.poll() is None for child in children):
        pass
    start.touch()
    for child in children:
        _, error = child.communicate(timeout=250)
        assert child.returncode == 0, error


def all_there(machine: Machine, writers: int, commits: int) -> None:
    """Check that no number and no commit is missing or double, and that history is one line."""
    found = history(machine)
    assert [item.body.seq for item in found] == list(range(writers * commits, 0, -1))
    messages = [item.body.message for item in found]
    assert sorted(messages) == sorted(f"{w}/{c}" for w in range(writers) for c in range(commits))
    for newer, older in pairwise(found):
        assert newer.body.previous == older.id
    for writer in range(writers):  # each writer's own commits come in its own order
        own = [int(m.partition("/")[2]) for m in reversed(messages) if m.startswith(f"{writer}/")]
        assert own == sorted(own)
    machine.must("verify", "--read-data")


def test_a_hundred_commits_race_on_a_local_directory(machine: Machine, tmp_path: Path) -> None:
    race(machine, tmp_path, WRITERS, COMMITS)
    all_there(machine, WRITERS, COMMITS)


# not on moto: it looks for the object and stores it in two steps without a lock, so rarely two racers both win
RACES = stores.names(stores.PUT_IF_ABSENT, stores.ONE_WINNER, stores.PROCESSES, stores.BUCKETS)


@pytest.mark.parametrize("kind", RACES)
def test_a_hundred_commits_race_on_a_server(kind: str, running: Running, tmp_path: Path) -> None:
    server = running.server(kind)
    bucket = f"race{os.urandom(6).hex()}"
    machine = Machine.make(tmp_path / "home", server.make_bucket(bucket), server.environment())
    machine.must("init")
    race(machine, tmp_path, WRITERS, COMMITS)
    all_there(machine, WRITERS, COMMITS)


class Between(Wrapped):
    """Runs *step* once, in the moment before the first put of a name that has *part*."""

    def __init__(self, store: ObjectStore, part: str, step: Callable[[], Any]) -> None:
        super().__init__(store)
        self._part = part
        self._step: Callable[[], Any] | None = step

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        if self._part in name and self._step is not None:
            step, self._step = self._step, None
            step()
        return self._store.put_if_absent(name, data)


@pytest.fixture(params=["local", "moto", "seaweedfs"])
def conditional(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Machine, ObjectStore]:
    if request.param == "local":
        machine = Machine.make(tmp_path / "home", str(tmp_path / "repository"))
        machine.must("init")
        return machine, LocalStore(machine.repository)
    server: S3Server = request.getfixturevalue(request.param)
    bucket = f"lost{os.urandom(6).hex()}"
    machine = Machine.make(tmp_path / "home", server.make_bucket(bucket), server.environment())
    machine.must("init")
    return machine, server.open(bucket)


def test_a_lost_race_is_signed_anew_on_top_of_the_winner(
    conditional: tuple[Machine, ObjectStore], source: Path, tmp_path: Path
) -> None:
    machine, store = conditional
    machine.must("push", source, "--dataset", "data")
    other, there = machine.clone(tmp_path / "other"), fill(tmp_path / "there", b"two")
    (source / "mine").write_bytes(b"mine")
    rival = Between(
        store, "/snapshots/", lambda: other.must("push", there, "--dataset", "data", "--source-change", "-m", "theirs")
    )
    machine.must("push", source, "--dataset", "data", "-m", "mine", store=rival)
    newest, middle, oldest = history(machine)
    assert [item.body.message for item in (newest, middle, oldest)] == ["mine", "theirs", ""]
    assert (newest.body.previous, middle.body.previous) == (middle.id, oldest.id)
    assert newest.body.created >= middle.body.created
    machine.must("verify", "--read-data")
    machine.sibling(tmp_path / "reader").must("pull", "data", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(source)


def test_a_lost_race_for_the_head_leaves_the_newest_named(
    conditional: tuple[Machine, ObjectStore], source: Path, tmp_path: Path
) -> None:
    machine, store = conditional
    machine.must("push", source, "--dataset", "data")
    other, there = machine.clone(tmp_path / "other"), fill(tmp_path / "there", b"two")
    (source / "mine").write_bytes(b"mine")
    rival = Between(store, "/heads/", lambda: other.must("push", there, "--dataset", "data", "--source-change"))
    machine.must("push", source, "--dataset", "data", store=rival)
    reader = machine.sibling(tmp_path / "reader")
    assert reader.must("pull", "data", tmp_path / "out", "--json").result["seq"] == 3
    assert tree(tmp_path / "out") == tree(there)
    machine.must("verify", "--read-data")


def test_the_same_source_is_pushed_by_one_process_at_a_time(machine: Machine, source: Path) -> None:
    codes = []
    store = Between(
        LocalStore(machine.repository), "/snapshots/", lambda: codes.append(machine.run("push", source).code)
    )
    machine.must("push", source, store=store)
    assert codes == [11]


def test_two_commits_at_one_number_are_both_kept_and_reported(rclone: S3Server, source: Path, tmp_path: Path) -> None:
    bucket = f"fork{os.urandom(6).hex()}"
    machine = Machine.make(tmp_path / "home", rclone.make_bucket(bucket), rclone.environment())
    assert "does not honour put-if-absent" in machine.must("init").err
    machine.must("push", source, "--dataset", "data")
    other, there = machine.clone(tmp_path / "other"), fill(tmp_path / "there", b"two")
    (source / "mine").write_bytes(b"mine")
    theirs: list[str] = []

    def meanwhile() -> None:
        pushed = other.must("push", there, "--dataset", "data", "--source-change", "--json").result
        theirs.append(pushed["snapshot"])

    store = Between(rclone.open(bucket), "/snapshots/", meanwhile)
    lost = machine.run("push", source, "--dataset", "data", store=store)
    assert lost.code == 7
    twins = [item.name for item in store.list("") if "/snapshots/" in item.name][:2]
    digests = {name.rpartition("-")[2] for name in twins}
    assert len(digests) == 2
    assert theirs[0] in digests
    (mine,) = digests - set(theirs)
    assert all(name in lost.message for name in twins)
    reports = [
        machine.run("push", source, "--dataset", "data"),
        machine.run("verify", "data"),
        other.run("push", there, "--dataset", "data", "--source-change"),
    ]
    for ran in reports:
        assert ran.code == 7, ran
        assert all(name in ran.err for name in twins), ran
    for snapshot, expected in ((mine, source), (theirs[0], there)):
        reader = machine.sibling(tmp_path / f"reader{snapshot[:8]}")
        reader.must("pull", f"data@{snapshot[:16]}", tmp_path / snapshot[:8])
        assert tree(tmp_path / snapshot[:8]) == tree(expected)


@pytest.mark.parametrize("part", ["/trust/", "/keyset/", "/packs/", "/snapshots/", "/heads/", "/tags/", ""])
def test_a_put_whose_answer_was_lost_is_not_done_twice(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path, part: str
) -> None:
    losing = LostAnswers(store, lambda name: part in name)
    pushed = machine.must("push", source, "--dataset", "data", "--tag", "prod", "--json", store=losing).result
    assert losing.lost
    assert pushed["seq"] == 1
    assert [len(names(store, f"/{kind}/")) for kind in ("trust", "keyset", "snapshots", "heads", "tags")] == [1] * 5
    machine.must("verify", "--read-data", store=store)
    machine.sibling(tmp_path / "reader").must("pull", "data:prod", tmp_path / "out", store=store)
    assert tree(tmp_path / "out") == tree(source)
