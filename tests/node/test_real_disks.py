"""Real disks: one dies in the middle of a warm; xfs and btrfs share blocks by reflink, and btrfs lists as it likes."""

import fcntl
import os
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest

from datasync.cache.layout import Cache
from datasync.cache.leases import living_leases, take_lease
from tests.node.conftest import Disk, LoopDisk
from tests.node.datasets import broken, fill, kill_all, make_view, start_counted
from tests.support.machine import Machine, finish
from tests.support.trees import MIB, survey

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, as XFS_IOC_GOINGDOWN: every later access fails, as of a device that is gone
NO_LOG_FLUSH = 2


def kill_disk(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(fd)


def test_a_disk_that_dies_in_the_middle_is_dropped(
    machine: Machine, scratch: Path, loop_disk: LoopDisk, disk: Disk
) -> None:
    source = fill(scratch / "data", 40, MIB)
    machine.must("push", source)
    dying, alive = loop_disk("ext4", 200), disk("100m")
    dirs = [dying / "cache", alive / "cache"]
    node = replace(machine, extra={"DATASYNC_CACHE": ":".join(map(str, dirs))})
    child = start_counted(node, scratch / "log", 1.5, "warm", "data", "--json")
    try:
        while sum(path.stat().st_size for path in dirs[0].glob("objects/??/*")) < 10 * MIB:
            assert child.poll() is None, finish(child)
            time.sleep(0.01)
        kill_disk(dying)
        ran = finish(child)
    finally:
        kill_all([child])
    assert ran.code == 0, ran
    assert Path(ran.result["path"]).parents[2] == dirs[1]
    assert f"cache directory {dirs[0]} is left out" in ran.err
    assert broken(dirs[1], {"data/1": survey(source)}) == []


def test_the_only_disk_that_dies_ends_the_warm_with_its_reason(
    machine: Machine, scratch: Path, loop_disk: LoopDisk
) -> None:
    machine.must("push", fill(scratch / "data", 40, MIB))
    dying = loop_disk("ext4", 200)
    node = replace(machine, extra={"DATASYNC_CACHE": str(dying / "cache")})
    child = start_counted(node, scratch / "log", 1.5, "warm", "data", "--json")
    try:
        while not list((dying / "cache").glob("objects/??/*")):
            assert child.poll() is None, finish(child)
            time.sleep(0.01)
        kill_disk(dying)
        ran = finish(child)
    finally:
        kill_all([child])
    assert ran.code == 1, ran
    assert "Input/output error" in ran.err


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_on_a_file_system_with_reflinks_views_share_blocks_and_no_inode(
    machine: Machine, scratch: Path, loop_disk: LoopDisk, kind: str
) -> None:
    cache = loop_disk(kind, 400) / "cache"
    node = replace(machine, extra={"DATASYNC_CACHE": str(cache)})
    source = fill(scratch / "data", 30, MIB)
    node.must("push", source)
    node.must("warm", "data")
    os.sync()
    free = os.statvfs(cache)
    (source / "class-0" / "00000").write_bytes(b"changed")
    node.must("push", source)
    second = node.must("warm", "data", "--json").result
    assert second["files"] == 1
    os.sync()
    after = os.statvfs(cache)
    assert (free.f_bfree - after.f_bfree) * free.f_frsize < 5 * MIB  # and not another 30 MiB
    objects = {path.stat().st_ino for path in cache.glob("objects/??/*")}
    files = [path for path in cache.glob("views/data/*/class-*/*") if path.is_file()]
    assert len(files) == 60
    assert objects.isdisjoint(path.stat().st_ino for path in files)
    assert len({path.stat().st_ino for path in files}) == 60
    node.must("cache", "scrub")
    node.must("ready", "data", "--deep")
    first = max(path for path in cache.glob("views/data/1-*/*/*") if path.is_file())
    first.chmod(0o644)
    first.write_bytes(b"a job that may write all the same")  # as root: the other view and the object stay as they are
    assert node.run("cache", "scrub", "data@1").code == 7
    node.must("ready", "data", "--deep")
    node.must("cache", "evict", "data@2")
    assert node.must("cache", "purge", "--yes", "--json").result["objects_left"] == 0


@pytest.mark.parametrize("kind", ["xfs", "btrfs", "ext4"])
def test_a_damaged_object_is_in_no_later_view(machine: Machine, scratch: Path, loop_disk: LoopDisk, kind: str) -> None:
    cache = loop_disk(kind, 400) / "cache"
    node = replace(machine, extra={"DATASYNC_CACHE": str(cache)})
    source = fill(scratch / "data", 5, MIB)
    node.must("push", source)
    node.must("warm", "data")
    victim = next(iter(cache.glob("objects/??/*")))
    times = victim.stat()
    victim.chmod(0o644)
    with victim.open("r+b") as file:
        file.write(b"flip")
    victim.chmod(times.st_mode & 0o777)
    os.utime(victim, ns=(times.st_mtime_ns, times.st_mtime_ns))
    ran = node.run("cache", "scrub")
    assert ran.code == (7 if kind == "ext4" else 0), ran  # with hard links the view has it, too
    assert not victim.exists()
    (source / "more").write_bytes(b"more")
    node.must("push", source)
    node.must("warm", "data")
    node.must("ready", "data", "--deep")


def test_a_lease_of_another_process_is_seen_whatever_was_open_before(
    machine: Machine, scratch: Path, loop_disk: LoopDisk
) -> None:
    """btrfs lists an open directory as it was when it was opened, until it is rewound."""
    place = loop_disk("btrfs", 200) / "cache"
    with Cache.open(place) as cache, Cache.open(place) as other:
        view = make_view(cache)
        assert living_leases(cache, view) == []
        lease = take_lease(other, view)
        assert len(living_leases(cache, view)) == 1
        lease.release()
