"""Pruning: what is condemned, sealed anew and deleted, when, and by whom."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from datasync.format import pack as packs
from datasync.format.control import Condemned
from datasync.model.ids import ZERO_ID
from datasync.repository.condemned import condemn, read_list
from datasync.repository.snapshots import History
from datasync.storage.memory import MemoryStore
from tests.keys.forge import put_control, session, signer
from tests.prune.conftest import Clock
from tests.support.copies import names
from tests.support.machine import contents
from tests.support.people import Person

MIB = 1024 * 1024


@pytest.fixture
def pruned(owner: Person, source: Path, clock: Clock) -> Person:
    """Three snapshots, two of them forgotten, their packs old."""
    for number in range(3):
        (source / "changing").write_bytes(os.urandom(200_000))
        owner.must("push", source, "--dataset", "data")
        assert number < 3
    owner.must("forget", "data", "--keep-last", "1")
    clock.pass_days(8)
    return owner


def grant(owner: Person, other: Person, role: str, clock: Clock) -> None:
    """Grant by this machine's own time: a slot of another day would not open yet."""
    ahead, clock.ahead = clock.ahead, 0.0
    owner.grant("data", other, role)
    clock.ahead = ahead


def whole(person: Person, source: Path, target: Path) -> None:
    person.must("verify", "data", "--read-data")
    person.must("pull", "data", target, "-q")
    assert contents(target) == contents(source)


def test_two_phases(pruned: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path) -> None:
    stored = names(store, "/packs/")
    first = pruned.must("prune", "--no-repack")  # the second snapshot's data, and two pages
    assert (first["condemned"], first["deleted"], first["waiting"]) == (3, 0, 3)
    assert names(store, "/packs/") == stored
    clock.pass_days(13)
    assert pruned.must("prune", "--no-repack")["deleted"] == 0
    clock.pass_days(1.1)
    last = pruned.must("prune", "--no-repack")
    assert (last["deleted"], last["waiting"], last["kept_by_store"]) == (3, 0, 0)
    assert len(names(store, "/packs/")) == len(stored) - 3
    whole(pruned, source, tmp_path / "out")


def test_a_longer_grace_waits_longer_and_a_shorter_one_is_refused(pruned: Person, clock: Clock) -> None:
    pruned.must("prune", "--no-repack")
    clock.pass_days(20)
    assert pruned.must("prune", "--grace", "30d")["deleted"] == 0
    pruned.refused(2, "prune", "--grace", "13d", words="expected 14d or more")
    clock.pass_days(10.1)
    assert pruned.must("prune", "--grace", "30d")["deleted"] == 3


def test_young_packs_are_left_alone(owner: Person, source: Path) -> None:
    for _ in range(2):
        (source / "changing").write_bytes(os.urandom(1000))
        owner.must("push", source, "--dataset", "data")
    owner.must("forget", "data@1")
    done = owner.must("prune", "--no-repack")
    assert (done["condemned"], done["young"]) == (0, 1)


def test_a_dry_run_tells_the_same_and_writes_nothing(pruned: Person, store: MemoryStore, clock: Clock) -> None:
    before = names(store)
    dry = pruned.must("prune", "-n", "--no-repack")
    assert names(store) == before
    wet = pruned.must("prune", "--no-repack")
    assert (dry["condemned"], dry["condemned_bytes"]) == (wet["condemned"], wet["condemned_bytes"])
    clock.pass_days(15)
    before = names(store)
    assert pruned.must("prune", "--dry-run", "--no-repack")["deleted"] == 3
    assert names(store) == before


