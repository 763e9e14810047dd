"""The cache keeps its limit, makes room for what is asked by what nobody uses, and a full disk loses nothing."""

import errno
import fcntl
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasync.cache.kernel import sync_filesystem
from datasync.cache.layout import Cache, View
from datasync.cache.leases import take_lease
from datasync.cache.locks import ViewLock
from datasync.cache.objects import Objects
from datasync.cache.pins import pin
from datasync.cache.ready import stage_view
from datasync.cache.sizes import parse_size
from datasync.cache.space import Limits, Space
from datasync.errors import NoSpace, UsageError
from tests.node.conftest import Disk
from tests.node.datasets import (
    SNAPSHOT,
    broken,
    fill,
    is_whole,
    kill_all,
    make_view,
    place_of,
    receipts,
    start_counted,
    used_bytes,
)
from tests.support.machine import REPOSITORY_ROOT, Machine, finish
from tests.support.trees import KIB, MIB, content, differences, survey

PACK_BYTES = 32 * MIB


def space(cache: Cache, maximum: str = "100%", reserve: str = "0") -> Space:
    with Objects.open(cache) as objects:
        return Space(cache, Limits(maximum, reserve), reflinks=objects.reflinks)


class Waited(Exception):
    """Raised instead of waiting."""


def stop() -> None:
    raise Waited


def other(cache: Cache) -> View:
    """Return the places of a view that is to be made."""
    return cache.view("new", 1, SNAPSHOT)


# limits


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80%", (0.8, True)),
        ("0%", (0.0, True)),
        ("100%", (1.0, True)),
        ("12.5%", (0.125, True)),
        ("0", (0, False)),
        ("4096", (4096, False)),
        ("7B", (7, False)),
        ("1KB", (1000, False)),
        ("1.5KiB", (1536, False)),
        (" 500GiB ", (500 << 30, False)),
        ("2 TB", (2 * 10**12, False)),
        ("3MiB", (3 * MIB, False)),
    ],
)
def test_a_limit_is_a_share_or_a_size(text: str, value: tuple[float, bool]) -> None:
    assert parse_size(text, "cache.max") == value


@pytest.mark.parametrize(
    "text", ["", "%", "101%", "-1", "-5%", "1e9", "GiB", "5 gigabytes", "5gib", "0x10", "1,5GiB", "٣", "5GiB5", "nan"]
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"cache\.max.*500GiB"):
        parse_size(text, "cache.max")


def test_a_wrong_limit_is_told_before_anything_is_done(machine: Machine) -> None:
    for name, shown in (("DATASYNC_CACHE_MAX", "cache.max"), ("DATASYNC_CACHE_RESERVE", "cache.reserve")):
        ran = replace(machine, extra={**machine.extra, name: "much"}).run("warm", "data")
        assert ran.code == 2
        assert shown in ran.message


def test_a_share_is_one_of_the_file_system(cache: Cache) -> None:
    status = os.statvfs(cache.path)
    whole = status.f_blocks * status.f_frsize
    half = space(cache, "50%", "10%")
    assert (half.limit, half.reserve_bytes) == (int(whole * 0.5), int(whole * 0.1))


# reserving


def test_what_is_larger_than_the_cache_fails_at_once_with_the_size(cache: Cache) -> None:
    view = make_view(cache)
    with pytest.raises(NoSpace, match=r"1048577 bytes.*limit is 1048576.*cache\.max"):
        space(cache, "1MiB").reserve(MIB + 1, other(cache), stop)
    assert is_whole(view)


def test_the_command_tells_the_needed_size_and_gives_nothing_up(machine: Machine, scratch: Path) -> None:
    machine.must("push", fill(scratch / "small", 3, 10 * KIB))
    machine.must("push", fill(scratch / "large", 10, 200 * KIB, seed=1))
    tight = replace(machine, extra={**machine.extra, "DATASYNC_CACHE_MAX": "1MiB"})
    tight.must("warm", "small")
    before = survey(scratch / "cache" / "views" / "small")
    ran = tight.run("warm", "large")
    assert ran.code == 8
    assert str(10 * 200 * KIB + 10 * 4 * KIB) in ran.message
    assert survey(scratch / "cache" / "views" / "small") == before


def test_what_made_room_is_an_event(machine: Machine, scratch: Path) -> None:
    machine.must("push", fill(scratch / "first", 10, 50 * KIB))
    machine.must("push", fill(scratch / "second", 10, 50 * KIB, seed=1))
    tight = replace(machine, extra={**machine.extra, "DATASYNC_CACHE_MAX": "600KiB"})
    tight.must("warm", "first")
    tight.must("warm", "second")
    lines = machine.must("audit", "query", "--action", "cache.evict", "--json").out.splitlines()
    (event,) = [item for item in map(json.loads, lines) if item["type"] == "event"]
    assert (event["dataset"], event["snapshot_seq"], event["detail"]["automatic"]) == ("first", 1, 1)


