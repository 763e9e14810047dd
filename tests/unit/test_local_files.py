"""Small local files that threads and processes replace at the same time, as the mirrors of one daemon do."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from datasync.repository.known_names import KnownNames
from datasync.repository.local import LocalCopies, replace_file

THREADS, TIMES = 8, 60


def test_names_are_kept_by_many_threads_at_once(tmp_path: Path) -> None:
    names = KnownNames(tmp_path / "state/names.json")

    def keep(thread: int) -> None:
        for _ in range(TIMES):
            names.keep(f"dataset{thread}", bytes([thread]) * 32)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(keep, range(THREADS)))
    assert names.all().items() <= {(f"dataset{thread}", bytes([thread]) * 32) for thread in range(THREADS)}
    assert names.all()
    assert [path.name for path in names.path.parent.iterdir()] == ["names.json"]


def test_one_copy_is_kept_by_many_threads_at_once(tmp_path: Path) -> None:
    def get(_: int) -> bytes:
        return LocalCopies(tmp_path / "objects").get("d/1", lambda: b"data", bytes)

    with ThreadPoolExecutor(THREADS) as pool:
        assert set(pool.map(get, range(THREADS * TIMES))) == {b"data"}
    assert [path.name for path in (tmp_path / "objects").iterdir()] == ["d_1"]


def test_a_file_that_can_not_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "taken", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
