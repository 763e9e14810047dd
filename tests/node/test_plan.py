"""A plan changes nothing and says what the warm, or the pull, that follows then does."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.datasets import receipts
from tests.node.planned import Site, change, compare, make_source, receipt_of, story
from tests.support.machine import Machine
from tests.support.servers import S3Server


@pytest.fixture
def site(machine: Machine, scratch: Path) -> Site:
    return Site.make(machine, scratch)


def test_a_cold_warm_is_as_planned(site: Site, scratch: Path) -> None:
    plan = site.plan("plan", "data:prod")
    files = [path for path in site.source.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not (scratch / "cache").exists()
    assert (plan["ready"], plan["kept"], plan["files"]) == (False, 0, len(files))
    assert plan["bytes"] == sum(path.stat().st_size for path in files)
    assert (plan["cache"], plan["seq"]) == (str(scratch / "cache"), 1)
    compare(site, plan, "warm", "data:prod")
    ready = json.loads(receipts(scratch / "cache")[0].read_text())
    assert (ready["entries"], ready["files"], ready["bytes"]) == (plan["entries"], plan["files"], plan["bytes"])


def test_what_is_ready_needs_nothing(site: Site) -> None:
    view = site.result("warm", "data")["path"]
    plan = site.plan("plan", "data")
    assert (plan["ready"], plan["path"], plan["wanted"], plan["fetched_bytes"]) == (True, view, 0, 0)
    assert (plan["kept"], plan["kept_bytes"]) == (plan["files"], plan["bytes"])


@pytest.mark.parametrize("every", [2, 30])
def test_the_next_snapshot_is_as_planned_with_what_is_shared(site: Site, every: int) -> None:
    site.result("warm", "data")
    change(site.source, every)
    site.machine.must("push", site.source)
    plan = site.plan("plan", "data")
    assert 0 < plan["wanted"] < plan["files"]
    assert plan["wanted"] + plan["kept"] == plan["files"]
    compare(site, plan, "warm", "data")


def test_a_part_is_as_planned_and_so_is_the_rest(site: Site) -> None:
    words = ("data", "--subset", "class-1", "--subset", "large*", "--order", "class-1/*")
    part = site.plan("plan", *words)
    assert part["files"] == 7
    compare(site, part, "warm", *words)
    compare(site, site.plan("plan", "data"), "warm", "data")


def test_after_an_eviction_it_is_as_planned(site: Site) -> None:
    site.result("warm", "data")
    change(site.source)
    site.machine.must("push", site.source)
    site.result("warm", "data")
    site.machine.must("cache", "evict", "data@1")
    plan = site.plan("plan", "data@1")
    assert 0 < plan["wanted"] < plan["files"]
    compare(site, plan, "warm", "data@1")


def test_what_a_killed_warm_left_counts_as_the_warm_counts_it(site: Site, scratch: Path) -> None:
    view = Path(site.result("warm", "data")["path"])
    receipt = receipt_of(view)
    receipt.unlink()
    view.rename(view.with_name(f".staging-{view.name}"))
    for path in sorted((scratch / "cache/objects").glob("??/*"))[::3]:
        path.unlink()
    plan = site.plan("plan", "data")
    assert 0 < plan["wanted"] < plan["files"]
    compare(site, plan, "warm", "data")


def test_objects_of_before_a_power_loss_are_not_counted_on(site: Site, scratch: Path) -> None:
    site.result("warm", "data")
    site.machine.must("cache", "evict", "data")
    site.result("warm", "data", "--subset", "class-*")
    marker = scratch / "cache/objects/objects.dirty.0123456789abcdef"
    marker.write_text(json.dumps({"boot": "another boot", "start_ns": 1}))
    plan = site.plan("plan", "data")
    assert plan["kept"] == 0
    compare(site, plan, "warm", "data")


def test_other_machines_views_are_told(site: Site, scratch: Path) -> None:
    site.result("warm", "data")
    other = replace(site, machine=site.machine.sibling(scratch / "other"))
    plan = other.plan("plan", "data", "--trust", trust(site))
    assert (plan["foreign"], plan["ready"], plan["wanted"]) == (True, False, 0)


def trust(site: Site) -> str:
    return next(Path(site.machine.repository).glob("d/*")).name


def test_a_dry_tag_says_what_would_move_and_moves_nothing(site: Site) -> None:
    change(site.source)
    site.machine.must("push", site.source)
    assert "data:prod: would point at @2, points at @1" in site.machine.must("tag", "data", "prod", "-n").err
    assert "data:prod: would be removed" in site.machine.must("tag", "data", "prod", "--delete", "-n").err
    assert "data:new: would point at @1, points at none" in site.machine.must("tag", "data@1", "new", "-n").err
    done = site.result("tag", "data")
    assert done["tags"] == {"prod": 1}
    assert (
        site.machine.run("tag", "data", "bad name\n", "-n").code == site.machine.run("tag", "data", "bad name\n").code
    )


# who asks


@pytest.mark.skipif(os.geteuid() != 0, reason="a cache of another user needs root")
def test_another_users_cache_is_refused_untouched(site: Site, scratch: Path) -> None:
    site.result("warm", "data", "--subset", "class-1")
    os.chown(scratch / "cache", 4321, 4321)
    before = story(scratch / "cache")
    planned, told = site.run("plan", "data"), site.run("warm", "data")
    assert (planned.code, planned.result["message"]) == (2, told.result["message"])
    assert story(scratch / "cache") == before


def test_without_a_key_it_fails_as_warm_does(site: Site, scratch: Path) -> None:
    stranger = Machine.make(scratch / "stranger", site.machine.repository, site.machine.extra)
    codes = {stranger.run(verb, "data", "--trust", trust(site)).code for verb in ("plan", "warm")}
    assert codes == {12}
    assert site.machine.run("plan", "data@99").code == 4


def test_it_is_recorded_as_a_look(site: Site) -> None:
    site.plan("plan", "data")
    lines = site.machine.must("audit", "query", "--json").out.splitlines()
    events = [item for item in map(json.loads, lines) if item["type"] == "event"]
    looks = [item for item in events if item["action"] == "look" and item.get("dataset") == "data"]
    assert [(item["detail"]["plan"], item["snapshot_seq"]) for item in looks] == [("warm", 1)]
    assert not [item for item in events if item["action"] == "warm"]


# the same by other names


def test_warm_and_pull_dry_are_the_plan(site: Site, scratch: Path) -> None:
    assert stable(site.plan("warm", "data", "-n")) == stable(site.plan("plan", "data"))
    target = scratch / "target"
    assert site.plan("pull", "data", target, "-n") == site.plan("plan", "data", "--target", target)
    assert not target.exists()


def stable(plan: dict[str, Any]) -> dict[str, Any]:
    """Leave out what others on this machine's disk change."""
    return {name: value for name, value in plan.items() if name != "free_bytes"}