def test_a_wrong_clock_of_this_machine_deletes_nothing(pruned: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list was written by a right clock, and is read by one that is a year ahead; then the other way round."""
    right = History.now
    for first, second in ((0, 400), (400, 0), (0, -400)):
        for days in (first, second):
            monkeypatch.setattr(History, "now", lambda history, days=days: right(history) + days * 86_400_000)
            done = pruned.must("prune", "--no-repack")
            assert done["deleted"] == 0


def test_a_list_that_was_written_by_a_wrong_clock_holds_the_stores_time(
    pruned: Person, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = History.now
    monkeypatch.setattr(History, "now", lambda history: right(history) + 400 * 86_400_000)
    assert pruned.must("prune", "--no-repack")["condemned"] == 3
    clock.pass_days(15)
    assert pruned.must("prune", "--no-repack")["deleted"] == 3


def test_what_is_left_of_mostly_spare_packs_is_sealed_anew_and_read_from_there(
    owner: Person, store: MemoryStore, clock: Clock, tmp_path: Path
) -> None:
    tree, noise = tmp_path / "tree", random.Random(3)
    tree.mkdir()
    for number in range(40):
        (tree / f"{number}").write_bytes(noise.randbytes(MIB))
    owner.must("push", tree, "--dataset", "data")
    for number in range(40):
        if number % 4:
            (tree / f"{number}").unlink()
    owner.must("push", tree, "--dataset", "data", "--allow-empty")
    owner.must("forget", "data@1")
    clock.pass_days(8)
    first = owner.must("prune")
    assert first["repacked"] >= 1
    assert first["spare_bytes"] > 20 * MIB
    whole(owner, tree, tmp_path / "now")
    for _ in range(3):
        clock.pass_days(15)
        owner.must("prune")
    size = sum(store.stat(name).size for name in names(store, "/packs/"))
    assert size < 13 * MIB
    whole(owner, tree, tmp_path / "later")
    fresh = Person("fresh", owner.machine.sibling(tmp_path / "fresh"), store)
    whole(fresh, tree, tmp_path / "fresh-out")
    (tree / "new").write_bytes(b"new")
    assert owner.must("push", tree, "--dataset", "data")["new_bytes"] < MIB  # what was moved is known where it lies


def test_within_the_share_that_may_be_unused_nothing_is_sealed_anew(
    owner: Person, clock: Clock, tmp_path: Path
) -> None:
    tree, noise = tmp_path / "tree", random.Random(4)
    tree.mkdir()
    for number in range(12):
        (tree / f"{number}").write_bytes(noise.randbytes(MIB))
    owner.must("push", tree, "--dataset", "data")
    (tree / "3").unlink()
    owner.must("push", tree, "--dataset", "data")
    owner.must("forget", "data@1")
    clock.pass_days(8)
    assert owner.must("prune", "--max-unused", "20%", "-n")["repacked"] == 0
    assert owner.must("prune", "--no-repack", "--max-unused", "0%", "-n")["repacked"] == 0
    assert owner.must("prune", "--max-unused", "2%", "-n")["repacked"] == 1
    owner.refused(2, "prune", "--max-unused", "200%", words="expected a share")


def test_after_a_rotation_everything_is_still_found(pruned: Person, source: Path, clock: Clock, tmp_path: Path) -> None:
    pruned.must("prune", "--max-unused", "0%")
    pruned.must("key", "rotate", "data", "--full")
    for number in range(3):
        clock.pass_days(15)
        pruned.must("prune", "--max-unused", "0%")
        whole(pruned, source, tmp_path / f"out{number}")


def test_what_was_sealed_anew_forgotten_deleted_and_pushed_again_is_read_from_its_new_place(
    owner: Person, clock: Clock, tmp_path: Path
) -> None:
    """A relocation whose target is gone must not be followed."""
    tree, noise = tmp_path / "tree", random.Random(5)
    tree.mkdir()
    parts = {f"{number}": noise.randbytes(300_000) for number in range(6)}

    def push(*kept: str) -> None:
        for path in tree.iterdir():
            path.unlink()
        for name in kept:
            (tree / name).write_bytes(parts[name])
        owner.must("push", tree, "--dataset", "data", "--allow-empty")

    def settle() -> None:
        newest = owner.must("forget", "data", "--keep-last", "1")
        assert newest["forgotten"] <= 1
        for _ in range(3):
            clock.pass_days(15)
            owner.must("prune", "--max-unused", "0%")

    for kept in (("0", "1", "2"), ("0", "3"), ("3", "4"), ("3", "0", "4"), ("0",), ("0", "5"), ("1", "0")):
        push(*kept)
        settle()
        whole(owner, tree, tmp_path / "-".join(("out", *kept)))


@pytest.mark.parametrize("repack", ["--repack", "--no-repack"])
def test_a_page_that_lies_in_two_packs_keeps_both(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path, repack: str
) -> None:
    owner.must("push", source, "--dataset", "data")
    with session(owner) as made:
        dataset = made.repository.open("data")
        first = {pack.id for _, pack in dataset.history.read(1).pages()}
        condemn(dataset.history, first)
    source.chmod(0o711)  # another root, the same entries: the page is stored anew, since its pack is condemned
    owner.must("push", source, "--dataset", "data")
    with session(owner) as made:
        history = made.repository.open("data").history
        pages = [history.read(seq).pages() for seq in (2, 1)]
        assert pages[0][0][0].id == pages[1][0][0].id
        assert pages[0][0][1].id != pages[1][0][1].id
    for _ in range(4):
        clock.pass_days(15)
        owner.must("prune", repack)
        owner.must("verify", "data", "--read-data")
    owner.must("pull", "data@1", tmp_path / "out", "-q")
    left = {name.rpartition("/")[2] for name in names(store, "/packs/")}
    assert len(left) == 3
    assert (next(iter(first)).hex() in left) == (repack == "--no-repack")


# an incomplete picture


@pytest.mark.parametrize("missing", [3, 4])
def test_with_a_snapshot_missing_nothing_is_done(
    pruned: Person, source: Path, store: MemoryStore, missing: int
) -> None:
    for number in range(2):
        (source / f"more{number}").write_bytes(b"more")
        pruned.must("push", source, "--dataset", "data")
    store.delete(names(store, "/snapshots/")[5 - missing])
    before = names(store)
    pruned.refused(7, "prune", words=f"snapshot {missing}")
    assert names(store) == before


def test_with_a_page_that_can_not_be_read_nothing_is_done(pruned: Person, store: MemoryStore) -> None:
    done = pruned.must("prune", "-n")
    needed = done["packs"] - done["condemned"]
    assert needed > 0
    for name in names(store, "/packs/"):
        data = bytearray(store.get(name, limit=64 * MIB))
        data[-100] ^= 1
        data[200] ^= 1
        store.delete(name)
        store.put_if_absent(name, data)
    before = names(store)
    assert pruned.run("prune").code == 7
    assert names(store) == before


class Lagging(MemoryStore):
    """A store whose listings leave out what came last, as far as *hidden* says."""

    hidden: Callable[[str], bool] = staticmethod(lambda name: False)

    def list(self, prefix: str, *, limit: int | None = None, after: str = ""):  # type: ignore[no-untyped-def]
        found = (item for item in super().list(prefix, after=after) if not self.hidden(item.name))
        return iter(list(found)[:limit])


def test_a_listing_that_lags_never_costs_a_needed_pack(tmp_path: Path, source: Path, clock: Clock) -> None:
    store = Lagging(clock=clock)
    owner = Person.make(tmp_path, "olga", "memory://people", store)
    owner.must("init")
    for number in range(3):
        (source / "changing").write_bytes(os.urandom(100_000))
        owner.must("push", source, "--dataset", "data")
        assert number < 3
    clock.pass_days(8)
    for part in ("/snapshots/", "/packs/", "/condemned/", "/forgotten/", "/heads/"):
        for name in names(store, part):
            Lagging.hidden = staticmethod(lambda item, name=name: item == name)
            owner.run("prune")  # it may refuse; what it does must be right
            Lagging.hidden = staticmethod(lambda item: False)
    for _ in range(3):
        clock.pass_days(15)
        owner.must("prune")
    owner.must("verify", "data", "--read-data")
    whole(owner, source, tmp_path / "out")


# who may


def test_a_reader_may_not_and_what_it_forges_is_refused(
    pruned: Person, person: Callable[[str], Person], store: MemoryStore, clock: Clock
) -> None:
    rita = person("rita")
    grant(pruned, rita, "reader", clock)
    rita.refused(6, "prune", "data", words="needs an owner or writer")
    with session(rita) as made:
        dataset = made.repository.open("data")
        found = dataset.history.read(3)
        needed = sorted((pack.id, 1) for _, pack in found.pages())
        body = Condemned(dataset.id, 1, ZERO_ID, int(time.time() * 1000), tuple(needed))
        put_control(store, dataset, "condemned", packs.CONDEMNED, 1, body, signer(rita))
    before = names(store, "/packs/")
    pruned.refused(7, "prune", words="trust root does not list")
    assert names(store, "/packs/") == before


def test_a_writers_list_of_what_is_needed_deletes_nothing(
    pruned: Person, person: Callable[[str], Person], store: MemoryStore, source: Path, clock: Clock, tmp_path: Path
) -> None:
    will = person("will")
    grant(pruned, will, "writer", clock)
    with session(will) as made:
        dataset = made.repository.open("data")
        ids = sorted((bytes.fromhex(name.rpartition("/")[2]), 1) for name in names(store, "/packs/"))
        body = Condemned(dataset.id, 1, ZERO_ID, int(time.time() * 1000), tuple(ids))
        put_control(store, dataset, "condemned", packs.CONDEMNED, 1, body, signer(will))
    for number in range(4):
        pruned.must("prune")
        whole(pruned, source, tmp_path / f"out{number}")
        clock.pass_days(15)
    with session(pruned) as made:
        assert read_list(made.repository.open("data").history)[0].packs == ()


POLICY = """
[users.olga]
identities = ["{olga}"]
[users.omar]
identities = ["{omar}"]
[datasets.data]
{attributes}
[[grant]]
id = "owners"
to = ["olga", "omar"]
role = "owner"
"""


def publish(who: Person, other: Person, folder: Path, attributes: str) -> None:
    folder.mkdir(exist_ok=True)
    keys = {item.name: item.must("key", "show")["signer"] for item in (who, other)}
    (folder / "policy.toml").write_text(POLICY.format(**keys, attributes=attributes))
    who.must("policy", "apply", "data", folder)


def test_the_two_person_rule_and_legal_hold(
    pruned: Person, person: Callable[[str], Person], tmp_path: Path, source: Path, clock: Clock
) -> None:
    omar = person("omar")
    grant(pruned, omar, "owner", clock)
    publish(pruned, omar, tmp_path / "policy", "two_person = true")
    pruned.refused(6, "prune", "data", words="a second person has to approve")
    approval = tmp_path / "approval"
    mine = str(pruned.must("key", "show")["signer"])
    omar.must("policy", "grant", "data", mine, "--action", "Prune", "--until", "30d", "--output", approval)
    extra = {**pruned.machine.extra, "DATASYNC_POLICY_GRANTS": str(approval)}
    two = replace(pruned, machine=replace(pruned.machine, extra=extra))
    assert two.must("prune", "data", "--no-repack")["condemned"] == 3
    publish(pruned, omar, tmp_path / "policy", "frozen = true")
    two.refused(6, "prune", "data", words="frozen")
    (source / "more").write_bytes(b"more")
    two.refused(6, "push", source, "--dataset", "data", words="frozen")


def test_the_policys_retention_keeps_what_is_younger(
    owner: Person, person: Callable[[str], Person], source: Path, clock: Clock, tmp_path: Path
) -> None:
    omar = person("omar")
    for number in range(3):
        (source / f"n{number}").write_bytes(bytes([number]))
        owner.must("push", source, "--dataset", "data")
    grant(owner, omar, "owner", clock)
    publish(owner, omar, tmp_path / "policy", "retention_days = 30")
    owner.refused(6, "forget", "data@1", words="younger than the retention")
    assert owner.must("forget", "data", "--keep-last", "1")["forgotten"] == 0
    assert "policy: 30 days" in owner.run("forget", "data", "--keep-last", "1", "-n").out
    clock.pass_days(31)
    assert owner.must("forget", "data", "--keep-last", "1")["forgotten"] == 2


def test_it_is_recorded_before_and_after(pruned: Person) -> None:
    pruned.must("prune")
    found = pruned.run("audit", "query", "--action", "prune").out
    assert "intent" in found
    assert "success" in found
