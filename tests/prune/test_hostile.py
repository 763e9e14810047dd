"""Wrong clocks, places that nobody else knows, packs that are gone: nothing that a living snapshot needs is lost."""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from datasync.errors import UsageError
from datasync.repository.condemned import read_list
from datasync.repository.manifest import ManifestReader
from datasync.repository.retention import KeepRules
from datasync.repository.snapshots import History
from datasync.service import forget as forgetting
from datasync.service.forget import ForgetOptions
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created
from tests.keys.forge import session
from tests.prune.conftest import DAY, Clock
from tests.prune.dying import DyingAtWrites
from tests.support.copies import names
from tests.support.machine import contents
from tests.support.people import Person
from tests.support.scripted import Killed, Wrapped


class NoRelocations(Wrapped):
    """Dies before it stores what tells where chunks were moved."""

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        if "/relocations/" in name:
            raise Killed
        return self._store.put_if_absent(name, data)


def over(person: Person, store: object) -> Person:
    """Return the same person on the same machine over another store."""
    return Person(person.name, person.machine, store)  # type: ignore[arg-type]


def push(person: Person, source: Path, *more: str) -> None:
    person.must("push", source, "--dataset", "data", *more)


@pytest.mark.parametrize("again", [False, True], ids=["given up", "gone on with"])
def test_what_a_killed_rotation_moved_and_told_nobody_is_not_relied_on(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path, again: bool
) -> None:
    push(owner, source)
    clock.pass_days(8)
    owner.must("key", "rotate", "data")
    with pytest.raises(Killed):
        over(owner, NoRelocations(store)).run("key", "rotate", "data", "--full")
    assert len(names(store, "/packs/")) == 4  # two of them nobody knows of
    for number in range(3):
        owner.must("prune", "--no-repack")
        fresh = Person("fresh", owner.machine.sibling(tmp_path / f"fresh{number}"), store)
        for who in (owner, fresh):
            who.must("verify", "data", "--read-data")
        clock.pass_days(15)
    assert len(names(store, "/packs/")) == 2
    if again:  # what it had sealed is deleted
        owner.must("key", "rotate", "data", "--full")
        (source / "more").write_bytes(b"more")
        push(owner, source)
        fresh.must("verify", "data", "--read-data")


def test_a_second_sealing_that_was_killed_does_not_hide_the_first(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path
) -> None:
    """What was moved and told keeps that place until the next one is told, too; elsewhere that one is deleted."""

    for name in ("kept", "gone"):
        (source / name).write_bytes(os.urandom(100_000))
    push(owner, source)
    for name in ("gone", "kept"):
        (source / name).unlink()
        push(owner, source)
    clock.pass_days(8)
    owner.must("forget", "data@1")
    for packs in (1, 0):
        assert owner.must("prune", "--max-unused", "0%")["repacked"] == packs
        clock.pass_days(15)
    owner.must("forget", "data@2")  # so the pack that was sealed anew has spare bytes, too
    other = Person("olga", owner.machine.clone(tmp_path / "other"), store)
    with pytest.raises(Killed):
        over(owner, NoRelocations(store)).run("prune", "--max-unused", "0%")
    owner.must("verify", "data", "--read-data")
    for _ in range(3):
        clock.pass_days(15)
        other.must("prune", "--no-repack")
    for number in range(3):
        owner.must("prune", "--max-unused", "0%")
        for who in (owner, other):
            who.must("verify", "data", "--read-data")
            who.must("pull", "data", tmp_path / f"out{number}{who is owner}", "-q")
        clock.pass_days(15)


def test_a_needed_pack_that_is_gone_ends_it_before_anything_is_written(
    owner: Person, source: Path, store: MemoryStore, clock: Clock
) -> None:
    for _ in range(3):
        (source / "changing").write_bytes(os.urandom(2000))
        push(owner, source)
    owner.must("forget", "data@1")
    clock.pass_days(8)
    with session(owner) as made:
        history = made.repository.open("data").history
        reader = ManifestReader(history, history.read(3))
        needed = {chunk.pack.id.hex() for entry, page in reader.entries() for chunk in reader.chunks(entry, page)}
    assert len(needed) == 2
    for victim in (name for name in names(store, "/packs/") if name.rpartition("/")[2] in needed):
        data = store.get(victim, limit=10**8)
        store.delete(victim)
        before = names(store)
        for words in (("prune", "-n"), ("prune",)):
            owner.refused(7, *words, words="a snapshot needs this pack")
        assert names(store) == before
        store.put_if_absent(victim, data)
    assert owner.must("prune")["condemned"]


