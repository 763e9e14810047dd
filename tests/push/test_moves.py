"""A rename within the source is no loss; the same inode number on another disk is no rename."""

import shutil
from pathlib import Path

import pytest

from datasync.push import moves
from datasync.push.moves import Moves
from tests.support.machine import Machine

FILES = 40


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine.make(tmp_path / "home", str(tmp_path / "repository"))
    made.must("init")
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for number in range(FILES):
        path = root / f"d{number % 2}" / f"f{number:02}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {number}\n")
    return root


def test_every_file_renamed_is_pushed(machine: Machine, source: Path) -> None:
    machine.must("push", source, "--dataset", "data")
    for path in sorted(source.glob("d*/f*")):
        path.rename(path.with_name(f"renamed-{path.name}"))
    pushed = machine.must("push", source, "--dataset", "data", "--json").result
    assert (pushed["seq"], pushed["removed"], pushed["new_bytes"]) == (2, FILES, 0)


def test_a_renamed_folder_and_files_renamed_over_others_are_pushed(machine: Machine, source: Path) -> None:
    machine.must("push", source, "--dataset", "data")
    (source / "d0").rename(source / "z")
    for path in sorted((source / "d1").iterdir())[:18]:
        path.rename(sorted((source / "d1").iterdir())[-1])
    assert machine.must("push", source, "--dataset", "data", "--json").result["seq"] == 2


def test_renames_hide_no_deletions(machine: Machine, source: Path) -> None:
    machine.must("push", source, "--dataset", "data")
    (source / "d0").rename(source / "z")
    shutil.rmtree(source / "d1")
    for path in sorted((source / "z").iterdir())[:4]:
        path.unlink()
    refused = machine.run("push", source, "--dataset", "data")
    assert refused.code == 2
    assert "26 of the 42 entries of its last push are gone" in refused.err


def test_another_tree_in_its_place_is_a_loss(machine: Machine, source: Path, tmp_path: Path) -> None:
    machine.must("push", source, "--dataset", "data")
    shutil.move(source, tmp_path / "away")
    for number in range(FILES):
        path = source / "e" / f"g{number:02}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {number}\n")
    assert machine.run("push", source, "--dataset", "data").code == 2


@pytest.mark.parametrize("changed", [{"inode": 2}, {"mtime": 1}, {"size": 1}, {"kind": 2}])
def test_a_move_is_known_by_inode_time_size_and_kind_together(changed: dict[str, int]) -> None:
    found = Moves()
    entry = {"inode": 2**64 - 1, "mtime": 5, "size": 7, "kind": 1}
    found.gone(**entry)
    found.came(**{**entry, **changed})
    assert found.count() == 0
    found.came(**entry)
    assert found.count() == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "MOVES", 3)
    found = Moves()
    for number in range(5):
        found.gone(number, 0, 0, 1)
        found.came(number, 0, 0, 1)
    assert found.count() == 3
