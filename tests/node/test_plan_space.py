"""A plan tells the space that a warm needs and what would be evicted for it, in the words of the warm."""

import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from datasync.cache.forecast import Forecast, Room
from datasync.cache.layout import Cache, View
from datasync.cache.leases import take_lease
from datasync.cache.locks import ViewLock
from datasync.cache.pins import pin
from datasync.cache.space import Limits, Space
from datasync.errors import NoSpace
from tests.node.conftest import Disk, LoopDisk
from tests.node.datasets import SNAPSHOT, fill, make_view, receipts, used_bytes
from tests.node.planned import Site, change, compare, receipt_of, story
from tests.support.machine import Machine
from tests.support.trees import KIB, MIB, content


@pytest.fixture
def site(machine: Machine, scratch: Path) -> Site:
    return Site.make(machine, scratch)


def test_it_tells_the_cache_that_warm_takes(site: Site, scratch: Path) -> None:
    caches = [f"--cache={scratch / 'cache' / name}" for name in ("a", "b")]
    site.result("warm", "data", caches[1])
    change(site.source)
    site.machine.must("push", site.source)
    plan = site.plan("plan", "data", *caches)
    assert plan["cache"] == str(scratch / "cache" / "b")
    compare(site, plan, "warm", "data", *caches)
    assert not (scratch / "cache" / "a" / "views" / "data").exists() or not receipts(scratch / "cache" / "a")


def limited(site: Site, size: int | str) -> Site:
    extra = {**site.machine.extra, "DATASYNC_CACHE_MAX": str(size)}
    return replace(site, machine=replace(site.machine, extra=extra))


def evicted(site: Site) -> list[tuple[str, int]]:
    lines = site.machine.must("audit", "query", "--action", "cache.evict", "--json").out.splitlines()
    found = [item for item in map(json.loads, lines) if item["type"] == "event"]
    return [(item["dataset"], item["snapshot_seq"]) for item in found]


def warmed(site: Site, names: Sequence[str], size: int) -> None:
    """Warm datasets of ten files, one after the other."""
    for at, name in enumerate(names):
        site.machine.must("push", fill(site.scratch / name, 10, size, seed=at + 1))
        site.machine.must("warm", name)
        receipt = next(iter((site.scratch / "cache/views" / name).glob("*.READY.json")))
        os.utime(receipt, (1_700_000_000 + at,) * 2)


@pytest.mark.parametrize("kept", ["", "pinned", "leased"])
def test_the_views_that_make_room_are_named_in_order(site: Site, scratch: Path, kept: str) -> None:
    warmed(site, "abc", 50 * KIB)
    lease = None
    if kept == "pinned":
        site.machine.must("cache", "pin", "a")
    with Cache.open(scratch / "cache") as cache:
        if kept == "leased":
            lease = take_lease(cache, next(iter(cache.views("a"))))
            os.utime(scratch / "cache" / os.fsdecode(lease.view.ready), (1_700_000_000,) * 2)
        site.machine.must("push", fill(scratch / "new", 10, 70 * KIB, seed=9))
        small = limited(site, used_bytes(scratch / "cache/objects") + 100 * KIB)
        plan = small.plan("plan", "new")
        names = ["b", "c"] if kept else ["a", "b"]
        assert [item["dataset"] for item in plan["evicted"]] == names
        assert plan["used_bytes"] == used_bytes(scratch / "cache/objects")
        compare(small, plan, "warm", "new")
        assert [name for name, _ in evicted(site)] == names
        if lease is not None:
            lease.release()


@pytest.mark.parametrize("room", [100, -600])
def test_what_the_new_view_shares_makes_no_room(site: Site, scratch: Path, room: int) -> None:
    """Evicting the last snapshot frees only what the next one does not have; where that is too little, none goes."""
    warmed(site, "a", 50 * KIB)
    first = Path(site.result("warm", "data")["path"])
    os.utime(receipt_of(first), (1_600_000_000,) * 2)
    change(site.source, 10)
    (site.source / "new").write_bytes(content(3, 500 * KIB))
    site.machine.must("push", site.source)
    tight = limited(site, used_bytes(scratch / "cache/objects") + room * KIB)
    if room < 0:
        planned, told = tight.run("plan", "data"), tight.run("warm", "data")
        assert (planned.code, told.code, evicted(site)) == (8, 8, [])
        assert without_free(planned.result["message"]) == without_free(told.result["message"])
        return
    plan = tight.plan("plan", "data")
    assert [item["dataset"] for item in plan["evicted"]] == ["data", "a"]
    compare(tight, plan, "warm", "data")
    assert evicted(site) == [(item["dataset"], item["seq"]) for item in plan["evicted"]]


def test_a_small_disk_makes_room_as_planned(site: Site, scratch: Path, disk: Disk) -> None:
    extra = {**site.machine.extra, "DATASYNC_CACHE": str(disk("16m") / "cache")}
    full = replace(site, machine=replace(site.machine, extra=extra))
    full.machine.must("push", fill(scratch / "first", 10, 900 * KIB, seed=3))
    full.machine.must("warm", "first")
    plan = full.plan("plan", "data")
    assert [item["dataset"] for item in plan["evicted"]] == ["first"]
    compare(full, plan, "warm", "data")
    assert evicted(site) == [("first", 1)]


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_with_reflinks_it_is_as_planned(site: Site, scratch: Path, kind: str, loop_disk: LoopDisk) -> None:
    extra = {**site.machine.extra, "DATASYNC_CACHE": str(loop_disk(kind, 400) / "cache")}
    other = replace(site, machine=replace(site.machine, extra=extra))
    other.result("warm", "data")
    change(site.source, 2)
    site.machine.must("push", site.source)
    cache = Path(extra["DATASYNC_CACHE"])
    tight = limited(other, used_bytes(cache / "objects") + 100 * KIB)
    plan = tight.plan("plan", "data")
    assert plan["evicted"]
    compare(tight, plan, "warm", "data")
    assert evicted(site) == [(item["dataset"], item["seq"]) for item in plan["evicted"]]


