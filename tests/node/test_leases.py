"""A view in use is never evicted; a lease of the dead never keeps one."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from datasync.cache.kernel import current_boot_id
from datasync.cache.layout import Cache, View
from datasync.cache.leases import SILENT_SECONDS, Owner, living_leases, require_unleased, take_lease
from datasync.cache.pins import pin, pinned_until, unpin
from datasync.cache.space import Limits, Space
from datasync.errors import IntegrityError, Locked, NotFound
from tests.node.datasets import SNAPSHOT, fill, is_whole, make_view, receipts
from tests.support.machine import REPOSITORY_ROOT, Machine, finish

ROUNDS = 150  # of each race

HOLDER = """
import sys
from pathlib import Path
from datasync.cache.layout import Cache
from datasync.cache.leases import take_lease
with Cache.open(Path(sys.argv[1])) as cache:
    lease = take_lease(cache, cache.view("d", 1, bytes(range(32))))
    print("held", flush=True)
    sys.stdin.read()
"""

EVICTER = """
import sys
from pathlib import Path
from datasync.cache.layout import Cache
from datasync.cache.leases import living_leases
from datasync.cache.space import Limits, Space
from tests.node.datasets import make_view
with Cache.open(Path(sys.argv[1])) as cache:
    space, view = Space(cache, Limits(), reflinks=False), make_view(cache)
    print("running", flush=True)
    for _ in iter(int, 1):
        living_leases(cache, view)
        if space.evict(view):
            print("evicted", flush=True)
            make_view(cache)
