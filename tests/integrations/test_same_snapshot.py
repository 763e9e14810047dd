"""Ranks agree on the root hash, or the job ends: the rule alone, without PyTorch."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import datasync
from datasync.errors import IntegrityError, UsageError
from datasync.integrations.torch import Answer, assert_same_snapshot, compare
from tests.support.cli import DATASET, Machine

A, B = "a" * 64, "b" * 64


def answers(*roots: str) -> dict[int, Answer]:
    return {rank: (root, "" if root else "no receipt", f"host{rank}") for rank, root in enumerate(roots)}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in no group, whether PyTorch is here or not."""
    fake = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch.distributed", fake)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    machine = Machine(home, str(tmp_path / "repository"))
    with machine.session() as session:
        session.initialise()
    (tmp_path / DATASET).mkdir()
    (tmp_path / DATASET / "file").write_text("x")
    machine.push(tmp_path / DATASET)
    return machine.warm()[0].path


def test_equal_roots_are_accepted() -> None:
    compare(answers(A))
    compare(answers(A, A, A))


def test_the_ranks_that_differ_are_named() -> None:
    with pytest.raises(IntegrityError, match=r"^snapshot of ranks 1, 3: .*3 of 5 ranks.*rank 1 \(host1\) bbbb"):
        compare(answers(A, B, A, B, A))


def test_a_rank_without_a_view_is_named() -> None:
    with pytest.raises(IntegrityError, match=r"^snapshot of rank 2: .*rank 2 \(host2\): no receipt"):
        compare(answers(A, A, ""))


def test_many_ranks_are_not_all_written_out() -> None:
    with pytest.raises(IntegrityError, match=r"and 34 more: ") as caught:
        compare(answers(*[A] * 60, *[""] * 50))
    assert len(str(caught.value)) < 2000


@pytest.mark.usefixtures("alone")
def test_the_view_is_found_by_name_by_path_and_as_the_only_one(view: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASYNC_DATASET_DATA", str(view))
    found = {assert_same_snapshot(asked) for asked in (None, "data", "data:prod", str(view), view, f"{view}/")}
    found.add(assert_same_snapshot(view.with_name(view.name + ".READY.json")))
    assert len(found) == 1
    assert datasync.torch.assert_same_snapshot(view) in found
    monkeypatch.setenv("DATASYNC_DATASET_OTHER", str(view))
    with pytest.raises(UsageError, match="name the dataset"):
        assert_same_snapshot()


@pytest.mark.usefixtures("alone")
def test_a_view_that_is_not_whole_is_refused(view: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = view.with_name(view.name + ".READY.json")
    data = receipt.read_bytes()
    receipt.write_bytes(data[:-9])
    with pytest.raises(IntegrityError, match="READY"):
        assert_same_snapshot(view)
    receipt.unlink()
    with pytest.raises(IntegrityError, match="expected the receipt"):
        assert_same_snapshot(view)
    gone = view.with_name("gone")
    gone.with_name("gone.READY.json").write_bytes(data)
    with pytest.raises(IntegrityError, match="expected the view"):
        assert_same_snapshot(gone)
    monkeypatch.delenv("DATASYNC_DATASET_UNSET", raising=False)
    with pytest.raises(UsageError, match="DATASYNC_DATASET_UNSET"):
        assert_same_snapshot("unset")


@pytest.mark.usefixtures("alone")
def test_a_rank_outside_any_group_is_told_so(view: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(UsageError, match="init_process_group"):
        assert_same_snapshot(view)


def test_without_torch_the_message_says_so(view: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    with pytest.raises(UsageError, match="install torch"):
        assert_same_snapshot(view)


def test_other_names_are_still_missing() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = datasync.no_such_name
