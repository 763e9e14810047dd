"""A provider that serves an older state, another history or other objects is refused with exit 7 by who can know."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from datasync.repository.repository import Repository
from datasync.repository.snapshots import HEAD_LIFE_MS, History
from datasync.service import session
from datasync.storage.memory import MemoryStore
from datasync.storage.probe import honours_put_if_absent
from tests.attacks.conftest import fill
from tests.support.copies import copy, join, move, names, replace
from tests.support.machine import Machine, Ran, tree

LATER = 2 * HEAD_LIFE_MS / 1000  # seconds


@contextmanager
def two_lives_ago() -> Iterator[None]:
    """Set the clock that signs and judges times back by two lives of a head."""
    then = time.time() - LATER
    with mock.patch.object(session, "Repository", partial(Repository, clock=lambda: then)):
        yield


def push(machine: Machine, source: Path, store: MemoryStore, *more: str) -> str:
    """Push *source* with something new in it; return the snapshot's id."""
    (source / f"new{time.monotonic_ns()}").write_bytes(b"new")
    ran = machine.must("push", source, "--dataset", "data", "--source-change", "--json", *more, store=store)
    assert ran.result["created"]
    return str(ran.result["snapshot"])


def refused(ran: Ran, *words: str) -> None:
    """Check that a command ended with exit 7, one line, and these words in it."""
    assert ran.code == 7, ran
    for word in words:
        assert word in ran.message, ran


def every(machine: Machine, source: Path, store: MemoryStore, target: Path) -> list[Ran]:
    """Run what reads or writes the dataset's newest state."""
    (source / "more").write_bytes(b"more")
    return [
        machine.run("pull", "data", target / "out", "-q", store=store),
        machine.run("warm", "data", "--cache", target / "cache", "-q", store=store),
        machine.run("push", source, "--dataset", "data", "--source-change", "-q", store=store),
        machine.run("log", "data", store=store),
    ]