def test_a_pull_is_as_planned_also_where_most_is_there(site: Site, scratch: Path) -> None:
    target = scratch / "target"
    plan = site.plan("plan", "data", "--target", target)
    compare(site, plan, "pull", "data", target)
    change(site.source)
    shutil.rmtree(target / "class-3")
    site.machine.must("push", site.source)
    plan = site.plan("plan", "data", "--target", target)
    assert 0 < plan["wanted"] < plan["files"]
    compare(site, plan, "pull", "data", target)
    assert site.plan("plan", "data", "--target", target)["wanted"] == 0


def test_a_target_is_refused_as_pull_refuses_it(site: Site, scratch: Path) -> None:
    (scratch / "file").write_bytes(b"")
    (scratch / "target" / "large.bin").mkdir(parents=True)
    for target in ("file", "no/where", "target"):
        planned = site.run("plan", "data", "--target", scratch / target)
        assert (planned.code, planned.result["message"]) == (
            2,
            site.run("pull", "data", scratch / target).result["message"],
        )
    assert site.run("plan", "data", "data@1", "--target", scratch / "x").code == 2
    assert site.run("plan", "data", "--subset", "x", "--target", scratch / "x").code == 2


def test_people_get_a_few_lines(site: Site, scratch: Path) -> None:
    lines = site.machine.must("plan", "data").out.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("data@1 ")
    assert "to be made: 75 entries, 64 files" in lines[0]
    site.machine.must("warm", "data")
    assert "ready: 75 entries" in site.machine.must("plan", "data").out.splitlines()[0]


def test_several_references_are_told_each(site: Site) -> None:
    done = site.result("plan", "data", "data:prod")
    assert [item["seq"] for item in done["plans"]] == [1, 1]
    assert done["wanted"] == 2 * done["plans"][0]["wanted"]


def test_over_s3_it_is_as_planned(seaweedfs: S3Server, fresh_bucket: str, scratch: Path) -> None:
    url = seaweedfs.make_bucket(fresh_bucket)
    extra = {"DATASYNC_CACHE": str(scratch / "cache"), **seaweedfs.environment()}
    machine = Machine.make(scratch / "home", url, extra)
    machine.must("init")
    machine.must("push", make_source(scratch / "data"))
    plan = machine.must("plan", "data", "--json").result["plans"][0]
    assert not (scratch / "cache").exists()
    done = machine.must("warm", "data", "--json").result
    numbers = (plan["wanted"], plan["kept"], plan["fetched_bytes"], plan["path"])
    assert (done["files"], done["kept"], done["fetched_bytes"], done["path"]) == numbers
