"""Pushes and prunes at the same time, in every order of their requests: no push loses a pack that it relies on."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created
from tests.keys.forge import session
from tests.prune.conftest import Clock
from tests.prune.dying import copied
from tests.support.machine import contents
from tests.support.people import Person
from tests.support.scripted import Wrapped

MOST_REQUESTS = 80
CHANGING = ("put_if_absent", "list", "get", "get_range", "stat", "delete")


class At(Wrapped):
    """Runs *act* once, before request number *number*, unless that puts what *spared* is in the name of."""

    def __init__(self, store: MemoryStore, number: int, act: Callable[[], object], spared: str = "nothing") -> None:
        super().__init__(store)
        self._left, self._act, self._spared = number, act, spared
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in CHANGING:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self._left and not (name == "put_if_absent" and self._spared in arguments[0]):
                self._act()
            return found(*arguments, **options)

        return call


@pytest.fixture
def forgotten(owner: Person, source: Path, clock: Clock) -> bytes:
    """The only snapshots with a file `gone` are forgotten, its pack is old; return what was in the file."""
    data = os.urandom(50_000)
    (source / "gone").write_bytes(data)
    owner.must("push", source, "--dataset", "data")
    clock.pass_days(6)
    (source / "gone").unlink()
    (source / "here").write_bytes(os.urandom(50_000))
    owner.must("push", source, "--dataset", "data")
    owner.must("forget", "data@1")
    clock.pass_days(2)
    return data


def over(person: Person, store: Any, folder: Path) -> Person:
    """Return the same person, as now, over another store."""
    return Person(person.name, person.machine.clone(folder), store)


def push_until_done(person: Person, source: Path) -> int:
    """Push, again where that is asked for; return how often it was."""
    for tries in range(1, 4):
        ran = person.run("push", source, "--dataset", "data")
        if ran.code == 0:
            return tries
        assert ran.code == 5, ran
        assert "run the same line again" in ran.message
    raise AssertionError("the push does not end")


def whole(person: Person, source: Path, target: Path) -> None:
    person.must("verify", "data", "--read-data")
    person.must("pull", "data", target, "-q")
    assert contents(target) == contents(source)


@pytest.mark.parametrize("meanwhile", ["prune", "prune --max-unused 0%"])
def test_a_prune_before_each_request_of_a_push_that_relies_on_a_pack(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path, forgotten: bytes, meanwhile: str
) -> None:
    (source / "back").write_bytes(forgotten)  # the machine's record knows where its chunk lies
    now, again = clock.ahead, 0
    for number in range(1, MOST_REQUESTS):
        clock.ahead = now
        other = copied(store, clock)
        pruner = over(owner, other, tmp_path / f"pruner{number}")
        at = At(other, number, partial(pruner.must, *meanwhile.split()))
        again += push_until_done(over(owner, at, tmp_path / f"pusher{number}"), source) - 1
        for _ in range(2):
            clock.pass_days(15)
            pruner.must("prune")
        whole(pruner, source, tmp_path / f"out{number}")
        if at.count < number:
            break
    else:
        raise AssertionError("the push has no end")
    assert number > 10
    assert again > 0  # some of them relied on what was condemned


def test_a_push_that_lasts_as_long_as_the_grace_time_does_not_commit(
    owner: Person,
    source: Path,
    store: MemoryStore,
    clock: Clock,
    tmp_path: Path,
    forgotten: bytes,
) -> None:
    (source / "back").write_bytes(forgotten)
    now = clock.ahead
    for number in range(1, MOST_REQUESTS):
        clock.ahead = now
        other = copied(store, clock)
        pruner = over(owner, other, tmp_path / f"pruner{number}")

        def fortnight(who: Person = pruner) -> None:
            who.must("prune")
            clock.pass_days(15)
            who.must("prune")

        at = At(other, number, fortnight, spared="/snapshots/")  # a week between the last look and the put is lost
        push_until_done(over(owner, at, tmp_path / f"pusher{number}"), source)
        whole(pruner, source, tmp_path / f"out{number}")
        if at.count < number:
            break
    assert 10 < number < MOST_REQUESTS - 1


def test_two_prunes_at_once_delete_nothing_that_is_needed(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path, forgotten: bytes
) -> None:
    assert forgotten
    now = clock.ahead
    for days in (0, 15):
        clock.ahead = now
        owner.must("prune", "--max-unused", "0%") if days else None
        clock.pass_days(days)
        begun = clock.ahead
        for number in range(1 + bool(days), MOST_REQUESTS, 2):
            clock.ahead = begun
            other = copied(store, clock)
            second = over(owner, other, tmp_path / f"second{days}-{number}")
            at = At(other, number, partial(second.must, "prune", "--max-unused", "0%"))
            over(owner, at, tmp_path / f"first{days}-{number}").must("prune", "--max-unused", "0%")
            for _ in range(3):
                clock.pass_days(15)
                second.must("prune")
            whole(second, source, tmp_path / f"late{days}-{number}")
            found = second.must("prune")
            assert (found["waiting"], found["young"], found["condemned"]) == (0, 0, 0)
            if at.count < number:
                break
        assert 5 < number < MOST_REQUESTS - 1


def test_a_record_that_is_older_than_half_the_grace_time_relies_on_nothing_but_the_newest_snapshot(
    owner: Person, source: Path, clock: Clock, tmp_path: Path, forgotten: bytes
) -> None:
    pruner = over(owner, owner.store, tmp_path / "pruner")
    pruner.must("prune")
    clock.pass_days(15)
    assert pruner.must("prune")["deleted"] > 0  # the list is empty then, and the newest snapshot is the record's own
    (source / "back").write_bytes(forgotten)
    again = owner.must("push", source, "--dataset", "data")
    assert again["new_bytes"] == len(forgotten)
    whole(owner, source, tmp_path / "out")


def test_a_forget_while_a_push_runs_never_takes_what_it_builds_on(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path
) -> None:
    for number in range(3):
        (source / f"n{number}").write_bytes(os.urandom(2000))
        owner.must("push", source, "--dataset", "data")
    (source / "more").write_bytes(b"more")
    for number in range(1, MOST_REQUESTS):
        other = copied(store, clock)
        forgetter = over(owner, other, tmp_path / f"forgetter{number}")
        at = At(other, number, partial(forgetter.must, "forget", "data", "--keep-last", "1"))
        push_until_done(over(owner, at, tmp_path / f"pusher{number}"), source)
        whole(forgetter, source, tmp_path / f"out{number}")
        if at.count < number:
            break
    assert 5 < number < MOST_REQUESTS - 1


class OnPut(Wrapped):
    """Runs *act* once, before the first put of a name that has *part*."""

    def __init__(self, store: MemoryStore, part: str, act: Callable[[], object]) -> None:
        super().__init__(store)
        self._part, self._act = part, act
        self.ran = False

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        if self._part in name and not self.ran:
            self.ran = True
            self._act()
        return self._store.put_if_absent(name, data)


def test_a_snapshot_that_comes_between_survey_and_deletion_keeps_its_packs(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path, forgotten: bytes
) -> None:
    """Somebody brings an old state back without asking the list: even that loses nothing that could be seen."""
    assert forgotten
    other = copied(store, clock)
    with session(Person("olga", owner.machine, other)) as made:
        dataset = made.repository.open("data")
        two = dataset.history.read(2)
        (source / "here").unlink()
        owner_too = over(owner, other, tmp_path / "too")
        owner_too.must("push", source, "--dataset", "data")
        owner_too.must("forget", "data@2")
        clock.pass_days(8)
        owner_too.must("prune", "--no-repack")
        clock.pass_days(15)

        def back() -> None:
            fresh = made.repository.open("data").history
            fresh.commit(two.body, two.lists, lambda: None)

        at = OnPut(other, "/condemned/", back)
        over(owner, at, tmp_path / "pruner").must("prune", "--no-repack")
        assert at.ran
    owner_too.must("verify", "data", "--read-data")


def test_an_old_place_of_a_chunk_is_not_followed_when_a_push_brings_it_back_while_its_pack_is_emptied(
    owner: Person, store: MemoryStore, clock: Clock, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    data = {name: os.urandom(100_000) for name in "vwyz"}

    def push(files: str, who: Person = owner) -> None:
        for path in tree.iterdir():
            path.unlink()
        for name in files:
            (tree / name).write_bytes(data[name])
        who.must("push", tree, "--dataset", "data", "--allow-empty")

    def prune(times: int) -> None:
        owner.must("forget", "data", "--keep-last", "1")
        for _ in range(times):
            owner.must("prune", "--max-unused", "0%")
            clock.pass_days(15)

    push("yw")
    push("y")
    prune(1)  # y is moved
    push("v")
    prune(3)  # and needed no more: its second place is gone
    push("yzv")
    push("zv")
    owner.must("forget", "data", "--keep-last", "1")
    at = OnPut(store, "/condemned/", lambda: push("yzv"))
    over(owner, at, tmp_path / "pruner").must("prune", "--max-unused", "0%")  # the third place is being emptied
    assert at.ran
    whole(owner, tree, tmp_path / "now")
    for _ in range(3):
        clock.pass_days(15)
        owner.must("prune", "--max-unused", "0%")
    whole(owner, tree, tmp_path / "later")
