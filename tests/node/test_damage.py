"""Damage on the disk is found, named, put aside and fetched again; a receipt says only what this node verified."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasync.pull.recheck import recheck
from tests.node.datasets import broken, fill, place_of, receipts
from tests.support.machine import Machine, Ran, finish
from tests.support.trees import KIB, survey

FILES, FILE_BYTES = 12, 30 * KIB
BAD = "class-3/00003"


@pytest.fixture
def cache(scratch: Path) -> Path:
    return scratch / "cache"


@pytest.fixture
def source(machine: Machine, scratch: Path) -> Path:
    """A dataset of two snapshots, both warm; all files but one are shared."""
    made = fill(scratch / "data", FILES, FILE_BYTES)
    machine.must("push", made)
    machine.must("warm", "data")
    (made / "class-0" / "00000").write_bytes(b"changed")
    machine.must("push", made)
    machine.must("warm", "data")
    return made


def flip(*paths: Path) -> None:
    """Change one bit in the middle of each file, once for each inode, and leave its times alone."""
    for path in {path.stat().st_ino: path for path in paths}.values():
        status = path.stat()
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.seek(status.st_size // 2)
            byte = file.read(1)[0]
            file.seek(status.st_size // 2)
            file.write(bytes([byte ^ 1]))
        path.chmod(status.st_mode & 0o777)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def views(cache: Path) -> list[Path]:
    return [place_of(path) for path in receipts(cache)]


def objects_like(cache: Path, path: Path) -> list[Path]:
    """Return the objects with the bytes of *path*."""
    return [found for found in cache.glob("objects/??/*") if found.read_bytes() == path.read_bytes()]


def damages(ran: Ran) -> list[tuple[int, str]]:
    shown = [json.loads(line) for line in ran.out.splitlines()]
    return sorted((event["seq"], event["path"]) for event in shown if event["type"] == "damage")


def test_a_scrub_of_what_is_whole_changes_nothing(machine: Machine, source: Path, cache: Path) -> None:
    before = survey(cache)
    assert machine.must("cache", "scrub", "--json").result["views"] == 2
    assert {path: node.content for path, node in survey(cache).items()} == {p: n.content for p, n in before.items()}


def test_a_flipped_bit_is_found_in_every_view_that_shares_it(machine: Machine, source: Path, cache: Path) -> None:
    flip(*objects_like(cache, views(cache)[0] / BAD), *(view / BAD for view in views(cache)))
    ran = machine.run("cache", "scrub", "--json")
    assert ran.code == 7
    assert damages(ran) == [(1, BAD), (2, BAD)]
    assert views(cache) == []
    assert len(list(cache.glob("quarantine/*"))) == 1
    assert machine.must("cache", "status", "--json").result["quarantined"] == 1
    again = machine.must("warm", "data", "--json").result
    assert (again["files"], again["kept"]) == (1, FILES - 1)
    assert machine.must("warm", "data@1", "--json").result["files"] == 0
    assert len(views(cache)) == 2
    machine.must("cache", "scrub")
    assert broken(cache, {"data/2": survey(source), "data/1": survey(views(cache)[0])}) == []
    assert (Path(again["path"]) / BAD).read_bytes() == (source / BAD).read_bytes()


def test_the_deep_check_names_the_path(machine: Machine, source: Path, cache: Path) -> None:
    machine.must("ready", "data", "--deep")
    flip(views(cache)[1] / BAD)
    machine.must("ready", "data")  # the receipt alone
    ran = machine.run("ready", "data", "--deep")
    assert ran.code == 7
    assert BAD in ran.err
    assert "cache scrub" in ran.err
    if os.geteuid() == 0:
        assert len(views(cache)) == 2  # it only looks


@pytest.mark.parametrize("what", ["removed", "added", "time", "mode", "truncated", "link"])
def test_the_deep_check_sees_more_than_bytes(machine: Machine, source: Path, cache: Path, what: str) -> None:
    path = views(cache)[1] / BAD
    path.parent.chmod(0o755)
    times = path.parent.stat()
    if what == "time":
        os.utime(path, (0, 0))
    elif what == "mode":
        path.chmod(0o400)
    elif what == "added":
        (path.parent / "new").touch()
    elif what == "truncated":
        os.truncate(path, FILE_BYTES - 1)
    else:
        path.unlink()
        if what == "link":
            path.symlink_to(source / BAD)
    os.utime(path.parent, ns=(times.st_atime_ns, times.st_mtime_ns))
    path.parent.chmod(0o555)
    ran = machine.run("ready", "data", "--deep")
    assert ran.code == 7
    assert BAD in ran.err or what == "added"


def test_a_view_of_a_job_stays_and_goes_with_the_next_scrub(machine: Machine, source: Path, cache: Path) -> None:
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    job = machine.start("run", "--data", "data", "--", sys.executable, "-c", code, stdin=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdout.readline() == "up\n"
    held = views(cache)[1]
    flip(held / BAD)
    ran = machine.run("cache", "scrub", "data@2")
    assert ran.code == 7
    assert "a job holds it" in ran.err
    assert held in views(cache)
    assert finish(job).code == 0
    assert machine.run("cache", "scrub", "data@2").code == 7
    assert held not in views(cache)
    machine.must("warm", "data")
    machine.must("ready", "data", "--deep")


def test_a_view_that_is_evicted_while_it_is_read_is_no_damage(
    machine: Machine, source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: Any, **options: Any) -> Any:
        for view in views(cache):
            assert machine.must("cache", "evict", f"data@{view.name[0]}").code == 0
        return recheck(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("datasync.service.scrub.recheck", late)
        machine.must("cache", "scrub", "data@2")
    assert not list(cache.glob("quarantine/*"))


# receipts


def receipt(cache: Path, seq: int) -> Path:
    (found,) = [path for path in receipts(cache) if path.name.startswith(f"{seq}-")]
    return found


def rewrite(path: Path, **changes: object) -> None:
    value = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


@pytest.mark.parametrize("changes", [{"files": 1}, {"root": "00" * 32}, {"completed": "2020-01-01T00:00:00Z"}])
def test_an_edited_receipt_is_refused(machine: Machine, source: Path, cache: Path, changes: dict[str, object]) -> None:
    rewrite(receipt(cache, 2), **changes)
    for command in ("ready", "path"):
        ran = machine.run(command, "data")
        assert (ran.code, ran.out) == (7, "")
        assert "signature" in ran.message


def test_a_receipt_of_another_node_is_refused(machine: Machine, source: Path, cache: Path, scratch: Path) -> None:
    """The cache came with a cloned image."""
    other = machine.sibling(scratch / "other")
    for command in ("ready", "path"):
        ran = other.run(command, "data")
        assert (ran.code, ran.out) == (7, "")
        assert "another node" in ran.message


@pytest.mark.parametrize("edited", [False, True], ids=["another-node", "edited"])
def test_a_warm_checks_what_another_node_made_and_signs_it(
    machine: Machine, source: Path, cache: Path, scratch: Path, edited: bool
) -> None:
    other = machine if edited else machine.sibling(scratch / "other")
    before = json.loads(receipt(cache, 2).read_text())
    if edited:
        rewrite(receipt(cache, 2), files=1, root="00" * 32)
    inodes = {path: path.stat().st_ino for path in place_of(receipt(cache, 2)).rglob("*")}
    other.must("warm", "data")
    assert other.must("ready", "data", "--json").result["files"] == before["files"]
    assert {path: path.stat().st_ino for path in place_of(receipt(cache, 2)).rglob("*")} == inodes
    after = json.loads(receipt(cache, 2).read_text())
    changed = {"completed", "signature"} | (set() if edited else {"node"})
    assert {key for key in before if before[key] != after[key]} <= changed
    assert (before["node"] == after["node"]) == edited


def test_what_another_node_left_damaged_is_made_anew(
    machine: Machine, source: Path, cache: Path, scratch: Path
) -> None:
    place = place_of(receipt(cache, 2))
    victim = next(path for path in sorted(place.rglob("*")) if path.is_file())
    stamp, good = victim.stat().st_mtime_ns, victim.read_bytes()
    os.chmod(victim, 0o644)
    victim.write_bytes(bytes(len(good)))
    os.utime(victim, ns=(stamp, stamp))
    os.chmod(victim, 0o444)
    other = machine.sibling(scratch / "other")
    assert other.must("warm", "data", "--json").result["fetched_bytes"] > 0
    assert victim.read_bytes() == good
    assert len(list(cache.glob("quarantine/*"))) == 1
    other.must("ready", "data", "--deep")


def test_the_stale_fallback_takes_no_other_nodes_view(
    machine: Machine, source: Path, cache: Path, scratch: Path
) -> None:
    lost = str(scratch / "nowhere")
    arguments = ("run", "--data", "data", "--on-fail", "stale", "--", "true")
    assert replace(machine, repository=lost).run(*arguments).code == 0
    other = machine.sibling(scratch / "other")
    assert replace(other, repository=lost).run(*arguments).code != 0


def test_a_receipt_of_another_dataset_or_snapshot_counts_for_nothing(
    machine: Machine, source: Path, cache: Path, scratch: Path
) -> None:
    machine.must("push", fill(scratch / "other", 3, FILE_BYTES, seed=5))
    machine.must("warm", "other")
    (foreign,) = [path for path in receipts(cache) if path.parent.name == "other"]
    shutil.copy(receipt(cache, 2), foreign)
    ran = machine.run("warm", "other")
    assert ran.code == 7
    for command in ("ready", "path"):
        ran = machine.run(command, "other")
        assert (ran.code, ran.out) == (4, "")  # told, and left out
        assert str(foreign) in ran.err
    assert machine.must("path", "data@2", "--json").result["path"] == str(place_of(receipt(cache, 2)))


def test_a_receipt_of_another_dataset_of_the_same_name_is_refused(
    machine: Machine, source: Path, scratch: Path
) -> None:
    """A second repository has a dataset of that name; its snapshot 2 has another id, its view another place."""
    other = replace(machine, repository=str(scratch / "second repository"))
    other.must("init")
    other.must("push", fill(scratch / "again" / "data", 3, FILE_BYTES, seed=6))
    ran = other.run("warm", "data", "--json")
    assert ran.code == 0, ran
    assert ran.result["path"] != machine.must("path", "data@2", "--json").result["path"]
