"""Several cache directories are used together; one that dies is dropped with a word, and nothing else is lost."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.conftest import Disk
from tests.node.datasets import broken, fetches, fill, kill_all, receipts, start_counted
from tests.support.machine import Machine, Ran, finish
from tests.support.trees import KIB, MIB, survey


@pytest.fixture
def dirs(scratch: Path) -> tuple[Path, Path]:
    return scratch / "nvme0", scratch / "nvme1"


@pytest.fixture
def node(machine: Machine, dirs: tuple[Path, Path]) -> Machine:
    return replace(machine, extra={"DATASYNC_CACHE": ":".join(map(str, dirs))})


def dir_of(ran: Ran) -> Path:
    """Return the cache directory that has the view."""
    return Path(ran.result["path"]).parents[2]


def test_snapshots_of_one_dataset_share_a_disk(node: Machine, scratch: Path, dirs: tuple[Path, Path]) -> None:
    source = fill(scratch / "data", 10, 20 * KIB)
    node.must("push", source)
    first = node.must("warm", "data", "--json")
    (source / "class-0" / "00000").write_bytes(b"changed")
    node.must("push", source)
    second = node.must("warm", "data", "--json")
    assert dir_of(first) == dir_of(second)
    assert second.result["files"] == 1
    for command in ("path", "ready"):
        assert node.must(command, "data", "--json").result["path"] == second.result["path"]
    assert sorted(item["views"] for item in node.must("cache", "status", "--json").result["caches"]) == [0, 2]


def test_views_are_found_on_every_disk(node: Machine, scratch: Path, dirs: tuple[Path, Path]) -> None:
    for name, place in zip(("one", "two"), dirs, strict=True):
        node.must("push", fill(scratch / name, 3, 5 * KIB))
        node.must("warm", name, "--cache", place)
    for name, place in zip(("one", "two"), dirs, strict=True):
        again = node.must("warm", name, "--json")
        assert (dir_of(again), again.result["fetched_bytes"]) == (place, 0)
    assert node.must("cache", "purge", "--yes", "--json").result["objects_left"] == 0
    assert [path for place in dirs for path in receipts(place)] == []


def become_a_file(place: Path) -> None:
    shutil.rmtree(place)
    place.write_bytes(b"")


def change_owner(place: Path) -> None:
    os.chown(place, 65534, 65534)


def become_writable_by_all(place: Path) -> None:
    place.chmod(0o777)


@pytest.mark.parametrize("death", [become_a_file, change_owner, become_writable_by_all])
def test_a_disk_that_dies_is_dropped_and_its_views_are_fetched_again(
    node: Machine, scratch: Path, dirs: tuple[Path, Path], death: object
) -> None:
    if death is change_owner and os.geteuid() != 0:
        pytest.skip("to give a directory away needs root")
    source = fill(scratch / "data", 8, 10 * KIB)
    node.must("push", source)
    dead = dir_of(node.must("warm", "data", "--json"))
    (alive,) = set(dirs) - {dead}
    assert callable(death)
    death(dead)
    missing = node.run("path", "data")
    assert missing.code == 4
    ran = node.must("warm", "data", "--json")
    assert (dir_of(ran), ran.result["files"]) == (alive, 8)
    for told in (missing, ran):
        assert f"cache directory {dead} is left out" in told.err
    assert broken(alive, {"data/1": survey(source)}) == []
    assert node.must("path", "data").out == f"{ran.result['path']}\n"
    assert node.must("ready", "data", "--deep").code == 0


def test_a_damaged_receipt_on_one_disk_is_told_and_the_view_made_on_another(
    node: Machine, scratch: Path, dirs: tuple[Path, Path]
) -> None:
    node.must("push", fill(scratch / "data", 8, 10 * KIB))
    bad = dir_of(node.must("warm", "data", "--json"))
    receipts(bad)[0].write_bytes(b"\0" * 500)
    ran = node.must("warm", "data", "--json")
    assert str(receipts(bad)[0] if receipts(bad) else bad) in ran.err
    node.must("ready", "data", "--deep")


def test_without_any_directory_the_reason_is_told(node: Machine, scratch: Path, dirs: tuple[Path, Path]) -> None:
    node.must("push", fill(scratch / "data", 1, KIB))
    for place in dirs:
        place.write_bytes(b"")
    ran = node.run("warm", "data")
    assert ran.code != 0
    assert all(str(place) in ran.err for place in dirs)


def test_one_transfer_whichever_disk_has_more_room_meanwhile(machine: Machine, scratch: Path, disk: Disk) -> None:
    source = fill(scratch / "data", 40, MIB)
    machine.must("push", source)
    dirs = [disk("100m") / "cache", disk("90m") / "cache"]
    node, log = replace(machine, extra={"DATASYNC_CACHE": ":".join(map(str, dirs))}), scratch / "log"
    children = [start_counted(node, log, 1.5, "warm", "data", "--json")]
    try:
        while sum(path.stat().st_size for path in dirs[0].glob("objects/??/*")) < 20 * MIB:
            assert children[0].poll() is None
            time.sleep(0.01)
        children.append(start_counted(node, log, 0, "warm", "data", "--json"))
        ran = [finish(child) for child in children]
    finally:
        kill_all(children)
    assert [done.code for done in ran] == [0, 0]
    assert ran[0].result["path"] == ran[1].result["path"]
    assert len({pid for pid, _ in fetches(log)}) == 1
    assert broken(dirs[0], {"data/1": survey(source)}) == []


def test_a_killed_transfer_goes_on_where_its_files_are(machine: Machine, scratch: Path, disk: Disk) -> None:
    machine.must("push", fill(scratch / "data", 40, MIB))
    dirs = [disk("100m") / "cache", disk("90m") / "cache"]
    node, log = replace(machine, extra={"DATASYNC_CACHE": ":".join(map(str, dirs))}), scratch / "log"
    child = start_counted(node, log, 1.5, "warm", "data")
    try:
        while len(list(dirs[0].glob("objects/??/*"))) < 20:
            assert child.poll() is None
            time.sleep(0.01)
    finally:
        kill_all([child])
    ran = node.must("warm", "data", "--json")
    assert dir_of(ran) == dirs[0]
    assert ran.result["kept"] >= 20
