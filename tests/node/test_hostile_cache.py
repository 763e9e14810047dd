"""A view and its objects survive who meddles with the cache, an odd umask, a read-only disk and a clock set back."""

import errno
import os
import shutil
import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from datasync.cache import leases, pins
from datasync.cache.layout import Cache
from datasync.cache.leases import take_lease
from datasync.cache.pins import pin
from datasync.cache.space import Limits, Space
from datasync.cli import run
from datasync.errors import NotAuthorized
from tests.node.conftest import Disk
from tests.node.datasets import broken, fill, is_whole, make_view, place_of, receipts
from tests.support.machine import Machine
from tests.support.trees import KIB, survey


@pytest.fixture
def source(machine: Machine, scratch: Path) -> Path:
    made = fill(scratch / "data", 12, 10 * KIB)
    machine.must("push", made)
    return made


@pytest.fixture
def victim(scratch: Path) -> Path:
    """A directory outside the cache that nothing may touch."""
    place = scratch / "victim"
    place.mkdir()
    (place / "file").write_bytes(b"precious")
    return place


PLANTS = (
    "views",
    "objects",
    "views/data",
    "views/data/{stem}",
    "views/data/{stem}.READY.json",
    "views/data/.staging-{stem}",
    "views/data/.staging-{stem}.READY",
    "views/data/.lock-{stem}",
    "views/data/.lease-{stem}-0123",
    "views/data/.pin-{stem}",
    ".space.lock",
    ".reserved-0123456789abcdef",
    "quarantine",
    "objects/.markers.lock",
)