def test_the_least_recently_used_views_make_room(cache: Cache) -> None:
    views = {name: make_view(cache, name, files=10, size=20 * KIB) for name in "abcd"}
    for at, name in enumerate("cadb"):
        os.utime(views[name].ready_path, (1_700_000_000 + at,) * 2)
    limit = used_bytes(cache.path / "objects") + 10 * KIB
    space(cache, str(limit)).reserve(300 * KIB, other(cache)).release()
    assert {name for name in "abcd" if views[name].ready_path.exists()} == {"d", "b"}
    assert is_whole(views["d"], 10, 20 * KIB)
    assert used_bytes(cache.path / "objects") + 300 * KIB <= limit


def test_a_use_makes_a_view_the_last_to_go(cache: Cache) -> None:
    first, second = make_view(cache, "a", files=10), make_view(cache, "b", files=10)
    for at, view in enumerate((first, second)):
        os.utime(view.ready_path, (1_700_000_000 + at,) * 2)
    take_lease(cache, first).release()
    assert [view for _, view in space(cache).views()] == [second, first]


def test_pinned_and_leased_views_never_make_room(cache: Cache) -> None:
    pinned, leased = make_view(cache, "a", files=10), make_view(cache, "b", files=10)
    pin(cache, pinned, 0)
    lease = take_lease(cache, leased)
    limit = used_bytes(cache.path / "objects") + 10 * KIB
    with pytest.raises(NoSpace, match="pinned or leased"):
        space(cache, str(limit)).reserve(50 * KIB, other(cache), stop)
    assert is_whole(pinned, 10)
    assert is_whole(leased, 10)
    lease.release()
    space(cache, str(limit)).reserve(50 * KIB, other(cache), stop).release()
    assert is_whole(pinned, 10)
    assert not leased.ready_path.exists()


def test_nothing_is_evicted_for_what_would_not_fit_anyway(cache: Cache) -> None:
    pinned, idle = make_view(cache, "a", files=10, size=20 * KIB), make_view(cache, "b", files=10, size=20 * KIB)
    pin(cache, pinned, 0)
    limit = used_bytes(cache.path / "objects") + 10 * KIB
    with pytest.raises(NoSpace):
        space(cache, str(limit)).reserve(limit - 100 * KIB, other(cache), stop)
    assert is_whole(idle, 10, 20 * KIB)
    space(cache, str(limit)).reserve(100 * KIB, other(cache), stop).release()
    assert not idle.ready_path.exists()


def test_what_lies_in_quarantine_counts(cache: Cache) -> None:
    view = make_view(cache)
    before = space(cache).used()
    (cache.path / "quarantine").mkdir()
    (cache.path / "quarantine" / "object").write_bytes(bytes(MIB))
    assert space(cache).used() == before + MIB
    with pytest.raises(NoSpace, match="quarantine"):
        space(cache, str(2 * MIB)).reserve(MIB + 512 * KIB, other(cache), stop)
    assert is_whole(view)


def test_partial_files_of_a_dead_transfer_are_gone_before_anything_is_counted(cache: Cache) -> None:
    dead = cache.view("dead", 1, SNAPSHOT)
    with stage_view(cache, dead) as tree:
        fd = tree.create(b"part")
        os.write(fd, bytes(MIB))
        os.close(fd)
    space(cache).reserve(KIB, other(cache), stop).release()
    assert used_bytes(cache.path / "views") == 0


def test_the_reserve_stays_free(cache: Cache) -> None:
    status = os.statvfs(cache.path)
    free = status.f_bavail * status.f_frsize
    with pytest.raises(NoSpace, match="are free"):
        space(cache, reserve=str(free)).reserve(64 * MIB, other(cache), stop)
    space(cache, reserve="1MiB").reserve(MIB, other(cache), stop).release()


def test_objects_that_views_share_are_counted_once_and_stay(cache: Cache) -> None:
    first = make_view(cache, "a", files=4)
    os.link(first.path / "0", cache.path / "views" / "a" / "further name")
    assert space(cache).used() == used_bytes(first.path)
    assert space(cache).remove_orphans() == 0


def test_what_nobody_shares_is_collected(cache: Cache) -> None:
    gone, kept = make_view(cache, "a", files=4), make_view(cache, "b", files=3)
    assert space(cache).evict(gone)
    assert space(cache).remove_orphans() == 4
    assert space(cache).used() == used_bytes(kept.path)
    assert is_whole(kept)


