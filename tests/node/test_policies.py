"""What the node's commands do when a warm fails, when nothing is ready yet, and with the variables of a job."""

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.datasets import fill, place_of, receipts
from tests.support.machine import Machine, finish
from tests.support.trees import KIB

PRINT = (
    "import os; print(*(f'{n}={os.environ[n]}' for n in sorted(os.environ) if n.startswith(('DATASYNC_DATA', 'MY_'))))"
)
JOB = ("--", sys.executable, "-c", PRINT)


@pytest.fixture
def source(machine: Machine, scratch: Path) -> Path:
    made = fill(scratch / "data", 4, 10 * KIB)
    machine.must("push", made)
    return made


def without_repository(machine: Machine, scratch: Path) -> Machine:
    """Return the machine, its repository out of reach."""
    (scratch / "repository").rename(scratch / "away")
    return machine


# run --on-fail


@pytest.mark.parametrize("policy", [(), ("--on-fail", "stop")])
def test_a_job_without_its_data_does_not_run(
    machine: Machine, source: Path, scratch: Path, policy: tuple[str, ...]
) -> None:
    machine.must("warm", "data")
    ran = without_repository(machine, scratch).spawn("run", *policy, "--data", "data", *JOB)
    assert ran.code == 10
    assert ran.out == ""
    assert not list((scratch / "cache").glob("views/*/.lease-*"))


def test_a_job_goes_on_without_its_data_when_told_so(machine: Machine, source: Path, scratch: Path) -> None:
    machine.must("warm", "data")
    ran = without_repository(machine, scratch).spawn("run", "--on-fail", "continue", "--data", "data", *JOB)
    assert (ran.code, ran.out) == (0, "\n")
    assert "runs without it" in ran.err


def test_a_job_takes_the_newest_complete_snapshot_when_told_so(machine: Machine, source: Path, scratch: Path) -> None:
    machine.must("warm", "data")
    (source / "new").touch()
    machine.must("push", source)
    newest = machine.must("warm", "data", "--json").result
    (source / "newer").touch()
    machine.must("push", source)
    ran = without_repository(machine, scratch).spawn("run", "--on-fail", "stale", "--data", "data=MY_DATA", *JOB)
    assert (ran.code, ran.out) == (0, f"MY_DATA={newest['path']}\n")
    assert "using data@2, the newest complete one here" in ran.err
    assert not list((scratch / "cache").glob("views/*/.lease-*"))


def test_without_any_complete_snapshot_stale_stops(machine: Machine, source: Path, scratch: Path) -> None:
    ran = without_repository(machine, scratch).spawn("run", "--on-fail", "stale", "--data", "data", *JOB)
    assert (ran.code, ran.out) == (4, "")
    assert "no complete snapshot" in ran.err


def test_stale_takes_no_half_view(machine: Machine, source: Path, scratch: Path) -> None:
    machine.must("warm", "data")
    receipts(scratch / "cache")[0].unlink()
    ran = without_repository(machine, scratch).spawn("run", "--on-fail", "stale", "--data", "data", *JOB)
    assert (ran.code, ran.out) == (4, "")


def test_stale_passes_over_a_damaged_receipt(machine: Machine, source: Path, scratch: Path) -> None:
    older = machine.must("warm", "data", "--json").result
    (source / "new").touch()
    machine.must("push", source)
    machine.must("warm", "data")
    next((scratch / "cache").glob("views/data/2-*.READY.json")).write_bytes(b"damaged")
    ran = without_repository(machine, scratch).spawn("run", "--on-fail", "stale", "--data", "data=MY_DATA", *JOB)
    assert (ran.code, ran.out) == (0, f"MY_DATA={older['path']}\n")


@pytest.mark.parametrize("policy", ["continue", "stale"])
@pytest.mark.parametrize("data", ["data@", "data@0", "data:", "@1", "da\nta"])
def test_a_wrong_reference_stops_under_every_policy(machine: Machine, source: Path, policy: str, data: str) -> None:
    ran = machine.spawn("run", "--on-fail", policy, "--data", data, *JOB)
    assert (ran.code, ran.out) == (2, "")


# the variables


def test_a_dataset_may_have_a_variable_of_its_own(machine: Machine, source: Path, scratch: Path) -> None:
    machine.must("push", fill(scratch / "other.set", 2, KIB))
    ran = machine.spawn("run", "--data", "data=MY_DATA", "--data", "other.set", *JOB)
    paths = {place_of(path).parent.name: place_of(path) for path in receipts(scratch / "cache")}
    assert ran.out == f"DATASYNC_DATASET_OTHER_SET={paths['other.set']} MY_DATA={paths['data']}\n"


