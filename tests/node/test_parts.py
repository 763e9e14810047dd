"""Parts of a snapshot, what comes first, private copies, and the record that scrub looks at first."""

import os
from pathlib import Path
from typing import Any

import pytest

from datasync.cache.layout import Cache
from datasync.model.entries import DIRECTORY, FILE, Entry
from datasync.pull.select import Selection
from datasync.service.scrub import FirstLook, first_look
from datasync.storage.local import LocalStore
from tests.support.machine import Machine
from tests.support.requests import RecordingStore, Request
from tests.support.trees import MIB


@pytest.fixture
def source(machine: Machine, tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for path, content in {
        "a/one.txt": b"1",
        "a/deep/two.jpg": b"22",
        "b/three.txt": b"333",
        "b/big.bin": os.urandom(3_000_000),
        "top.jpg": b"4444",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    machine.must("push", str(root), "--dataset", "data")
    return root


def entry(path: str) -> Entry:
    kind = DIRECTORY if path.endswith("/") else FILE
    return Entry(path.rstrip("/").encode(), kind, 0o644, 0, 0, (), b"", b"", (), (), ())


TREE = ["a/", "a/deep/", "a/deep/two.jpg", "a/one.txt", "b/", "b/three.txt", "top.jpg"]


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        ((), TREE),
        (("*.txt",), ["a/", "a/one.txt", "b/", "b/three.txt"]),
        (("a",), ["a/", "a/deep/", "a/deep/two.jpg", "a/one.txt"]),
        (("a/deep",), ["a/", "a/deep/", "a/deep/two.jpg"]),
        (("a/*.jpg",), ["a/", "a/deep/", "a/deep/two.jpg"]),
        (("*.jpg", "three*"), ["a/", "a/deep/", "a/deep/two.jpg", "b/", "b/three.txt", "top.jpg"]),
        (("nothing",), []),
    ],
)
def test_a_subset_takes_what_matches_with_its_parents(globs: tuple[str, ...], expected: list[str]) -> None:
    selection = Selection(globs)
    chosen = [item for path in TREE for item in selection.chosen(entry(path))]
    assert [item.path.decode() + ("/" if item.kind == DIRECTORY else "") for item in chosen] == expected


def test_the_first_pattern_that_matches_decides_the_order() -> None:
    selection = Selection((), ("*.jpg", "b"))
    assert [selection.priority(path) for path in (b"a/x.jpg", b"b", b"c")] == [0, 1, 2]


def files(root: str) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def result(machine: Machine, *arguments: str) -> dict[str, Any]:
    return machine.must(*arguments, "--json").result


def test_a_part_has_a_view_of_its_own_that_is_ready_and_deeply_checked(machine: Machine, source: Path) -> None:
    part = result(machine, "warm", "data", "--subset", "*.txt")
    assert files(part["path"]) == {"a/one.txt": b"1", "b/three.txt": b"333"}
    assert result(machine, "ready", "data", "--subset", "*.txt", "--deep")["files"] == 2
    assert machine.run("path", "data").code == 4  # a part is never taken for the whole
    whole = result(machine, "warm", "data")
    assert whole["path"] != part["path"]
    assert files(whole["path"]) == files(str(source))
    assert whole["kept"] == 2  # the part's files are shared


def test_what_is_ordered_first_is_fetched_all_the_same(machine: Machine, source: Path, tmp_path: Path) -> None:
    patterns = tmp_path / "patterns"
    patterns.write_text("*.jpg\n\nb/*\n")
    done = result(machine, "warm", "data", "--order", f"@{patterns}", "--order", "*.txt")
    assert files(done["path"]) == files(str(source))
    assert machine.run("warm", "data", "--order", "@/nowhere").code == 2


@pytest.mark.parametrize(("order", "first"), [((), "new"), (("--order", "n*"), "new"), (("--order", "o*"), "old")])
def test_what_is_ordered_first_is_asked_for_first(
    machine: Machine, tmp_path: Path, order: tuple[str, ...], first: str
) -> None:
    """Two packs: that of the first push, and that of the second one."""
    root = tmp_path / "two"
    root.mkdir()
    packs: dict[str, set[str]] = {}
    for name in ("old", "new"):
        (root / name).write_bytes(os.urandom(MIB))
        machine.must("push", root)
        there = {path.name for path in Path(machine.repository).glob("d/*/packs/??/*")}
        packs[name] = there - packs.get("old", set())
    requests: list[Request] = []
    machine.must("warm", "two", *order, store=RecordingStore(LocalStore(Path(machine.repository)), requests))
    asked = [request.name.rpartition("/")[2] for request in requests if request.kind == "get"]
    large = {name: max(pack, key=lambda item: size_of(machine, item)) for name, pack in packs.items()}
    assert min(large, key=lambda name: asked.index(large[name])) == first


def size_of(machine: Machine, pack: str) -> int:
    return next(Path(machine.repository).glob(f"d/*/packs/??/{pack}")).stat().st_size


def test_a_job_may_write_into_its_private_copy_and_the_view_stays(
    machine: Machine, source: Path, scratch: Path
) -> None:
    script = 'cd "$DATASYNC_DATASET_DATA" && pwd && echo mine > a/one.txt && rm top.jpg && cat a/one.txt'
    done = machine.spawn("run", "--data", "data", "--link", "copy", "--", "sh", "-c", script)
    place, content = done.out.splitlines()
    assert content == "mine"
    assert not Path(place).exists()
    assert not list((scratch / "cache/copies").iterdir())
    machine.must("ready", "data", "--deep")


def test_the_first_look_knows_every_object_and_finds_the_changed_one(
    machine: Machine, source: Path, scratch: Path
) -> None:
    view = Path(result(machine, "warm", "data")["path"])
    inodes = {path.stat().st_ino for path in view.rglob("*") if path.is_file()}
    with Cache.open(scratch / "cache") as cache:
        assert first_look(cache) == FirstLook(frozenset(inodes), ())
        big = view / "b/big.bin"
        times = big.stat()
        big.chmod(0o644)
        with big.open("r+b") as file:
            file.seek(2_000_000)
            file.write(b"flip")
        big.chmod(0o444)
        os.utime(big, ns=(times.st_mtime_ns, times.st_mtime_ns))
        assert first_look(cache).clean == inodes - {big.stat().st_ino}
        assert len(first_look(cache).damaged) == 1
    damaged = machine.run("cache", "scrub")
    assert (damaged.code, "b/big.bin" in damaged.err) == (7, True)
    assert result(machine, "warm", "data")["files"] == 1
    machine.must("cache", "scrub")


def test_large_files_are_allocated_and_sparse_ones_are_not(machine: Machine, tmp_path: Path) -> None:
    root = tmp_path / "sizes"
    root.mkdir()
    (root / "dense").write_bytes(os.urandom(6_000_000))
    with (root / "sparse").open("wb") as file:
        file.write(os.urandom(5_000_000))
        file.truncate(1 << 30)
    machine.must("push", str(root), "--dataset", "sizes")
    view = Path(result(machine, "warm", "sizes")["path"])
    assert (view / "dense").read_bytes() == (root / "dense").read_bytes()
    assert (view / "sparse").stat().st_blocks * 512 < 16_000_000
