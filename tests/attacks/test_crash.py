"""A push that is killed at any write, and the same line again: one snapshot, every byte, only what was in flight sent
twice.
"""

import os
import random
import sqlite3
import time
import tomllib
from pathlib import Path

import pytest

from datasync.storage.local import LocalStore
from datasync.storage.protocol import ObjectStore
from tests import reference_reader
from tests.attacks.conftest import fill
from tests.support.machine import Machine, contents, tree
from tests.support.scripted import DyingStore, Killed
from tests.support.servers import S3Server

SEED = 77
KILLS = 10
TRANSFERS = 4  # packs that a push has in flight at most
MIB = 1024 * 1024


def journal(machine: Machine) -> tuple[set[str], int]:
    """Return the packs that the machine's records know to be stored, and the raw bytes of their chunks."""
    packs, raw = set(), 0
    for path in machine.state.rglob("*.db"):
        with sqlite3.connect(path) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chunks'").fetchone():
                continue  # killed before its tables were made: it knows nothing
            packs |= {row[0].hex() for row in db.execute("SELECT id FROM packs")}
            raw += db.execute("SELECT coalesce(sum(raw), 0) FROM chunks").fetchone()[0]
        db.close()
    return packs, raw


def packs_in(store: ObjectStore) -> set[str]:
    return {item.name.rpartition("/")[2] for item in store.list("") if "/packs/" in item.name}


def agree(machine: Machine, store: ObjectStore, source: Path, folder: Path) -> None:
    """Let the second, independent reader open the repository and find the same tree."""
    folder.mkdir()
    for item in store.list(""):
        path = folder / item.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(item.name, limit=64 * MIB))
    secrets = tomllib.loads(machine.identity.read_text())
    identity = bytes.fromhex(secrets["mlkem_seed"] + secrets["x25519"])
    (dataset,) = reference_reader.open_repository(folder, identity)
    (snapshot,) = dataset.snapshots()
    assert snapshot.tree_digest() == reference_reader.describe(source)


def after_crash(machine: Machine, store: ObjectStore, source: Path, scratch: Path, *, child: bool = False) -> None:
    """Run the same line again and check what it must leave."""
    known, known_raw = journal(machine)
    stored = packs_in(store)
    orphans = stored - known
    assert known <= stored, "a pack is in the journal that the store does not have"
    assert len(orphans) <= TRANSFERS
    line = ("push", source, "--dataset", "data", "--json")
    ran = machine.spawn(*line) if child else machine.run(*line)
    assert ran.code == 0, ran
    content = {data for data in contents(source).values() if isinstance(data, bytes) and data}
    if ran.result["created"]:
        assert ran.result["new_bytes"] == sum(map(len, content)) - known_raw
    assert ran.result["seq"] == 1
    assert len([item for item in store.list("") if "/snapshots/" in item.name]) == 1
    assert machine.must("verify", "--read-data", "--json").result["problems"] == 0
    reader = machine.sibling(scratch / "reader")
    reader.must("pull", "data", scratch / "out", "-q")
    assert tree(scratch / "out") == tree(source)
    again = machine.must("push", source, "--dataset", "data", "--json").result
    assert (again["created"], again["sent_bytes"], again["seq"]) == (False, 0, 1)


