"""What a node gets: one transfer for all its processes, views that share what is the same, a job that reads them."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datasync.cache.layout import Cache
from datasync.cache.objects import Objects
from tests.support.cli import DATASET, Machine, finish
from tests.support.trees import KIB, MIB, content, differences, survey

RANKS = 8
FILES = 1000
FILE_BYTES = 40 * KIB


def make_source(root: Path, files: int = FILES) -> None:
    for number in range(files):
        path = root / f"class-{number % 10}" / f"{number:04}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(number, FILE_BYTES))


def shares_by_link(machine: Machine) -> bool:
    with Cache.open(machine.cache) as cache, Objects.open(cache) as objects:
        return not objects.reflinks


def test_eight_processes_cause_one_transfer(any_machine: Machine, scratch: Path) -> None:
    source = scratch / DATASET
    make_source(source, 200)
    any_machine.push(source)
    ranks = [any_machine.start("warm", DATASET, "--json") for _ in range(RANKS)]
    done = [finish(rank) for rank in ranks]
    assert [(rank.code, rank.stderr) for rank in done] == [(0, "")] * RANKS
    results = [rank.result for rank in done]
    assert len({result["path"] for result in results}) == 1
    fetched = [result["fetched_bytes"] for result in results if result["fetched_bytes"]]
    assert len(fetched) == 1
    assert 200 * FILE_BYTES <= fetched[0] < 1.1 * 200 * FILE_BYTES
    assert differences(survey(source), survey(Path(results[0]["path"])), view=True) == []
    assert [path.name for path in (any_machine.cache / "views" / DATASET).glob(".staging*")] == []


def test_the_next_snapshot_costs_what_changed(machine: Machine, scratch: Path) -> None:
    source = scratch / DATASET
    make_source(source)
    machine.push(source)
    first, _ = machine.warm()
    before = survey(first.path)
    changed = [source / f"class-{number % 10}" / f"{number:04}" for number in range(0, FILES, 100)]
    for number, path in enumerate(changed):
        path.write_bytes(content(5000 + number, FILE_BYTES))
    machine.push(source)
    second, meter = machine.warm()
    assert second.result is not None
    assert second.result.files == len(changed)
    whole = FILES * FILE_BYTES
    print(f"{second.result.fetched_bytes} of {whole} bytes fetched, {meter.get.bytes} with all metadata")
    assert second.result.fetched_bytes <= whole * 2 // 100
    after = survey(second.path)
    assert differences(survey(source), after, view=True) == []
    if shares_by_link(machine):
        names = {os.fsencode(path.relative_to(source)) for path in changed}
        files = {path for path, node in after.items() if stat.S_ISREG(node.kind)}
        assert {path for path in files if after[path].inode != before[path].inode} == names
    assert differences(before, survey(first.path), view=True) == []  # the view of a running job is as it was


def test_a_warm_view_asks_for_no_data(machine: Machine, scratch: Path) -> None:
    make_source(scratch / DATASET, 50)
    machine.push(scratch / DATASET)
    first, _ = machine.warm()
    inode = first.path.stat().st_ino
    again, _ = machine.warm()
    assert again.result is None
    assert (again.path, again.path.stat().st_ino) == (first.path, inode)


def test_the_receipt_tells_what_is_ready(machine: Machine, scratch: Path) -> None:
    make_source(scratch / DATASET, 20)
    pushed = machine.run("push", scratch / DATASET, "--json").result
    path = Path(machine.run("warm", DATASET).stdout.removesuffix("\n"))
    assert path.parent == machine.cache / "views" / DATASET
    assert path.name == f"1-{pushed['snapshot'][:16]}"
    ready = json.loads(path.with_name(path.name + ".READY.json").read_text())
    assert ready.pop("completed").endswith("Z")
    assert ready.pop("tool").startswith("datasync ")
    assert ready.pop("node").startswith("dss1")
    assert len(bytes.fromhex(ready.pop("signature"))) == 64
    with machine.session() as session:
        opened = session.repository.open(DATASET)
        newest = opened.history.newest()
        assert newest is not None
        repository, root = session.repository.marker.repository, newest.body.manifest.hex()
    assert ready == {
        "version": 1,
        "dataset": DATASET,
        "dataset_id": pushed["trust"],
        "repository": repository,
        "seq": 1,
        "snapshot": pushed["snapshot"],
        "root": root,
        "entries": 30,
        "files": 20,
        "bytes": 20 * FILE_BYTES,
        "subset": [],
    }


def test_a_view_can_be_read_and_not_written(machine: Machine, scratch: Path) -> None:
    source = scratch / DATASET
    make_source(source, 10)
    (source / "class-0" / "0000").chmod(0o777)
    (source / "class-1" / "0001").chmod(0o4640)
    (source / "class-2").chmod(0o1777)
    machine.push(source)
    view = survey(machine.warm()[0].path)
    assert view[b""].mode == 0o700
    assert view[b"class-0/0000"].mode == 0o555
    assert view[b"class-1/0001"].mode == 0o440
    assert view[b"class-2"].mode == 0o555
    assert all(node.mode & 0o7222 == 0 for path, node in view.items() if path)
    assert stat.S_IMODE((machine.cache / "objects").stat().st_mode) == 0o700


# run


def test_run_gives_the_command_its_data_and_its_exit_code(machine: Machine, scratch: Path) -> None:
    source = scratch / "some.data-set"
    make_source(source, 10)
    pushed = machine.run("push", source, "--json").result
    code = (
        "import os, pathlib, sys; root = pathlib.Path(os.environ['DATASYNC_DATASET_SOME_DATA_SET']);"
        "print(sorted(p.name for p in root.iterdir())[0], os.environ['DATASYNC_SNAPSHOT_SOME_DATA_SET'], sys.argv[1:]);"
        "sys.exit(37)"
    )
    done = machine.run(
        "run", "--data", "some.data-set", "--", sys.executable, "-c", code, "--json", "-v", "x", expect=37
    )
    assert done.stdout == f"class-0 {pushed['snapshot']} ['--json', '-v', 'x']\n"
    missing = machine.run("run", "--data", "some.data-set", "--", "no-such-command", expect=4)
    assert "no-such-command" in missing.stderr
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    machine.run("run", "--data", "some.data-set", "--", sys.executable, "-c", killed, expect=128 + signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_run_passes_signals_on(machine: Machine, scratch: Path, number: signal.Signals) -> None:
    make_source(scratch / DATASET, 3)
    machine.push(scratch / DATASET)
    code = (
        f"import signal, sys; signal.signal({number:d}, lambda *_: sys.exit(55)); print('up', flush=True);"
        "signal.pause()"
    )
    process = machine.start("run", "--data", DATASET, "--", sys.executable, "-c", code)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert finish(process).code == 55


# pull


def test_a_pull_goes_on_and_leaves_the_same_files_alone(machine: Machine, scratch: Path) -> None:
    source, target = scratch / DATASET, scratch / "pulled"
    make_source(source, 60)
    os.link(source / "class-1" / "0001", source / "class-2" / "linked")
    machine.push(source)
    machine.pull(target)
    before = survey(target)
    gone = [
        target / "class-3" / "0003",
        target / "class-5",
        *(target / "class-5").iterdir(),
        target / "class-4" / "0004",
    ]
    held = [os.open(path, os.O_RDONLY) for path in gone]  # so that their inode numbers are not given to others
    (target / "class-3" / "0003").unlink()
    (target / "class-4" / "0004").write_bytes(b"cut off")
    shutil.rmtree(target / "class-5")
    (target / "own file").write_bytes(b"not of the snapshot")
    again = machine.pull(target).result
    assert again.files == 8  # 0003, 0004 and the six of class-5
    assert again.kept == 60 + 1 - 8
    after = survey(target)
    assert (target / "own file").read_bytes() == b"not of the snapshot"
    expected = survey(source)
    del after[b"own file"], after[b""], expected[b""]
    assert differences(expected, after) == []
    written = {path for path, node in after.items() if node.inode != before[path].inode}
    assert written == {b"class-3/0003", b"class-4/0004", b"class-5"} | {b"class-5/%04d" % n for n in range(5, 60, 10)}
    for fd in held:
        os.close(fd)


def test_a_killed_pull_leaves_nothing_once_it_was_run_again(machine: Machine, scratch: Path) -> None:
    source, target = scratch / DATASET, scratch / "pulled"
    source.mkdir()
    for number in range(24):
        (source / f"{number:02}").write_bytes(content(number, 8 * MIB))
    machine.push(source)
    process = machine.start("pull", DATASET, target)
    while process.poll() is None and not list(target.glob(".datasync-part-*")):
        pass
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    assert list(target.glob(".datasync-part-*"))
    machine.pull(target)
    found, expected = survey(target), survey(source)
    del found[b""], expected[b""]
    assert differences(expected, found) == []


# a full disk

UNCOUNTED = """
from datasync.cache.space import Space
from datasync.cli.main import main
Space._fits = lambda *_: True
main()
"""


@pytest.fixture
def small_disk(scratch: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    disk = scratch / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=24m,mode=0755", "none", str(disk)]
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False) if os.geteuid() == 0 else None
    if mounted is None or mounted.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(
    machine: Machine, scratch: Path, small_disk: Path
) -> None:
    source = scratch / DATASET
    make_source(source, 10)
    machine.push(source)
    cache = small_disk / "cache"
    path = Path(machine.run("warm", DATASET, "--cache", cache).stdout.removesuffix("\n"))
    before = survey(path)
    (source / "large").write_bytes(content(9, 32 * MIB))
    machine.push(source)
    for arguments in (("warm", DATASET, "--cache", cache), ("pull", DATASET, small_disk / "pulled")):
        done = machine.run(*arguments, expect=8)
        assert str(small_disk) in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert survey(path) == before  # room for it can not be made, so nothing is given up
    assert [name.name for name in (cache / "views" / DATASET).glob("2-*")] == []
    assert not list(small_disk.glob("pulled/large"))


def test_a_disk_that_fills_up_leaves_the_view_of_a_job_as_it_is(
    machine: Machine, scratch: Path, small_disk: Path
) -> None:
    """Somebody else takes the space after it was counted."""
    source = scratch / DATASET
    make_source(source, 10)
    machine.push(source)
    cache = small_disk / "cache"
    code = "import os, sys; print(os.environ['DATASYNC_DATASET_DATA'], flush=True); sys.stdin.read()"
    job = machine.start(
        "run", "--data", DATASET, "--cache", cache, "--", sys.executable, "-c", code, stdin=subprocess.PIPE
    )
    assert job.stdout is not None
    path = Path(job.stdout.readline().removesuffix("\n"))
    before = survey(path)
    for number in range(8):
        (source / f"large-{number}").write_bytes(content(number, 512 * KIB))
    machine.push(source)
    free = os.statvfs(small_disk)
    (small_disk / "somebody else's").write_bytes(bytes(free.f_bavail * free.f_frsize - MIB))
    done = machine.run("warm", DATASET, "--cache", cache, expect=8, command=(sys.executable, "-c", UNCOUNTED))
    assert len(done.stderr.splitlines()) == 1
    assert survey(path) == before
    assert list((cache / "views" / DATASET).glob("2-*")) == []
    assert finish(job).code == 0
    (small_disk / "somebody else's").unlink()
    ready = Path(machine.run("warm", DATASET, "--cache", cache).stdout.removesuffix("\n"))
    assert differences(survey(source), survey(ready), view=True) == []