@pytest.mark.parametrize("kind", ["directory", "file", "nothing"])
@pytest.mark.parametrize("where", PLANTS)
def test_a_planted_link_is_never_written_through(
    machine: Machine, source: Path, scratch: Path, victim: Path, where: str, kind: str
) -> None:
    """Refused by name, or replaced; a warm that succeeds is whole."""
    cache, before = scratch / "cache", survey(victim)
    stem = place_of(Path(machine.must("warm", "data", "--json").result["path"] + ".READY.json")).name
    machine.must("cache", "evict", "data")
    path = cache / where.format(stem=stem)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to({"directory": victim, "file": victim / "file", "nothing": victim / "new"}[kind])
    ran = machine.run("warm", "data", "--pin")
    assert survey(victim) == before
    assert ran.code in (0, 2, 7), ran
    assert len(ran.err.splitlines()) == 1
    if ran.code:
        assert any(part in ran.err for part in Path(where.format(stem=stem)).parts)
        path.unlink(missing_ok=True)
        machine.must("warm", "data")
    assert broken(cache, {"data/1": survey(source)}) == []
    if path.is_symlink():  # not looked at until now
        assert machine.run("ready", "data").code in (0, 7)
        path.unlink()
    machine.must("ready", "data", "--deep")
    machine.must("cache", "purge", "--yes")
    assert survey(victim) == before


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_no_umask_changes_what_is_made(machine: Machine, source: Path, scratch: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        if umask == 0o777 and os.geteuid() != 0:
            pytest.skip("under this umask only root can use what it made")
        ran = machine.must("warm", "data", "--json")
        machine.must("ready", "data", "--deep")
        machine.must("cache", "evict", "data")
        machine.must("warm", "data", "--pin")
    finally:
        os.umask(before)
    cache, view = scratch / "cache", Path(ran.result["path"])
    modes = {
        path: stat.S_IMODE(path.stat().st_mode) for path in (cache / "objects", cache / "views", view.parent, view)
    }
    assert list(modes.values()) == [0o700, 0o751, 0o751, 0o700]
    assert stat.S_IMODE(receipts(cache)[0].stat().st_mode) == 0o600
    assert broken(cache, {"data/1": survey(source)}) == []


def test_a_disk_that_becomes_read_only_keeps_its_views(
    machine: Machine, source: Path, scratch: Path, disk: Disk
) -> None:
    place = disk("40m")
    machine = replace(machine, extra={"DATASYNC_CACHE": str(place / "cache")})
    machine.must("warm", "data")
    before = survey(place)
    (source / "class-0" / "00000").write_bytes(b"changed")
    machine.must("push", source)
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    try:
        for command in (["warm", "data"], ["warm", "data@1"], ["cache", "evict", "data"], ["cache", "purge", "--yes"]):
            ran = machine.spawn(*command)
            assert ran.code in (6, 11), ran
            assert "Traceback" not in ran.err
            assert "unexpected" not in ran.err
        assert survey(place) == before
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
    machine.must("ready", "data@1", "--deep")
    machine.must("warm", "data")
    machine.must("ready", "data", "--deep")


def test_a_job_ends_with_its_own_code_on_a_disk_that_became_read_only(
    machine: Machine, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel does it to a disk with errors: a person can not, while the lease is open for writing."""

    release = leases.Lease.release

    def refuse(lease: leases.Lease) -> None:
        release(lease)
        raise NotAuthorized("the disk is read-only")

    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(leases.Lease, "release", refuse)
        patch.setattr(leases.Lease, "beat", fail)
        patch.setattr(run, "BEAT_SECONDS", 0.02)
        ran = machine.run("run", "--data", "data", "--", "sh", "-c", "sleep 0.2; exit 37")
    assert ran.code == 37, ran
    assert "read-only" in ran.err
    machine.must("cache", "evict", "data")


# the clock


class Clock:
    """Stands in for the module `time` of one module: set off by some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def time(self) -> float:
        return time.time() + self.seconds

    def time_ns(self) -> int:
        return time.time_ns() + int(self.seconds * 1e9)


@pytest.mark.parametrize("seconds", [-86_400 * 365, -3600, 0])
def test_a_clock_set_back_ends_no_lease_and_no_pin(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    leased, pinned = make_view(cache, "leased"), make_view(cache, "pinned")
    lease = take_lease(cache, leased)
    pin(cache, pinned, int((time.time() + 60) * 1000))
    monkeypatch.setattr(leases, "time", Clock(seconds))
    monkeypatch.setattr(pins, "time", Clock(seconds))
    space = Space(cache, Limits(), reflinks=False)
    assert not space.evict(leased)
    assert not space.evict(pinned)
    lease.release()  # used, by this clock, long ago
    assert next(view for _, view in space.views()) == (leased if seconds else pinned)
    assert is_whole(leased)
    assert space.evict(leased)


def test_a_lease_survives_a_clock_set_forward(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flock counts, not its age."""
    view = make_view(cache)
    lease = take_lease(cache, view)
    monkeypatch.setattr(leases, "time", Clock(86_400 * 365))
    assert not Space(cache, Limits(), reflinks=False).evict(view)
    lease.release()


def test_a_warm_under_a_clock_set_back_is_whole(
    machine: Machine, source: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.must("warm", "data")
    (source / "class-0" / "00000").write_bytes(b"changed")
    machine.must("push", source)
    for module in ("datasync.cache.dirty.time", "datasync.cache.leases.time", "datasync.cache.pins.time"):
        monkeypatch.setattr(module, Clock(-86_400))
    assert machine.must("warm", "data", "--json").result["files"] == 1
    machine.must("ready", "data", "--deep")
    machine.must("ready", "data@1", "--deep")
    assert not list((scratch / "cache" / "objects").glob("objects.dirty.*"))


# another user


@pytest.mark.parametrize("part", ["", "objects", "views", "views/data"])
def test_a_directory_of_another_user_is_refused(machine: Machine, source: Path, scratch: Path, part: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("to give a directory away needs root")
    machine.must("warm", "data")
    machine.must("cache", "evict", "data")
    os.chown(scratch / "cache" / part, 65534, 65534)
    ran = machine.run("warm", "data")
    assert ran.code == 2
    assert "uid 65534" in ran.message
    assert str(scratch / "cache" / part) in ran.message
    assert receipts(scratch / "cache") == []


@pytest.mark.parametrize("part", ["", "objects", "views", "views/data"])
def test_a_directory_that_others_can_write_is_refused(machine: Machine, source: Path, scratch: Path, part: str) -> None:
    machine.must("warm", "data")
    machine.must("cache", "evict", "data")
    (scratch / "cache" / part).chmod(0o777)
    ran = machine.run("warm", "data")
    assert ran.code == 2
    assert "chmod go-w" in ran.message