def test_a_full_disk_for_the_tables_of_the_survey_is_told(
    owner: Person, source: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(owner, source)
    before, connect = names(store), sqlite3.connect

    def small(place: str) -> sqlite3.Connection:
        found = connect(place)
        found.execute("PRAGMA max_page_count = 3")
        return found

    monkeypatch.setattr(sqlite3, "connect", lambda place, **more: connect(place, **more) if more else small(place))
    owner.refused(8, "prune", words="TMPDIR")
    assert names(store) == before


# clocks


@pytest.mark.parametrize(("at_first", "later"), [(400, 0), (0, -20), (400, 400)])
def test_a_pushing_machine_whose_clock_is_wrong_relies_on_nothing_that_was_deleted(
    owner: Person,
    source: Path,
    store: MemoryStore,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_first: int,
    later: int,
) -> None:
    wrong = [float(at_first)]

    def now() -> float:
        return clock() + wrong[0] * DAY

    told = SimpleNamespace(time=now, time_ns=lambda: int(now() * 1e9), monotonic=time.monotonic)
    for module in ("pipeline", "store", "sync"):
        monkeypatch.setattr(f"datasync.push.{module}.time", told)
    other, data = Person("olga", owner.machine.clone(tmp_path / "other"), store), os.urandom(50_000)
    push(owner, source)
    (source / "gone").write_bytes(data)
    push(owner, source)
    (source / "gone").unlink()
    wrong[0] = 0
    push(other, source, "--source-change")
    other.must("forget", "data@2")
    clock.pass_days(8)
    assert other.must("prune")["condemned"] == 2
    clock.pass_days(15)
    assert other.must("prune")["deleted"] == 2
    wrong[0] = later
    (source / "gone").write_bytes(data)  # the machine's record knows where its chunk was
    push(owner, source)
    other.must("verify", "data", "--read-data")


def test_a_list_with_times_of_a_clock_that_was_behind_deletes_nothing_early(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        (source / "changing").write_bytes(os.urandom(2000))
        push(owner, source)
    owner.must("forget", "data@1")
    clock.pass_days(30)
    right = History.now
    monkeypatch.setattr(History, "now", lambda history: right(history) - 20 * 86_400_000)
    with pytest.raises(Killed):  # before it corrects the times
        over(owner, DyingAtWrites(store, 1, after=True)).run("prune", "--no-repack")
    monkeypatch.setattr(History, "now", right)
    with session(owner) as made:
        history = made.repository.open("data").history
        (since,) = [since for _, since in read_list(history)[0].packs]
        assert history.now() - since > 19 * 86_400_000
    assert owner.must("prune", "--no-repack")["deleted"] == 0
    clock.pass_days(13)
    assert owner.must("prune", "--no-repack")["deleted"] == 0
    clock.pass_days(1.1)
    assert owner.must("prune", "--no-repack")["deleted"] == 1


# people


def test_a_push_only_writer_of_two_sources_relies_on_no_pack_that_was_condemned(
    owner: Person, person: Callable[[str], Person], source: Path, store: MemoryStore, clock: Clock, tmp_path: Path
) -> None:
    """The other source's push learns of the new list; this one's record has to notice all the same."""
    push(owner, source)
    lab, second, data = person("lab"), tmp_path / "second", os.urandom(50_000)
    owner.grant("data", lab, "push-only")
    second.mkdir()
    (second / "x").write_bytes(os.urandom(1000))
    push(lab, source, "--source-change")
    (source / "gone").write_bytes(data)
    push(lab, source)
    (source / "gone").unlink()

    def both() -> None:
        (second / "x").write_bytes(os.urandom(1000))
        push(lab, second, "--source-change")
        (source / "a").write_bytes(os.urandom(1000))
        push(lab, source, "--source-change")

    for _ in range(6):  # the record is never old
        both()
        clock.pass_days(5)
        owner.must("forget", "data", "--keep-last", "1")
        owner.must("prune", "--no-repack")
    (second / "x").write_bytes(os.urandom(1000))
    push(lab, second, "--source-change")
    (source / "gone").write_bytes(data)
    push(lab, source, "--source-change")
    owner.must("verify", "data", "--read-data")
    owner.must("pull", "data", tmp_path / "out", "-q")
    assert contents(tmp_path / "out") == contents(source)


def test_a_tag_that_is_set_while_a_person_looks_at_the_plan_is_kept(owner: Person, source: Path) -> None:
    for _ in range(3):
        (source / "changing").write_bytes(os.urandom(2000))
        push(owner, source)
    owner.must("tag", "data@2", "old")
    for options in (ForgetOptions(KeepRules(last=1)), ForgetOptions(KeepRules(last=1), include_tagged=True)):
        with session(owner) as made:
            (plan,) = forgetting.plan(made, ["data"], options)
            owner.must("tag", "data@1", "kept")
            with pytest.raises(UsageError, match="'kept' was set meanwhile"):
                forgetting.carry_out(made, plan)
        owner.must("tag", "data", "kept", "--delete")
    owner.must("ls", "data@1")


def test_an_empty_pattern_of_tags_is_refused(owner: Person, source: Path) -> None:
    push(owner, source)
    owner.refused(2, "forget", "data", "--keep-tag", "", words="--keep-tag")