def test_orphans_and_dead_transfers_go_before_any_view(site: Site, scratch: Path) -> None:
    warmed(site, "ab", 50 * KIB)
    receipt = next(iter((scratch / "cache/views/b").glob("*.READY.json")))
    receipt.unlink()  # of an eviction that died
    small = limited(site, used_bytes(scratch / "cache/objects") + 100 * KIB)
    site.machine.must("push", fill(scratch / "new", 10, 50 * KIB, seed=9))
    plan = small.plan("plan", "new")
    assert plan["evicted"] == []
    compare(small, plan, "warm", "new")
    assert evicted(site) == []


def test_a_dry_eviction_and_purge_name_what_would_go_and_leave_it(site: Site, scratch: Path) -> None:
    views = [site.result("warm", "data", *subset)["path"] for subset in ((), ("--subset", "large*"))]
    before = story(scratch / "cache")
    assert sorted(site.machine.must("cache", "evict", "data", "-n").out.splitlines()) == sorted(views)
    assert sorted(site.machine.must("cache", "purge", "-n").out.splitlines()) == sorted(views)
    assert site.machine.run("cache", "purge", "-n", "--output", scratch / "receipt").code == 2
    assert story(scratch / "cache") == before
    with Cache.open(scratch / "cache") as cache:
        held = take_lease(cache, next(iter(cache.views("data"))))
        for verb in (("evict", "data"), ("purge", "--yes")):
            dry, real = site.run("cache", *verb, "-n"), site.run("cache", *verb)
            assert (dry.code, real.code) == (11, 11)
            site.result("warm", "data", "--subset", "large*")
            site.result("warm", "data")
        held.release()


def test_too_small_a_cache_is_refused_as_warm_refuses_it(site: Site, scratch: Path) -> None:
    small = limited(site, "100KiB")
    planned = small.run("plan", "data")
    assert planned.code == 8
    plan = json.loads(planned.out.splitlines()[0])
    assert (plan["type"], plan["error"], plan["message"]) == ("plan", "NoSpace", planned.result["message"])
    assert not (scratch / "cache").exists()
    assert small.run("warm", "data").result["message"] == planned.result["message"]


def test_what_is_pinned_keeps_it_out_with_the_words_of_warm(site: Site, scratch: Path, disk: Disk) -> None:
    extra = {**site.machine.extra, "DATASYNC_CACHE": str(disk("16m") / "cache")}
    full = replace(site, machine=replace(site.machine, extra=extra))
    full.machine.must("push", fill(scratch / "first", 10, 900 * KIB, seed=3))
    full.machine.must("warm", "first", "--pin")
    planned = full.run("plan", "data")
    told = full.run("warm", "data")
    assert (planned.code, told.code) == (8, 8)
    assert without_free(planned.result["message"]) == without_free(told.result["message"])


def without_free(text: str) -> str:
    """Drop what is free on the disk: the empty directories of a staged view take some of it."""
    before, _, rest = text.partition(" are used and ")
    return before + rest.partition(" are free ")[2]


def test_a_running_transfer_is_waited_for(site: Site, scratch: Path) -> None:
    small = limited(site, "20MiB")
    with Cache.open(scratch / "cache") as cache:
        held = Space(cache, Limits("20MiB"), reflinks=False).reserve(12 * MIB, cache.view("x", 1, SNAPSHOT))
        assert small.plan("plan", "data")["waits"]
        held.release()
        assert not small.plan("plan", "data")["waits"]
        names = Path(small.plan("plan", "data")["path"]).name
        with ViewLock(cache, View(cache.path, b"views/data", names.encode())):
            assert small.plan("plan", "data")["waits"]


@pytest.mark.parametrize("seed", range(24))
def test_a_forecast_is_what_a_reservation_then_does(cache: Cache, seed: int) -> None:
    dice = random.Random(seed)
    views = [
        make_view(cache, name, files=dice.randrange(1, 8), size=dice.randrange(1, 9) * 8 * KIB) for name in "abcdef"
    ]
    for view, at in zip(views, dice.sample(range(100), len(views)), strict=True):
        os.utime(view.ready_path, (1_700_000_000 + at,) * 2)
    leases = []
    for view in dice.sample(views, 3):
        match dice.randrange(4):
            case 0:
                pin(cache, view, 0)
            case 1:
                leases.append(take_lease(cache, view))
            case 2:
                view.ready_path.unlink()  # of an eviction that died
    limit = used_bytes(cache.path / "objects") + dice.randrange(0, 64) * KIB
    need, new = dice.randrange(1, 1200) * KIB, cache.view("new", 1, SNAPSHOT)
    told: list[View] = []
    limits = Limits(str(limit), "0", lambda view, _: told.append(view))
    before, failures = story(cache.path), []
    room: Room | None = None
    try:
        room = Forecast(cache, limits).room(need, new)
    except NoSpace as error:
        failures.append(str(error))
    assert (story(cache.path), told) == (before, [])
    try:
        Space(cache, limits, reflinks=False).reserve(need, new).release()
    except NoSpace as error:
        failures.append(str(error))
    assert len(failures) == (0 if room is not None else 2)
    assert [without_free(text) for text in failures[:1]] == [without_free(text) for text in failures[1:]]
    assert [item.view for item in room.evicted] == told if room is not None else told == []
    for lease in leases:
        lease.release()
