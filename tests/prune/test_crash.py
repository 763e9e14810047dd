"""Forget and prune are killed at every single write: what is living stays readable, and the same line again ends it."""

import os
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import reference_reader
from tests.prune.conftest import Clock
from tests.prune.dying import DyingAtWrites, TimedLocal
from tests.support.machine import Machine, tree
from tests.support.scripted import Killed

MOST_WRITES = 60  # of one command in these tests


@dataclass
class Place:
    """A machine, its repository, and what it pushed."""

    machine: Machine
    source: Path
    clock: Clock
    folder: Path

    @property
    def store(self) -> TimedLocal:
        return TimedLocal(self.machine.repository, self.clock)

    def must(self, *words: str | Path) -> None:
        self.machine.must(*words, store=self.store)

    def packs(self) -> set[str]:
        return {item.name for item in self.store.list("") if "/packs/" in item.name}

    def copy(self, folder: Path) -> "Place":
        """Return the same state elsewhere; the source is the same directory."""
        shutil.copytree(self.machine.repository, folder / "repository")
        machine = self.machine.clone(folder / "home")
        made = Machine.make(machine.home, str(folder / "repository"), machine.extra)
        for path in made.state.rglob("markers*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return Place(made, self.source, self.clock, folder)


@pytest.fixture
def place(tmp_path: Path, clock: Clock) -> Place:
    """Four snapshots whose packs are old; each shares a pack of several chunks with those after it."""
    folder = tmp_path / "first"
    machine = Machine.make(folder / "home", str(folder / "repository"))
    found = Place(machine, tmp_path / "source", clock, folder)
    found.source.mkdir()
    found.must("init")
    for number in range(4):
        for name in ("one", "two", "three"):
            (found.source / f"{name}{number}").write_bytes(os.urandom(100_000))
        if number:
            (found.source / f"one{number - 1}").unlink()
            (found.source / f"two{number - 1}").unlink()
        found.must("push", found.source, "--dataset", "data", "--allow-empty")
    clock.pass_days(8)
    return found


def living(place: Place) -> None:
    """Check that everything that is not forgotten is whole, to this reader and to the other one."""
    place.must("verify", "data", "--read-data")
    out = place.folder / f"out{len(list(place.folder.iterdir()))}"
    place.must("pull", "data", out, "-q")
    assert tree(out) == tree(place.source)
    identity = reference_identity(place)
    (dataset,) = reference_reader.open_repository(Path(place.machine.repository), identity)
    newest = dataset.head()
    assert newest is not None
    assert newest.tree_digest() == reference_reader.describe(place.source)
    assert dataset.snapshots()[-1].seq == 4


def reference_identity(place: Place) -> bytes:
    secrets = tomllib.loads(place.machine.identity.read_text())
    return bytes.fromhex(secrets["mlkem_seed"] + secrets["x25519"])


def each_crash(
    place: Place, folder: Path, words: tuple[str, ...], check: Callable[[Place], None], *, after: bool
) -> int:
    """Kill the command at each of its writes, on a copy each time; return how many writes it has."""
    now = place.clock.ahead
    for number in range(1, MOST_WRITES):
        place.clock.ahead = now
        copy = place.copy(folder / f"crash{number}")
        dying = DyingAtWrites(copy.store, number, after=after)
        try:
            copy.machine.run(*words, store=dying)
        except Killed:
            check(copy)
        else:
            return number - 1
    raise AssertionError("the command has no end")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_forget_is_killed_at_every_write(place: Place, tmp_path: Path, after: bool) -> None:
    def check(copy: Place) -> None:
        living(copy)
        copy.must("forget", "data", "--keep-last", "1")
        living(copy)
        assert copy.machine.run("ls", "data@2", store=copy.store).code == 4
        copy.must("prune")  # also removes what a killed forget left
        assert len([item for item in copy.store.list("") if "/snapshots/" in item.name]) == 1

    count = each_crash(place, tmp_path / str(after), ("forget", "data", "--keep-last", "1"), check, after=after)
    assert count == 4  # the forgotten object, three snapshots


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_prune_that_condemns_and_seals_anew_is_killed_at_every_write(
    place: Place, tmp_path: Path, after: bool
) -> None:
    place.must("forget", "data", "--keep-last", "1")

    def check(copy: Place) -> None:
        living(copy)
        finish(copy)

    count = each_crash(place, tmp_path / str(after), ("prune", "--max-unused", "0%"), check, after=after)
    assert count >= 5  # a data pack, its relocations, the emptied packs, the list


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_prune_that_deletes_is_killed_at_every_write(place: Place, tmp_path: Path, after: bool) -> None:
    place.must("forget", "data", "--keep-last", "1")
    place.must("prune", "--max-unused", "0%")
    place.clock.pass_days(15)

    def check(copy: Place) -> None:
        living(copy)
        finish(copy)

    count = each_crash(place, tmp_path / str(after), ("prune",), check, after=after)
    assert count >= 8  # the list, at least five packs, the list again


def finish(copy: Place) -> None:
    """Let enough days and runs pass: nothing that is not needed is left then, and nothing is missing."""
    for _ in range(4):
        copy.clock.pass_days(15)
        copy.must("prune", "--max-unused", "0%")
    living(copy)
    found = copy.machine.must("prune", "--json", store=copy.store).result
    assert (found["condemned"], found["deleted"], found["waiting"], found["young"]) == (0, 0, 0, 0)
    assert found["packs"] == len(copy.packs())


def test_the_other_reader_knows_what_was_forgotten(place: Place) -> None:
    place.must("forget", "data@1", "data@3")
    finish(place)
    (dataset,) = reference_reader.open_repository(Path(place.machine.repository), reference_identity(place))
    assert (sorted(dataset.forgotten), [item.seq for item in dataset.snapshots()]) == ([1, 3], [2, 4])
    assert dataset.moved
    assert dataset.emptied
