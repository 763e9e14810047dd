"""Holes are found without being read, and are bounded in number."""

import errno
import os
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.model.limits import ENTRY_HOLES
from datasync.push import extents
from datasync.push.extents import data_extents

TIB = 1 << 40
BLOCK = 4096


class Layout:
    """A file whose data extents are given: answers SEEK_DATA and SEEK_HOLE as a file system would."""

    def __init__(self, data: list[tuple[int, int]], size: int) -> None:
        self.data, self.size, self.calls = data, size, 0

    def lseek(self, _: int, position: int, whence: int) -> int:
        self.calls += 1
        if position >= self.size:
            raise OSError(errno.ENXIO, "past the end")
        at = bisect_right(self.data, position, key=lambda extent: extent[1])  # the first that ends after it
        start, end = self.data[at] if at < len(self.data) else (self.size, self.size)
        if whence == os.SEEK_HOLE:
            return position if position < start else end
        if start == self.size:
            raise OSError(errno.ENXIO, "no more data")
        return max(position, start)


def ask(layout: Layout, size: int | None = None) -> tuple[extents.Extents, extents.Extents]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasync.push.extents.os.lseek", layout.lseek)
        return data_extents(-1, layout.size if size is None else size)


def test_a_real_sparse_file(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, TIB)
    os.pwrite(fd, b"x" * BLOCK, 1 << 30)
    os.pwrite(fd, b"y" * BLOCK, TIB - BLOCK)
    data, holes = data_extents(fd, TIB)
    os.close(fd)
    assert sum(length for _, length in data) + sum(length for _, length in holes) == TIB
    assert len(data) == len(holes) == 2
    assert sum(length for _, length in data) <= 64 * BLOCK
    assert any(start <= 1 << 30 < start + length for start, length in data)


def test_a_hole_of_any_size_costs_one_call() -> None:
    layout = Layout([], TIB)
    assert ask(layout) == ((), ((0, TIB),))
    assert layout.calls == 1


def test_written_zeros_are_data_and_truncated_ones_a_hole(tmp_path: Path) -> None:
    (tmp_path / "written").write_bytes(bytes(1 << 20))
    with (tmp_path / "written").open("rb") as file:
        assert data_extents(file.fileno(), 1 << 20) == (((0, 1 << 20),), ())
    with (tmp_path / "truncated").open("w+b") as file:
        file.truncate(5 << 30)
        assert data_extents(file.fileno(), 5 << 30) == ((), ((0, 5 << 30),))


def test_an_empty_file_has_neither(tmp_path: Path) -> None:
    with (tmp_path / "empty").open("w+b") as file:
        assert data_extents(file.fileno(), 0) == ((), ())


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_that_can_not_tell_has_data_everywhere(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("datasync.push.extents.os.lseek", refused)
    assert data_extents(-1, 100) == (((0, 100),), ())


def test_a_broken_disk_is_not_a_file_system_that_can_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("datasync.push.extents.os.lseek", broken)
    with pytest.raises(OSError, match="Input/output"):
        data_extents(-1, 100)


def test_only_the_longest_holes_are_kept() -> None:
    short, count = 10, ENTRY_HOLES + 5
    data, position = [], 0
    for number in range(count):
        position += short if number % 2 else short + 1
        data.append((position, position + 1))
        position += 1
    kept_data, holes = ask(Layout(data, position))
    assert len(holes) == ENTRY_HOLES
    assert sum(length == short + 1 for _, length in holes) == (count + 1) // 2
    assert holes == tuple(sorted(holes))
    assert sum(length for _, length in holes) + sum(length for _, length in kept_data) == position
    assert kept_data[-1][0] + kept_data[-1][1] == position


def test_a_hole_that_appears_meanwhile_joins_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([10, 10, 20, 30, 50])  # data at 10 is gone when its end is asked for
    monkeypatch.setattr("datasync.push.extents.os.lseek", lambda *_: next(answers))
    assert data_extents(-1, 50) == (((20, 10),), ((0, 20), (30, 20)))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=30), st.integers(0, 60), st.integers(-40, 40)
)
def test_data_and_holes_partition_the_file(steps: list[tuple[int, int]], tail: int, grown: int) -> None:
    data: list[tuple[int, int]] = []
    position = 0
    for gap, length in steps:
        start = position + gap
        if data and gap == 0:
            data[-1] = (data[-1][0], start + length)
        else:
            data.append((start, start + length))
        position = start + length
    layout = Layout(data, position + tail)
    size = max(0, layout.size + grown)  # the file may have another length by now than was recorded
    found_data, holes = ask(layout, size)
    every = sorted(found_data + holes)
    assert all(length > 0 for _, length in every)
    assert [start for start, _ in every] == [sum(length for _, length in every[:index]) for index in range(len(every))]
    assert sum(length for _, length in every) == size
    for one, other in pairwise(holes):
        assert one[0] + one[1] < other[0]
    for start, end in data:
        assert all(start >= hole + length or min(end, size) <= hole for hole, length in holes)