@pytest.mark.parametrize("name", ["1X", "a-b", "a b", "ä", "A=B", "X;Y", "X\n", "."])
def test_a_bad_variable_is_told_before_anything_is_warmed(
    machine: Machine, source: Path, scratch: Path, name: str
) -> None:
    ran = machine.spawn("run", "--data", f"data={name}", *JOB)
    assert (ran.code, ran.out) == (2, "")
    assert "variable" in ran.message
    assert receipts(scratch / "cache") == []


def test_two_datasets_for_one_variable_are_told_before_anything_is_warmed(
    machine: Machine, source: Path, scratch: Path
) -> None:
    machine.must("push", fill(scratch / "da.ta", 1, KIB))
    machine.must("push", fill(scratch / "da_ta", 1, KIB))
    for pair in (("da.ta", "da_ta"), ("data=X", "da.ta=X"), ("data@1", "data")):
        ran = machine.spawn("run", "--data", pair[0], "--data", pair[1], *JOB)
        assert (ran.code, ran.out) == (2, "")
        assert "two datasets" in ran.message
    assert receipts(scratch / "cache") == []


# path --wait, warm --no-wait, --pin and --ttl


def test_a_path_is_waited_for(machine: Machine, source: Path, scratch: Path) -> None:
    child = machine.start("path", "data", "--wait", "--timeout", "90s")
    time.sleep(0.5)
    assert child.poll() is None
    ready = machine.must("warm", "data", "--json").result["path"]
    ran = finish(child)
    assert (ran.code, ran.out, ran.err) == (0, f"{ready}\n", "")


def test_a_wait_ends_at_its_time(machine: Machine, source: Path) -> None:
    ran = machine.run("path", "data", "--wait", "--timeout", "0.2s")
    assert (ran.code, ran.out) == (13, "")
    assert "0.2s" in ran.message
    assert machine.run("path", "data").code == 4


@pytest.mark.parametrize("text", ["0s", "5", "s", "-1s", "1w", "1e3s", ""])
def test_a_wrong_time_is_told(machine: Machine, source: Path, scratch: Path, text: str) -> None:
    assert machine.run("path", "data", "--wait", "--timeout", text).code == 2
    assert machine.run("warm", "data", "--ttl", text).code == 2
    assert receipts(scratch / "cache") == []


def test_a_path_asks_no_network(machine: Machine, source: Path, scratch: Path) -> None:
    ready = machine.must("warm", "data").out
    alone = replace(without_repository(machine, scratch), repository="s3://nowhere/at-all?endpoint=http://127.0.0.1:9")
    assert alone.must("path", "data").out == ready
    assert alone.must("path", "data@1").out == ready
    assert alone.must("ready", "data").code == 0
    assert alone.run("path", "data:tag").code == 2
    assert alone.run("path", "data@2").code == 4


def test_a_pin_holds_and_a_timed_one_ends(machine: Machine, source: Path, scratch: Path) -> None:
    (scratch / "other").mkdir()
    (scratch / "other" / "large").write_bytes(os.urandom(300 * KIB))
    machine.must("push", scratch / "other")
    tight = replace(machine, extra={**machine.extra, "DATASYNC_CACHE_MAX": "450KiB"})
    tight.must("warm", "data", "--pin")
    tight.must("warm", "other")
    (scratch / "other" / "large").write_bytes(os.urandom(400 * KIB))
    machine.must("push", scratch / "other")
    refused = tight.run("warm", "other")
    assert refused.code == 8
    assert len([path for path in receipts(scratch / "cache") if path.parent.name == "data"]) == 1
    tight.must("cache", "unpin", "data")
    tight.must("warm", "data", "--ttl", "0.1s")
    time.sleep(0.15)
    tight.must("warm", "other")
    assert [path.parent.name for path in receipts(scratch / "cache")] == ["other"]


def test_a_pin_is_shown_until_it_is_removed(machine: Machine, source: Path) -> None:
    machine.must("warm", "data", "--ttl", "12h")
    assert " pinned " in machine.must("cache", "ls").out
    machine.must("cache", "unpin", "data")
    assert " pinned " not in machine.must("cache", "ls").out
    machine.must("cache", "pin", "data@1")
    assert " pinned " in machine.must("cache", "ls").out
    machine.must("cache", "evict", "data")  # a person's word counts more
    assert machine.must("cache", "ls").out == ""


def test_a_warm_that_may_not_wait_takes_what_is_ready(machine: Machine, source: Path) -> None:
    made = machine.must("warm", "data", "--no-wait", "--json").result
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda: results.append(finish(machine.start("warm", "data", "--no-wait")).out))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [made["path"] + "\n"] * 2