def test_dead_transfers_are_collected_and_living_ones_not(cache: Cache) -> None:
    dead, living = cache.view("dead", 1, SNAPSHOT), cache.view("living", 1, SNAPSHOT)
    lock = ViewLock(cache, living)
    lock.acquire()
    for view in (dead, living):
        with stage_view(cache, view) as tree:
            os.close(tree.create(b"half"))
    published = make_view(cache, "published")
    published.ready_path.unlink()  # killed between the two renames
    assert space(cache).remove_dead_transfers(None) == 2
    assert not published.path.exists()
    assert (cache.path / os.fsdecode(living.staging) / "half").exists()
    assert not (cache.path / os.fsdecode(dead.staging)).exists()
    assert space(cache).remove_orphans() == 3
    lock.release()


RESERVER = """
import sys
from pathlib import Path
from datasync.cache.layout import Cache
from datasync.cache.space import Limits, Space
with Cache.open(Path(sys.argv[1])) as cache:
    held = Space(cache, Limits("1MiB"), reflinks=False).reserve(900_000, cache.view("x", 1, bytes(32)))
    held.written(100_000)
    print("reserved", flush=True)
    sys.stdin.read()
"""


def test_a_reservation_counts_as_long_as_its_process_lives(cache: Cache) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", RESERVER, str(cache.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY_ROOT)},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"reserved\n"
        with pytest.raises(Waited):
            space(cache, "1MiB").reserve(MIB - 800_000 + 1, other(cache), stop)
        space(cache, "1MiB").reserve(MIB - 800_000, other(cache), stop).release()
    finally:
        child.kill()
        child.communicate()
    assert list(cache.path.glob(".reserved-*"))
    space(cache, "1MiB").reserve(MIB, other(cache), stop).release()
    assert not list(cache.path.glob(".reserved-*"))


def test_a_view_that_was_finished_just_now_is_waited_for(cache: Cache) -> None:
    """Its maker has given its reservation back and still holds the lock."""
    view = make_view(cache, files=10)
    lock = ViewLock(cache, view)
    lock.acquire()
    limit = used_bytes(cache.path / "objects") + 10 * KIB
    space(cache, str(limit)).reserve(50 * KIB, other(cache), lock.release).release()
    assert not view.ready_path.exists()


def test_a_lock_file_that_cannot_be_made_is_told(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    create = os.open
    monkeypatch.setattr(os, "open", lambda *a, **k: full() if a[1] & os.O_CREAT else create(*a, **k))
    with pytest.raises(NoSpace):
        space(cache).reserve(1, other(cache), stop)


# four at once in a cache for one

FILES, FILE_BYTES = 64, MIB


def watch(root: Path, peak: list[int], ended: threading.Event) -> None:
    while not ended.is_set():
        peak[0] = max(peak[0], used_bytes(root))
        ended.wait(0.01)


def test_four_datasets_take_turns_in_a_cache_for_one(machine: Machine, scratch: Path, disk: Disk) -> None:
    """Each file has several chunks, so files are partly written for a while."""
    names = ["a", "b", "c", "d"]
    sources = {}
    for at, name in enumerate(names):
        machine.must("push", fill(scratch / name, FILES, FILE_BYTES, seed=at))
        sources[f"{name}/1"] = survey(scratch / name)
    limit = FILES * FILE_BYTES * 12 // 10
    cache = disk("160m") / "cache"
    machine = replace(machine, extra={"DATASYNC_CACHE": str(cache), "DATASYNC_CACHE_MAX": str(limit)})
    peak, ended = [0], threading.Event()
    watcher = threading.Thread(target=watch, args=(cache, peak, ended))
    watcher.start()
    children = [start_counted(machine, scratch / "log", 0.3, "warm", name) for name in names]
    try:
        ran = [finish(child) for child in children]
    finally:
        ended.set()
        watcher.join()
        kill_all(children)
    assert [(done.code, done.err.count("ready")) for done in ran] == [(0, 1)] * 4, ran
    assert FILES * FILE_BYTES <= peak[0] <= limit + PACK_BYTES
    assert len(receipts(cache)) == 1
    assert broken(cache, sources) == []
    assert space_used(cache) <= limit
    assert not list(cache.glob(".reserved-*"))


def space_used(cache: Path) -> int:
    return used_bytes(cache / "objects")


# a full disk at every step


class FullAt:
    """Fails one call, the n-th that the cache or a pull makes of the chosen ones."""

    def __init__(self, patch: pytest.MonkeyPatch, n: int, *, from_then_on: bool) -> None:
        self.calls = 0
        self._n = n
        self._all = from_then_on
        self._lock = threading.Lock()
        for name in ("write", "pwrite", "fsync", "rename", "link", "mkdir", "ftruncate"):
            patch.setattr(os, name, self._wrap(getattr(os, name)))
        patch.setattr("datasync.cache.objects.sync_filesystem", self._wrap(sync_filesystem, always=True))

    def _wrap(self, function: Callable[..., Any], *, always: bool = False) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            module = sys._getframe(1).f_globals["__name__"]
            if always or module.startswith(("datasync.cache", "datasync.pull")):
                with self._lock:
                    self.calls += 1
                    full = self.calls == self._n or (self._all and self.calls > self._n)
                if full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*arguments, **options)

        return call