def writes_of_a_push(folder: Path) -> int:
    machine = Machine.make(folder / "home", str(folder / "repository"))
    machine.must("init")
    counting = DyingStore(LocalStore(machine.repository), 1_000, after=False)
    machine.must("push", fill(folder / "source"), "--dataset", "data", store=counting)
    return len(counting.completed)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_every_write_of_a_push(tmp_path: Path, after: bool) -> None:
    count = writes_of_a_push(tmp_path / "whole")
    assert count >= 6  # trust root, keyset, data packs, metadata pack, snapshot, head
    for number in range(1, count + 1):
        folder = tmp_path / f"crash{number}"
        machine = Machine.make(folder / "home", str(folder / "repository"))
        machine.must("init")
        store, source = LocalStore(machine.repository), fill(folder / "source")
        dying = DyingStore(store, number, after=after)
        with pytest.raises(Killed):
            machine.run("push", source, "--dataset", "data", store=dying)
        after_crash(machine, store, source, folder)
        if len(list(store.list_directories("d/"))) == 1:
            agree(machine, store, source, folder / "copy")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_every_write_of_a_second_push(tmp_path: Path, after: bool) -> None:
    number = 0
    while True:
        number += 1
        folder = tmp_path / f"crash{number}"
        machine = Machine.make(folder / "home", str(folder / "repository"))
        machine.must("init")
        store, source = LocalStore(machine.repository), fill(folder / "source")
        machine.must("push", source, "--dataset", "data")
        (source / "more").write_bytes(os.urandom(300_000))
        dying = DyingStore(store, number, after=after)
        try:
            machine.run("push", source, "--dataset", "data", store=dying)
        except Killed:
            pass
        else:
            break
        (source / "third").write_bytes(b"something else changed before the line was run again")
        pushed = machine.must("push", source, "--dataset", "data", "--json").result
        snapshots = [item for item in store.list("") if "/snapshots/" in item.name]
        assert pushed["created"]
        assert pushed["seq"] == len(snapshots) <= 3
        machine.must("verify", "--read-data")
        machine.sibling(folder / "reader").must("pull", "data", folder / "out")
        assert tree(folder / "out") == tree(source)
    assert number > 4


def test_a_crash_of_init_leaves_nothing_or_a_repository(tmp_path: Path) -> None:
    for number in range(1, 10):
        folder = tmp_path / f"crash{number}"
        machine = Machine.make(folder / "home", str(folder / "repository"))
        dying = DyingStore(LocalStore(machine.repository), number, after=False)
        try:
            machine.run("init", store=dying)
        except Killed:
            machine.must("init")
        machine.must("push", fill(folder / "source"), "--dataset", "data")
        if not dying.dead:
            return
    raise AssertionError("init has no end")


def big_source(folder: Path) -> Path:
    """Make 40 MiB that do not compress, in files of several sizes: more than one full pack."""
    noise = random.Random(SEED)
    (folder / "shards").mkdir(parents=True)
    for number in range(9):
        (folder / f"shards/{number}").write_bytes(noise.randbytes(4 * MIB))
    for number in range(200):
        (folder / f"{number}").write_bytes(noise.randbytes(20_000))
    return folder


def test_kill_9_at_ten_random_moments_of_a_push_to_s3(seaweedfs: S3Server, tmp_path: Path) -> None:
    source, choose = big_source(tmp_path / "source"), random.Random(SEED)
    bucket = f"kill{os.urandom(6).hex()}"
    url = seaweedfs.make_bucket(bucket)
    whole = Machine.make(tmp_path / "whole", url.replace(bucket, f"{bucket}/whole", 1), seaweedfs.environment())
    whole.must("init")
    started = time.monotonic()
    assert whole.spawn("push", source, "--dataset", "data").code == 0
    duration, killed = time.monotonic() - started, 0  # of a push that is left alone: the kills come within it
    for number in range(KILLS):
        folder = tmp_path / f"kill{number}"
        place = url.replace(bucket, f"{bucket}/run{number}", 1)
        machine = Machine.make(folder / "home", place, seaweedfs.environment())
        machine.must("init")
        store = seaweedfs.open(bucket, f"run{number}")
        if machine.kill(choose.uniform(0.3, 0.9) * duration, "push", source, "--dataset", "data"):
            killed += 1
        else:
            duration *= 0.7  # the first one met a slower machine: the next kill comes sooner
        after_crash(machine, store, source, folder, child=number < 3)
        if number == 0:
            agree(machine, store, source, folder / "copy")
    assert killed >= KILLS // 2, "the kills came too late to mean anything"