"""


def start(script: str, cache: Cache) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(cache.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY_ROOT)},
    )
    assert child.stdout is not None
    assert child.stdout.readline()
    return child


def plant(cache: Cache, view: View, body: bytes, age: float = 0) -> Path:
    """Write a lease file that nobody holds."""
    path = cache.path / os.fsdecode(view.folder) / os.fsdecode(b".lease-" + view.stem + b"-" + b"0" * 16)
    path.write_bytes(body)
    os.utime(path, (time.time() - age,) * 2)
    return path


def space(cache: Cache) -> Space:
    return Space(cache, Limits(), reflinks=False)


def lease_files(cache: Path) -> list[Path]:
    return list(cache.glob("views/*/.lease-*"))


def test_a_lease_lives_as_long_as_its_process(cache: Cache) -> None:
    view = make_view(cache)
    child = start(HOLDER, cache)
    try:
        (owner,) = living_leases(cache, view)
        assert (owner.pid, owner.boot) == (child.pid, current_boot_id())
        assert not space(cache).evict(view)
        with pytest.raises(Locked, match=f"pid {child.pid}"):
            require_unleased(cache, view)
    finally:
        child.kill()
        child.communicate()
    assert living_leases(cache, view) == []
    assert lease_files(cache.path) == []
    assert space(cache).evict(view)
    with pytest.raises(NotFound, match="warm it again"):
        take_lease(cache, view)


def test_each_of_several_leases_keeps_the_view(cache: Cache) -> None:
    view = make_view(cache)
    first, second = take_lease(cache, view), take_lease(cache, view)
    first.release()
    first.release()
    assert not space(cache).evict(view)
    second.release()
    assert lease_files(cache.path) == []
    assert space(cache).evict(view)


def test_a_lease_is_of_one_snapshot_alone(cache: Cache) -> None:
    first, tenth = make_view(cache, seq=1), make_view(cache, seq=11)
    lease = take_lease(cache, first)
    assert living_leases(cache, tenth) == []
    assert space(cache).evict(tenth)
    lease.release()


@pytest.mark.parametrize("change", [{"boot": "of another machine"}, {"host": "other"}, {"boot": "x", "host": "y"}])
def test_a_lease_of_another_machine_lives_by_its_heartbeat(cache: Cache, change: dict[str, str]) -> None:
    view = make_view(cache)
    body = json.dumps(dataclasses.asdict(dataclasses.replace(Owner.this(), **change))).encode()  # type: ignore[arg-type]
    path = plant(cache, view, body, SILENT_SECONDS - 30)
    assert len(living_leases(cache, view)) == 1
    assert not space(cache).evict(view)
    os.utime(path, (time.time() - SILENT_SECONDS - 1,) * 2)
    assert living_leases(cache, view) == []
    assert not path.exists()


def test_a_beat_is_what_another_machine_sees(cache: Cache) -> None:
    lease = take_lease(cache, make_view(cache))
    (path,) = lease_files(cache.path)
    os.utime(path, (0, 0))
    lease.beat()
    assert time.time() - path.stat().st_mtime < SILENT_SECONDS
    lease.release()


def test_a_copied_lease_is_dead(cache: Cache, scratch: Path) -> None:
    """The image of a container was made while a job ran in it."""
    view = make_view(cache)
    lease = take_lease(cache, view)
    (path,) = lease_files(cache.path)
    shutil.copy2(path, path.with_name(path.name[:-1] + "Z"))
    assert len(living_leases(cache, view)) == 1
    shutil.copytree(cache.path, scratch / "clone", symlinks=True)
    with Cache.open(scratch / "clone") as clone:
        twin = clone.view("d", 1, SNAPSHOT)
        assert lease_files(clone.path)
        assert living_leases(clone, twin) == []
        assert space(clone).evict(twin)
    assert is_whole(view)
    lease.release()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 4000,
        b'{"pid":Infinity,"start":0,"boot":"","host":""}',
        b'{"pid":"x","start":0,"boot":"","host":""}',
        b'{"pid":' + b"9" * 5000,
        b"x" * 1_000_000,
    ],
)
def test_garbage_is_a_lease_until_it_is_old(cache: Cache, body: bytes) -> None:
    view = make_view(cache)
    path = plant(cache, view, body)
    assert len(living_leases(cache, view)) == 1  # its owner may be about to write it
    os.utime(path, (0, 0))
    assert living_leases(cache, view) == []
    assert space(cache).evict(view)


def test_a_planted_link_is_refused_and_not_followed(cache: Cache, scratch: Path) -> None:
    view = make_view(cache)
    victim = scratch / "victim"
    victim.write_text("{}")
    plant(cache, view, b"").unlink()
    plant_at = cache.path / os.fsdecode(view.folder) / os.fsdecode(b".lease-" + view.stem + b"-link")
    plant_at.symlink_to(victim)
    with pytest.raises(IntegrityError, match="symbolic link"):
        space(cache).evict(view)
    assert victim.read_text() == "{}"
    assert is_whole(view)


def test_a_full_disk_leaves_no_half_lease(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    view = make_view(cache)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", _full)
        with pytest.raises(Exception, match="full"):
            take_lease(cache, view)
    assert lease_files(cache.path) == []
    assert space(cache).evict(view)


def _full(*_: object) -> int:
    raise OSError(28, "No space left on device")


# pins


def test_a_pinned_view_stays_until_it_is_not(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    view = make_view(cache)
    pin(cache, view, 0)
    assert pinned_until(cache, view) == 0
    assert not space(cache).evict(view)
    unpin(cache, view)
    until = int(time.time() * 1000) + 60_000
    pin(cache, view, until)
    assert pinned_until(cache, view) == until
    assert not space(cache).evict(view)
    monkeypatch.setattr("datasync.cache.pins.time.time", lambda: until / 1000 + 1)
    assert pinned_until(cache, view) is None
    assert space(cache).evict(view)
    assert list(cache.path.glob("views/*/.pin-*")) == []  # the next view of that name begins without


@pytest.mark.parametrize("body", [b"", b"{}", b"[" * 4000, b'{"until":Infinity}', b'{"until":"x"}', b"\xff"])
def test_a_pin_that_is_none_pins_nothing(cache: Cache, body: bytes) -> None:
    view = make_view(cache)
    (cache.path / os.fsdecode(view.folder) / os.fsdecode(b".pin-" + view.stem)).write_bytes(body)
    assert pinned_until(cache, view) is None


def test_what_is_gone_can_not_be_pinned(cache: Cache) -> None:
    view = make_view(cache)
    assert space(cache).evict(view)
    with pytest.raises(NotFound, match="warm it again"):
        pin(cache, view, 0)


# an eviction and a lease at the same moment


@pytest.mark.parametrize("how", ["lease", "pin"])
def test_who_has_a_view_keeps_it_whoever_evicts(cache: Cache, how: str) -> None:
    view = cache.view("d", 1, SNAPSHOT)
    child = start(EVICTER, cache)
    evictions: list[str] = []
    assert child.stdout is not None
    reader = threading.Thread(target=lambda: evictions.extend(child.stdout or ()))
    reader.start()
    held = 0
    try:
        while held < ROUNDS or len(evictions) < 5:
            assert child.poll() is None
            try:
                lease = take_lease(cache, view) if how == "lease" else None
                if lease is None:
                    pin(cache, view, 0)
            except NotFound:
                continue
            held += 1
            for _ in range(3):
                assert is_whole(view)
            if lease is not None:
                lease.release()
            else:
                unpin(cache, view)
    finally:
        child.kill()
        child.wait()
        reader.join()
        child.communicate()
    assert held >= ROUNDS


# the job


JOB = "import os, sys; print(os.environ['DATASYNC_DATASET_DATA'], flush=True); sys.stdin.read()"


def start_job(machine: Machine, scratch: Path) -> tuple["subprocess.Popen[str]", Path]:
    machine.must("push", fill(scratch / "data", 5, 9000))
    job = machine.start("run", "--data", "data", "--", sys.executable, "-c", JOB, stdin=subprocess.PIPE)
    assert job.stdout is not None
    return job, Path(job.stdout.readline().removesuffix("\n"))


def leases_of(machine: Machine) -> list[int]:
    shown = [json.loads(line) for line in machine.must("cache", "ls", "--json").out.splitlines()]
    return [lease["pid"] for event in shown if event["type"] == "view" for lease in event["leases"]]


def test_run_holds_its_view_while_the_job_runs(machine: Machine, scratch: Path) -> None:
    job, path = start_job(machine, scratch)
    assert leases_of(machine) == [job.pid]
    refused = machine.run("cache", "evict", "data")
    assert (refused.code, path.is_dir()) == (11, True)
    assert f"pid {job.pid}" in refused.err
    assert finish(job).code == 0
    assert lease_files(scratch / "cache") == []
    machine.must("cache", "evict", "data")
    assert receipts(scratch / "cache") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_job_and_the_lease(machine: Machine, scratch: Path, number: signal.Signals) -> None:
    job, path = start_job(machine, scratch)
    job.send_signal(number)
    assert finish(job).code in (128 + number, 1)  # Python makes 1 of SIGINT
    assert lease_files(scratch / "cache") == []
    assert path.is_dir()
    machine.must("cache", "evict", "data")


def test_a_killed_run_leaves_no_living_lease(machine: Machine, scratch: Path) -> None:
    job, _ = start_job(machine, scratch)
    job.kill()
    job.communicate()
    assert lease_files(scratch / "cache")
    assert leases_of(machine) == []
    machine.must("cache", "evict", "data")


def test_a_job_that_cannot_be_warmed_leaves_no_lease_of_the_others(machine: Machine, scratch: Path) -> None:
    machine.must("push", fill(scratch / "data", 5, 9000))
    ran = machine.run("run", "--data", "data", "--data", "nothing", "--", "true")
    assert ran.code == 4
    assert lease_files(scratch / "cache") == []
