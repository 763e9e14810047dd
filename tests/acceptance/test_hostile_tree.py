"""A hostile tree round-trips byte for byte, mode for mode, mtime for mtime, through every kind of store."""

import os
from pathlib import Path

import pytest

from datasync.crypto.identity_file import read_identity
from tests import reference_reader
from tests.support.cli import Machine
from tests.support.trees import DEEP_NAME, DEPTH, GIB, MIB, SPARSE_BYTES, Node, content, differences, survey

SPARSE = b"sparse/terabyte"
FEW_BYTES = 8 * MIB  # of disk, for 1 TiB with 5 MiB of data in it


@pytest.fixture(scope="session")
def hostile_survey(hostile_tree: Path) -> dict[bytes, Node]:
    return survey(hostile_tree)


def check_holes(copy: dict[bytes, Node]) -> None:
    assert copy[SPARSE].size == SPARSE_BYTES
    assert copy[SPARSE].stored < FEW_BYTES
    assert copy[b"sparse/five-gibibytes"].size == 5 * GIB
    assert copy[b"sparse/five-gibibytes"].stored == 0


def test_the_tree_is_what_it_claims_to_be(hostile_survey: dict[bytes, Node]) -> None:
    deep = b"/".join(DEEP_NAME % level for level in range(DEPTH)) + b"/bottom"
    assert len(deep) > os.pathconf("/", "PC_PATH_MAX")
    assert hostile_survey[deep].size == len(b"as deep as it gets")
    assert b"\xff\xfe" in hostile_survey
    assert hostile_survey[b"links/second"].links == (b"a-first", b"links/second", b"z-third")
    assert hostile_survey[b"links/inside"].links == (b"links/inside",)
    check_holes(hostile_survey)


def test_the_comparison_sees_each_kind_of_difference(scratch: Path) -> None:
    one, two = scratch / "one", scratch / "two"
    for root in (one, two):
        root.mkdir()
        (root / "file").write_bytes(content(1, 70_000))
        os.symlink("a", root / "link")
        for path in (root / "file", root / "link", root):
            os.utime(path, ns=(0, 5), follow_symlinks=False)
    before = survey(one)
    assert differences(before, survey(two)) == []
    (two / "file").write_bytes(content(2, 70_000))
    (two / "file").chmod(0o600)
    os.link(two / "file", two / "other")
    found = " ".join(differences(before, survey(two)))
    for word in (
        "content of b'file'",
        "mode of b'file'",
        "mtime of b'file'",
        "links of b'file'",
        "unexpected: b'other'",
    ):
        assert word in found
    assert "content" in " ".join(differences(before, survey(two), view=True))


def test_everything_comes_back_through_every_store(
    every_machine: Machine, hostile_tree: Path, hostile_survey: dict[bytes, Node], scratch: Path
) -> None:
    pushed = every_machine.push(hostile_tree)
    assert pushed.skipped == []
    assert pushed.totals.entries == len(hostile_survey) - 1
    every_machine.pull(scratch / "pulled")
    pulled = survey(scratch / "pulled")
    assert differences(hostile_survey, pulled) == []
    check_holes(pulled)
    warmed, _ = every_machine.warm()
    view = survey(warmed.path)
    assert differences(hostile_survey, view, view=True) == []
    check_holes(view)


def test_everything_comes_back_in_chunks_of_one_size(
    machine: Machine, hostile_tree: Path, hostile_survey: dict[bytes, Node]
) -> None:
    pushed = machine.push(hostile_tree, chunker="fixed")
    assert pushed.snapshot is not None
    assert pushed.snapshot.body.chunker == "fixed"
    view = survey(machine.warm()[0].path)
    assert differences(hostile_survey, view, view=True) == []
    check_holes(view)


def test_the_reference_reader_sees_the_same_tree(machine: Machine, hostile_tree: Path) -> None:
    machine.push(hostile_tree)
    (dataset,) = reference_reader.open_repository(Path(machine.url), read_identity(machine.identity).seed)
    (snapshot,) = dataset.snapshots()
    assert snapshot.tree_digest() == reference_reader.describe(hostile_tree)


def test_a_pushed_copy_is_the_same_snapshot(machine: Machine, hostile_tree: Path, scratch: Path) -> None:
    """Holes, times, modes and links come back so exactly that pushing the copy makes no new content and equal pages."""
    machine.push(hostile_tree)
    machine.pull(scratch / "pulled")
    copy = machine.push(scratch / "pulled", source_change=True)
    assert copy.progress.new_bytes == 0
    machine.pull(scratch / "again", "data@2")
    assert differences(survey(scratch / "pulled"), survey(scratch / "again")) == []


def test_written_zeros_are_few_chunks(machine: Machine, scratch: Path) -> None:
    zeros = scratch / "zeros"
    zeros.mkdir()
    with (zeros / "file").open("wb") as file:
        for _ in range(256):
            file.write(bytes(MIB))
    pushed = machine.push(zeros)
    assert pushed.progress.read_bytes == 256 * MIB
    assert pushed.progress.new_bytes <= 4 * MIB
    assert sum(item.size for item in machine.objects().values()) < MIB
    before = survey(zeros)
    warmed, meter = machine.warm()
    assert differences(before, survey(warmed.path), view=True) == []
    assert meter.get.bytes < MIB


@pytest.mark.long
def test_five_gibibytes_of_written_zeros(machine: Machine, scratch: Path) -> None:
    zeros = scratch / "zeros"
    zeros.mkdir()
    with (zeros / "file").open("wb") as file:
        for _ in range(5 * 1024):
            file.write(bytes(MIB))
    pushed = machine.push(zeros)
    assert pushed.progress.read_bytes == 5 * GIB
    assert pushed.progress.new_bytes <= 4 * MIB
    machine.pull(scratch / "pulled")
    assert differences(survey(zeros), survey(scratch / "pulled")) == []


def test_extended_attributes_come_back_when_asked_for(machine: Machine, scratch: Path) -> None:
    source = scratch / "source"
    (source / "directory").mkdir(parents=True)
    (source / "file").write_bytes(b"with attributes")
    (source / "large").write_bytes(content(5, 5 * MIB))
    try:
        os.setxattr(source / "file", "user.none", b"")
    except OSError as error:
        pytest.skip(f"this file system has no extended attributes: {error}")
    os.setxattr(source / "file", b"user.\xff", b"\0\xff" * 10)
    os.setxattr(source / "large", "user.label", b"l" * 1000)
    os.setxattr(source / "directory", "user.label", b"on a directory")
    os.setxattr(source, "user.root", b"on the root")
    machine.push(source)
    machine.pull(scratch / "without")
    assert all(node.xattrs == () for node in survey(scratch / "without").values())
    assert machine.push(source, xattrs=True).created
    machine.pull(scratch / "with")
    before = survey(source)
    assert before[b"file"].xattrs == ((b"user.none", b""), (b"user.\xff", b"\0\xff" * 10))
    assert differences(before, survey(scratch / "with")) == []
    assert differences(before, survey(machine.warm()[0].path), view=True) == []
