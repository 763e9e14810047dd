"""A survey finds by doing, and leaves nothing behind."""

import os
import subprocess
from pathlib import Path

import pytest

from datasync.cache import survey as module
from datasync.cache.layout import Cache
from datasync.cache.mounts import Kind, read_mounts
from datasync.cache.survey import Survey, SurveyOptions, survey
from datasync.model.limits import MIB
from tests.doctor.conftest import Mounter

SMALL = SurveyOptions(write_bytes=1 * MIB, files=10, links=20)


def look(path: Path, known: tuple[Survey, ...] = ()) -> Survey:
    return survey(path, "test", read_mounts(), SMALL, known)


def tree(path: Path) -> list[str]:
    return sorted(str(item) for item in path.rglob("*"))


def test_a_directory_that_is_not_there_is_measured_above_it_and_not_made(tmp_path: Path) -> None:
    found = look(tmp_path / "a" / "b" / "cache")
    assert found.problem == ""
    assert found.pace is not None
    assert found.pace.write > 0
    assert found.pace.files > 0
    assert found.free_bytes > 0
    assert found.device == tmp_path.stat().st_dev
    assert tree(tmp_path) == []


def test_a_cache_in_use_is_measured_and_left_as_it_is(tmp_path: Path) -> None:
    Cache.open(tmp_path / "cache").close()
    before = tree(tmp_path)
    assert look(tmp_path / "cache").problem == ""
    assert tree(tmp_path) == before


def test_a_file_system_is_timed_once(tmp_path: Path) -> None:
    first = look(tmp_path / "one")
    second = look(tmp_path / "two", (first,))
    assert (second.pace, second.same_as) == (first.pace, first.path)
    assert first.same_as is None


def test_a_directory_that_others_may_write_is_refused_as_the_cache_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.mkdir()
    path.chmod(0o777)
    found = look(path)
    assert "only its owner can write" in found.problem
    assert found.pace is None


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a directory away needs root")
    path = tmp_path / "cache"
    path.mkdir()
    os.chown(path, 12345, 12345)
    assert "found uid 12345" in look(path).problem
    assert tree(tmp_path) == [str(path)]


def test_a_file_in_the_way_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("x")
    assert look(tmp_path / "cache").problem
    assert look(tmp_path / "cache" / "deeper").problem


def test_a_full_disk_is_not_written_to(mount: Mounter) -> None:
    path = mount("tmpfs", "size=2m")
    found = look(path / "cache")
    assert "expected at least 4 MiB free, found 2 MiB" in found.problem
    assert (found.kind, found.pace) == (Kind.MEMORY, None)


def test_a_read_only_disk_is_a_problem(mount: Mounter) -> None:
    path = mount("tmpfs", "size=64m")
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)
    assert "read-only" in look(path / "cache").problem


def test_a_disk_without_inodes_is_a_problem_and_keeps_nothing(mount: Mounter) -> None:
    path = mount("tmpfs", "size=64m,nr_inodes=8")
    found = look(path / "cache")
    assert "full" in found.problem
    assert found.free_inodes is not None
    assert found.free_inodes < 8
    assert tree(path) == []


def test_a_signal_while_the_scratch_is_removed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = module._remove, []

    def interrupted(path: Path) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(path)

    monkeypatch.setattr(module, "_remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        look(tmp_path / "cache")
    assert len(calls) == 2
    assert tree(tmp_path) == []
