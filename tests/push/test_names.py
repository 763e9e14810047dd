"""The names of a directory come in byte order, whether they fit in memory or not."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.push.ignore import IgnoreRules
from datasync.push.names import READ_BYTES, NamesOnDisk, names_of
from datasync.push.scan import Found, Skipped, scan
from datasync.push.source import SourceTree

NAMES = st.lists(st.binary(min_size=1, max_size=255).filter(lambda name: b"\0" not in name), unique=True)


@given(NAMES, st.integers(min_value=1, max_value=7))
def test_names_on_disk_are_the_sorted_names(names: list[bytes], run_names: int) -> None:
    found = NamesOnDisk(iter(names), run_names)
    assert list(found) == sorted(names)
    assert len(found) == len(names)
    assert found.longest == max(map(len, names), default=0)


def test_runs_longer_than_one_read_are_whole() -> None:
    names = [b"%0200d" % number for number in range(READ_BYTES // 50)]
    assert list(NamesOnDisk(reversed(names), len(names) // 3)) == names


def test_a_large_directory_is_walked_like_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    for folder in (tmp_path, tmp_path / "inner"):
        for name in (b"b", b"a", b"\xff", b"c.tmp", b"\xc3\xa4", b"d" * 255):
            (folder / os.fsdecode(name)).touch()
    (tmp_path / ".datasyncignore").write_text("*.tmp\n")
    small = walk(tmp_path)
    monkeypatch.setattr("datasync.push.names.LARGE_BYTES", 0)
    monkeypatch.setattr("datasync.push.scan.NAME_BYTES", 254)
    skipped: list[Skipped] = []
    assert walk(tmp_path, skipped) == [found for found in small if not found.path.endswith(b"d" * 255)]
    assert [item.path[-255:] for item in skipped] == [b"d" * 255] * 2
    assert len(small) == 12


def walk(root: Path, skipped: list[Skipped] | None = None) -> list[Found]:
    with SourceTree.open(root) as tree:
        return list(scan(tree, IgnoreRules(), (skipped if skipped is not None else []).append))


def test_a_directory_of_any_size_is_listed_in_byte_order(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number * 7919 % 50}").touch()
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert list(names_of(fd, 2**40)) == list(names_of(fd, 4096)) == sorted(b"%d" % number for number in range(50))
    finally:
        os.close(fd)