@pytest.mark.parametrize("from_then_on", [False, True], ids=["one-call", "from-then-on"])
def test_a_disk_that_is_full_at_any_step_loses_nothing(
    machine: Machine, scratch: Path, monkeypatch: pytest.MonkeyPatch, from_then_on: bool
) -> None:
    source = fill(scratch / "data", 6, 20 * KIB)
    (source / "large").write_bytes(content(99, 1536 * KIB))
    (source / "hole").touch()
    os.truncate(source / "hole", MIB)
    machine.must("push", source)
    sources = {"data/1": survey(source)}
    machine.must("warm", "data")
    for number in range(3):
        (source / "class-1" / f"new-{number}").write_bytes(content(50 + number, 10 * KIB))
    (source / "large").write_bytes(content(98, 1536 * KIB))
    machine.must("push", source)
    sources["data/2"] = survey(source)
    codes: list[int] = []
    while not codes or codes[-1] == 8 or len(codes) < 20:
        with monkeypatch.context() as patch:
            full = FullAt(patch, len(codes) + 1, from_then_on=from_then_on)
            ran = machine.run("warm", "data")
        codes.append(ran.code)
        assert ran.code in (0, 8), (len(codes), ran)
        assert ran.code == 0 or "full" in ran.message
        assert broken(scratch / "cache", sources) == []
        assert place_of(receipts(scratch / "cache")[0]).name.startswith("1-")
        again = machine.must("warm", "data", "--json").result
        assert Path(again["path"]).name.startswith("2-")
        assert broken(scratch / "cache", sources) == []
        assert len(receipts(scratch / "cache")) == 2
        machine.must("cache", "evict", "data@2")
        if full.calls < len(codes):  # it was not reached any more
            break
    assert codes.count(8) > 20
    machine.must("ready", "data@1", "--deep")


def test_a_small_disk_that_fills_up_keeps_the_last_view(machine: Machine, scratch: Path, disk: Disk) -> None:
    """Somebody else takes the space while files are written."""
    place = disk("24m")
    machine = replace(machine, extra={"DATASYNC_CACHE": str(place / "cache")})
    source = fill(scratch / "data", 10, 100 * KIB)
    machine.must("push", source)
    first = Path(machine.must("warm", "data", "--pin", "--json").result["path"])
    before = survey(first)
    for number in range(10):
        (source / f"more-{number}").write_bytes(content(number, MIB))
    machine.must("push", source)
    child = start_counted(machine, scratch / "log", 2.0, "warm", "data")
    try:
        while child.poll() is None and not list(place.glob("cache/.reserved-*")):
            time.sleep(0.005)
        status = os.statvfs(place)
        (place / "other").write_bytes(bytes(max(0, status.f_bavail * status.f_frsize - 3 * MIB)))
        ran = finish(child)
    finally:
        kill_all([child])
    assert ran.code == 8, ran
    assert survey(first) == before
    assert [place_of(path) for path in receipts(place / "cache")] == [first]
    (place / "other").unlink()
    ready = Path(machine.must("warm", "data", "--json").result["path"])
    assert differences(survey(source), survey(ready), view=True) == []
    machine.must("ready", "data", "--deep")


def test_an_eviction_while_another_process_locks_space_waits(cache: Cache) -> None:
    view = make_view(cache, files=10)
    limit = used_bytes(cache.path / "objects") + 10 * KIB
    space(cache).reserve(1, other(cache)).release()
    order: list[str] = []
    with (cache.path / ".space.lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def reserve() -> None:
            space(cache, str(limit)).reserve(50 * KIB, other(cache)).release()
            order.append("room")

        thread = threading.Thread(target=reserve)
        thread.start()
        time.sleep(random.uniform(0, 0.05))
        assert view.ready_path.exists()
        order.append("unlocked")
    thread.join(60)
    assert order == ["unlocked", "room"]