def test_an_older_state_is_refused_by_who_has_seen_a_newer(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    push(machine, source, store)
    older = copy(store)
    push(machine, source, store)
    for ran in every(machine, source, older, tmp_path):
        refused(ran, "this machine has seen")


def test_a_reader_remembers_what_it_saw(machine: Machine, store: MemoryStore, source: Path, tmp_path: Path) -> None:
    push(machine, source, store)
    older = copy(store)
    push(machine, source, store)
    reader = machine.sibling(tmp_path / "reader")
    reader.must("pull", "data", tmp_path / "first", store=store)
    refused(reader.run("pull", "data", tmp_path / "second", store=older), "this machine has seen")
    assert not (tmp_path / "second").exists()


def test_a_hidden_snapshot_is_missed_by_who_made_it(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    push(machine, source, store)
    push(machine, source, store)
    newest = names(store, "/snapshots/")[0]
    for ran in every(machine, source, copy(store, lambda name: name != newest), tmp_path):
        refused(ran, newest.rpartition("/")[2])


def test_a_head_that_was_taken_back_alone_is_refused(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    push(machine, source, store)
    push(machine, source, store)
    newest = names(store, "/heads/")[0]
    for ran in every(machine, source, copy(store, lambda name: name != newest), tmp_path):
        refused(ran, "head", "this machine has seen")


def test_a_forked_history_is_refused_by_whoever_saw_one_side(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    push(machine, source, store)
    other = machine.clone(tmp_path / "other")
    fork, there = copy(store), fill(tmp_path / "there", b"two")
    mine, theirs = push(machine, source, store), push(other, there, fork, "--allow-empty")
    assert mine != theirs
    for ran in every(machine, source, fork, tmp_path / "a"):
        refused(ran)
    for ran in every(other, there, store, tmp_path / "b"):
        refused(ran)
    push(other, there, fork, "--allow-empty")  # the fork grows past what this machine knows
    for ran in every(machine, source, fork, tmp_path / "c"):
        refused(ran, "history was forked")


def test_two_processes_that_saw_two_histories_do_not_settle_on_one(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    push(machine, source, store)
    other = machine.clone(tmp_path / "other")
    fork = copy(store)
    push(machine, source, store)
    push(other, fill(tmp_path / "there", b"two"), fork, "--allow-empty")
    slow = machine.clone(tmp_path / "slow")
    load = History.newest

    def meanwhile(history: History, *, fresh: bool = True) -> object:
        found = load(history, fresh=fresh)
        for path in slow.evidence.glob("*.json"):  # another process of this machine keeps the other side
            path.write_bytes((other.evidence / path.name).read_bytes())
        return found

    with mock.patch.object(History, "newest", meanwhile):
        refused(slow.run("pull", "data", tmp_path / "out", store=store), "history was forked")


@pytest.fixture
def expired(machine: Machine, store: MemoryStore, source: Path) -> str:
    """Push with a clock of two head lives ago; return the snapshot's id."""
    with two_lives_ago():
        return push(machine, source, store)


def test_an_expired_head_needs_memory_or_an_exact_hash(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path, expired: str
) -> None:
    fresh = machine.sibling(tmp_path / "fresh")
    refused(fresh.run("pull", "data", tmp_path / "a", store=store), "expired", f"NAME@{expired[:16]}")
    refused(fresh.run("warm", "data", store=store), "expired")
    fresh.must("pull", f"data@{expired}", tmp_path / "b", store=store)
    assert tree(tmp_path / "b") == tree(source)
    machine.must("pull", "data", tmp_path / "c", store=store)  # knows the dataset
    machine.must("push", source, "--dataset", "data", store=store)  # renews the head
    machine.sibling(tmp_path / "other").must("pull", "data", tmp_path / "d", store=store)


def test_a_wrong_clock_does_not_make_an_expired_head_fresh(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path, expired: str
) -> None:
    push(machine, source, store)
    rolled = copy(store, lambda name: name not in (names(store, "/heads/")[0], names(store, "/snapshots/")[0]))
    with two_lives_ago():
        refused(machine.run("pull", "data", tmp_path / "a", store=rolled), "this machine has seen")


def test_a_deleted_dataset_is_not_made_anew(machine: Machine, store: MemoryStore, source: Path, tmp_path: Path) -> None:
    push(machine, source, store)
    emptied = copy(store, lambda name: not name.startswith("d/"))
    for ran in every(machine, source, emptied, tmp_path)[:3]:
        refused(ran, "this machine has seen")
    assert names(emptied, "d/") == []


@pytest.mark.parametrize("kind", ["trust", "keyset", "heads", "snapshots"])
def test_a_dataset_without_one_kind_is_refused(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path, kind: str
) -> None:
    push(machine, source, store)
    for ran in every(machine, source, copy(store, lambda name: f"/{kind}/" not in name), tmp_path):
        refused(ran)


def test_status_misses_a_deleted_dataset(machine: Machine, store: MemoryStore, source: Path) -> None:
    push(machine, source, store)
    emptied = copy(store, lambda name: not name.startswith("d/"))
    for command in ("status", "ls", "verify"):
        refused(machine.run(command, store=emptied), "this machine has seen")


@pytest.mark.parametrize("kind", ["trust", "keyset", "heads", "snapshots", "tags"])
def test_objects_of_another_dataset_are_refused(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path, kind: str
) -> None:
    for name in ("data", "other"):
        machine.must("push", source, "--dataset", name, "--tag", "prod", store=store)
    one, two = names(store, f"/{kind}/")
    mine, theirs = store.get(one, limit=1 << 26), store.get(two, limit=1 << 26)
    replace(store, one, theirs)
    replace(store, two, mine)
    for number, user in enumerate((machine.clone(tmp_path / "known"), machine.sibling(tmp_path / "fresh"))):
        for name in ("data", "other"):
            ran = user.run("pull", f"{name}:prod", tmp_path / f"{name}{number}", store=store)
            if user.home.name == "known" and kind in ("trust", "keyset"):
                assert ran.code == 0, ran  # immutable, so its own verified copy serves
            else:
                refused(ran)
                assert one in ran.err or two in ran.err or "dataset" in ran.err, ran


def test_a_snapshot_under_another_number_is_refused(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    first = push(machine, source, store)
    push(machine, source, store)
    second_name, first_name = names(store, "/snapshots/")
    move(store, first_name, second_name)
    fresh = machine.sibling(tmp_path / "fresh")
    refused(fresh.run("pull", "data", tmp_path / "a", store=store), second_name)
    refused(fresh.run("pull", "data@2", tmp_path / "a", store=store), second_name)
    assert fresh.run("verify", store=store).code == 7
    fresh.must("pull", f"data@{first}", tmp_path / "b", store=store)


def test_a_head_under_a_higher_number_is_refused(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    push(machine, source, store)
    name = names(store, "/heads/")[0]
    move(store, name, name[:-1] + str(int(name[-1]) - 1))
    refused(machine.sibling(tmp_path / "fresh").run("pull", "data", tmp_path / "a", store=store), "head")


def test_an_unknown_trust_root_is_refused_until_somebody_vouches_for_it(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    passphrase = {"DATASYNC_PASSPHRASE": "a passphrase that both know"}
    owner = machine.sibling(tmp_path / "owner", **passphrase)
    pushed = owner.must("push", source, "--dataset", "data", "--json", store=store).result
    other = Machine.make(tmp_path / "other", machine.repository, passphrase)
    refused(other.run("pull", "data", tmp_path / "a", store=store), pushed["trust"], "DATASYNC_TRUST")
    assert not (tmp_path / "a").exists()
    told = Machine.make(tmp_path / "told", machine.repository, {**passphrase, "DATASYNC_TRUST": pushed["trust"]})
    told.must("pull", "data", tmp_path / "b", store=store)
    assert tree(tmp_path / "b") == tree(source)
    wrong = Machine.make(tmp_path / "wrong", machine.repository, {**passphrase, "DATASYNC_TRUST": "00" * 32})
    refused(wrong.run("pull", "data", tmp_path / "c", store=store), pushed["trust"])


def test_a_snapshot_without_a_head_is_followed_not_refused(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    push(machine, source, store)
    other = machine.clone(tmp_path / "other")
    there = fill(tmp_path / "there", b"two")
    push(other, there, store, "--allow-empty")
    newest = names(store, "/heads/")[0]
    died = copy(store, lambda name: name != newest)  # its writer died between snapshot and head
    assert push(machine, source, died, "--allow-empty")
    assert len(names(died, "/snapshots/")) == 3
    machine.must("pull", "data", tmp_path / "out", store=died)
    assert tree(tmp_path / "out") == tree(source)


def test_both_sides_of_a_lost_race_stay_readable_by_hash(machine: Machine, source: Path, tmp_path: Path) -> None:
    hashed = MemoryStore()
    with mock.patch("datasync.service.session.honours_put_if_absent", lambda store: not honours_put_if_absent(store)):
        machine.must("init", store=hashed)
    push(machine, source, hashed)
    other, there = machine.clone(tmp_path / "other"), fill(tmp_path / "there", b"two")
    fork = copy(hashed)
    mine, theirs = push(machine, source, hashed), push(other, there, fork, "--allow-empty")
    both = join(hashed, fork)
    for ran in every(machine, source, both, tmp_path / "x"):
        refused(ran, "both are kept") if ran.code else None
    refused(machine.run("push", source, "--dataset", "data", store=both), "both are kept")
    ran = machine.run("verify", "data", store=both)
    assert ran.code == 7
    assert mine in ran.err
    assert theirs in ran.err
    (source / "more").unlink()
    for snapshot, tree_of in ((mine, source), (theirs, there)):
        target = tmp_path / snapshot[:8]
        machine.sibling(tmp_path / f"home{snapshot[:8]}").must("pull", f"data@{snapshot}", target, store=both)
        assert tree(target) == tree(tree_of)
