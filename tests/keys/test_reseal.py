"""`key rotate --full`: interrupted anywhere it goes on, asks for nothing twice, and ends with all in the new epoch."""

import random
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest

from datasync.errors import StorageUnavailable
from datasync.repository import reseal
from datasync.repository.ranges import Range
from datasync.repository.relocations import Moved, Relocations
from datasync.repository.reseal import Sealer
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created
from tests.support.machine import contents
from tests.support.people import Person

MIB = 1024 * 1024
INTERRUPTIONS = 5


class Interrupting(MemoryStore):
    """Dies after so many new packs."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        if self.left is not None and "/packs/" in name:
            if self.left == 0:
                raise StorageUnavailable("the network is gone")
            self.left -= 1
        return super().put_if_absent(name, data)


class Watch:
    """Notes which chunks are read to be sealed, and fails for one that was sealed and stored before."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sealed: set[bytes] = set()
        self.reads = 0
        read, add = Sealer._read, Relocations.add

        def watched_read(sealer: Sealer, part: Range, keys: list[bytes]) -> None:
            wanted = {ref.id for _, ref in part.wanted}
            assert not wanted & self.sealed, "asked for what it had sealed"
            self.reads += 1
            read(sealer, part, keys)

        def watched_add(table: Relocations, moved: Iterable[Moved], *, number: int | None) -> None:
            rows = list(moved)
            self.sealed |= {row.id for row in rows}
            add(table, rows, number=number)

        patch.setattr(Sealer, "_read", watched_read)
        patch.setattr(Relocations, "add", watched_add)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.fixture
def store() -> Interrupting:
    return Interrupting()


def fill(root: Path, mib: int) -> None:
    """Write *mib* MiB of noise in files of several sizes."""
    noise = random.Random(7)
    root.mkdir()
    for number in range(mib // 4):
        (root / f"large{number}").write_bytes(noise.randbytes(3 * MIB))
        for part in range(16):
            (root / f"small{number}-{part}").write_bytes(noise.randbytes(MIB // 16))


def interrupted_reseal(owner: Person, store: Interrupting, tree: Path, target: Path) -> None:
    """Push *tree*, interrupt its re-sealing five times, let it end, and check what is promised."""
    owner.must("push", tree, "--dataset", "data")
    old = {name.name for name in store.list("") if "/packs/" in name.name}
    for _ in range(INTERRUPTIONS):
        store.left = 1
        assert owner.run("key", "rotate", "data", "--full").code == 5
    store.left = None
    done = owner.must("key", "rotate", "data", "--full")
    assert done["epoch"] == 2
    assert done["condemned"] == len(old)
    for name in old:
        store.delete(name)  # as prune does after the grace time
    owner.must("verify", "data", "--read-data")
    owner.must("pull", "data", target)
    assert contents(target) == contents(tree)


def test_interrupted_five_times_it_ends_with_everything_in_the_new_epoch(
    owner: Person, store: Interrupting, tmp_path: Path, watch: Watch
) -> None:
    fill(tmp_path / "tree", 192)
    interrupted_reseal(owner, store, tmp_path / "tree", tmp_path / "out")
    assert watch.reads > INTERRUPTIONS


def test_interrupted_before_it_condemns_it_asks_for_nothing_again(
    owner: Person, source: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.must("push", source, "--dataset", "data")
    with monkeypatch.context() as patch:
        patch.setattr(reseal, "condemn", mock.Mock(side_effect=StorageUnavailable("the network is gone")))
        assert owner.run("key", "rotate", "data", "--full").code == 5
    reads = watch.reads
    done = owner.must("key", "rotate", "data", "--full")
    assert (done["epoch"], done["resealed"], done["condemned"] > 0, watch.reads) == (2, 0, True, reads)


def test_packs_that_are_deleted_already_are_not_condemned_again(
    owner: Person, source: Path, store: Interrupting
) -> None:
    owner.must("push", source, "--dataset", "data")
    old = [item.name for item in store.list("") if "/packs/" in item.name]
    assert owner.must("key", "rotate", "data", "--full")["condemned"] == len(old)
    for name in old:
        store.delete(name)  # as prune does after the grace time
    new = [item.name for item in store.list("") if "/packs/" in item.name]
    for item in store.list(""):
        if "/condemned/" in item.name:
            store.delete(item.name)  # a list without what is gone
    done = owner.must("key", "rotate", "data", "--full")
    assert (done["epoch"], done["condemned"]) == (3, len(new))


def test_after_it_another_full_rotation_begins_a_new_epoch(owner: Person, source: Path) -> None:
    owner.must("push", source, "--dataset", "data")
    assert owner.must("key", "rotate", "data", "--full")["epoch"] == 2
    assert owner.must("key", "rotate", "data", "--full")["epoch"] == 3
    owner.must("verify", "data", "--read-data")


def test_a_push_after_it_sends_no_data_again(owner: Person, source: Path) -> None:
    first = owner.must("push", source, "--dataset", "data")
    owner.must("key", "rotate", "data", "--full")
    (source / "new").write_bytes(b"new" * 1000)
    second = owner.must("push", source, "--dataset", "data")
    assert second["created"]
    assert second["new_bytes"] < first["new_bytes"] / 10
    owner.must("verify", "data", "--read-data")


@pytest.mark.long
def test_a_gibibyte_interrupted_five_times(owner: Person, store: Interrupting, tmp_path: Path, watch: Watch) -> None:
    fill(tmp_path / "tree", 1024)
    interrupted_reseal(owner, store, tmp_path / "tree", tmp_path / "out")
    assert watch.reads > INTERRUPTIONS
