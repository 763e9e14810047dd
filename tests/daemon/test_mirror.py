"""Mirrors as processes: what changes is pushed, what looks wrong is held, what fails is tried again."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.daemons import Daemon, daemon, is_root, may_unshare, mirror_table, wait_until
from tests.support.machine import Machine, contents

QUEUE = 16_384  # fs.inotify.max_queued_events, by default
QUEUE_LIMIT = Path("/proc/sys/fs/inotify/max_queued_events")
BURSTS = (300, pytest.param(100_000, marks=pytest.mark.long))  # files made after the queue was full


def newest(machine: Machine, folder: Path, dataset: str = "data") -> dict[str, object]:
    """Return names and contents of the newest snapshot."""
    shutil.rmtree(folder, ignore_errors=True)
    machine.must("pull", dataset, folder)
    return contents(folder)


def settled(running: Daemon, number: int = 0) -> None:
    """Wait until everything that was hinted at is pushed."""
    wait_until("nothing waits", lambda: _quiet(running, number))


def _quiet(running: Daemon, number: int) -> bool:
    found = running.mirror(number)
    return found["state"] == "waiting" and found["behind_since"] is None and found["pushed_at"] is not None


def test_changes_are_pushed_and_many_saves_make_few_snapshots(machine: Machine, source: Path, scratch: Path) -> None:
    with daemon(machine, mirror_table(source, debounce="2s")) as running:
        settled(running)
        for number in range(100):
            (source / "saved").write_text(f"save {number}")
            time.sleep(0.005)
        wait_until("a change is seen", lambda: running.mirror()["seq"] > 1)
        settled(running)
        assert newest(machine, scratch / "out") == contents(source)
        assert running.mirror()["seq"] <= 4, "a hundred saves"


def test_a_new_file_that_is_still_written_waits_and_is_pushed_whole(
    machine: Machine, source: Path, scratch: Path
) -> None:
    with daemon(machine, mirror_table(source, stable="4s", debounce="100ms")) as running:
        settled(running)
        times = [time.monotonic()]
        with (source / "growing").open("w") as file:
            for number in range(30):
                file.write(f"line {number}\n")
                file.flush()
                times.append(time.monotonic())
                time.sleep(0.05)
        stalled = max(after - before for before, after in pairwise(times)) > 3  # then it was rightly taken to be whole
        wait_until("it is pushed", lambda: (source / "growing").name in newest(machine, scratch / "out"))
        settled(running)
        assert newest(machine, scratch / "out") == contents(source)
        for seq in range(1, running.mirror()["seq"] + 1):
            machine.must("pull", f"data@{seq}", scratch / f"at{seq}")
            found = scratch / f"at{seq}" / "growing"
            assert stalled or not found.exists() or found.read_text() == (source / "growing").read_text()


def test_an_emptied_source_is_held_until_a_person_confirms(machine: Machine, source: Path, scratch: Path) -> None:
    with daemon(machine, mirror_table(source)) as running:
        settled(running)
        before = running.mirror()["seq"]
        for path in source.iterdir():
            shutil.rmtree(path)
        wait_until("it is held", lambda: running.mirror()["held"])
        assert running.status()["state"] == "degraded"
        assert [item["kind"] for item in running.status()["alerts"]] == ["deletion-held"]
        assert running.mirror()["seq"] == before
        machine.must("daemon", "confirm", "data")
        wait_until("it is pushed", lambda: running.mirror()["seq"] == before + 1)
        assert newest(machine, scratch / "out") == {}
        assert running.status()["alerts"] == []
        assert machine.run("daemon", "confirm", "data").code == 11


def test_a_source_that_vanished_is_held_and_goes_on_when_it_is_back(machine: Machine, source: Path) -> None:
    with daemon(machine, mirror_table(source)) as running:
        settled(running)
        source.rename(source.with_name("away"))
        running.api.call("POST", "/v1/mirrors/data/push")
        wait_until("it is held", lambda: "no such directory" in (running.mirror()["held"] or ""))
        source.with_name("away").rename(source)
        (source / "new").write_text("new")
        wait_until("it goes on", lambda: running.mirror()["seq"] == 2)
        assert running.mirror()["held"] is None
        (source / "newer").write_text("events come again")
        wait_until("it is watched again", lambda: running.mirror()["seq"] == 3)


@pytest.mark.skipif(not is_root(), reason="mounting needs root")
def test_a_source_that_is_unmounted_loses_nothing(machine: Machine, scratch: Path) -> None:
    mount = scratch / "mount"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "none", str(mount)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("mounting is not allowed here")
    mounted = True
    try:
        for number in range(30):
            (mount / f"f{number}").write_text("x")
        with daemon(machine, mirror_table(mount)) as running:
            settled(running)
            subprocess.run(["umount", "-l", str(mount)], check=True)
            mounted = False
            wait_until("it is held", lambda: running.mirror()["held"])
            assert running.mirror()["seq"] == 1
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.parametrize("burst", BURSTS)
def test_a_queue_that_overflows_loses_nothing_and_is_told(
    machine: Machine, source: Path, scratch: Path, burst: int
) -> None:
    """The daemon is stopped while more is created than the kernel's queue holds."""
    with daemon(machine, mirror_table(source, rescan="1h")) as running:
        settled(running)
        assert running.process is not None
        running.process.send_signal(signal.SIGSTOP)
        for number in range(QUEUE + 1000):
            os.utime(source / f"d{number % 2}" / f"f{number % 2}")  # in turns: equal events in a row count once
        for number in range(burst):
            os.close(os.open(source / "d0" / f"b{number}", os.O_CREAT | os.O_WRONLY, 0o644))
        running.process.send_signal(signal.SIGCONT)
        wait_until("it is told", lambda: any(event["event"] == "mirror degraded" for event in running.events()))
        assert any("overflow" in event.get("reason", "") for event in running.events())
        wait_until("it is healthy again", lambda: running.mirror()["degraded"] is None)
        settled(running)
        assert running.mirror()["seq"] >= 2
        (source / "last").write_text("events come again")
        wait_until("it is watched again", lambda: b"last" in machine.must("ls", "data").out.encode())
        settled(running)
        assert newest(machine, scratch / "out").keys() == contents(source).keys()


@contextmanager
def small_queue(events: int) -> Iterator[Callable[[], None]]:
    """Let the queues that are made from now on hold so few *events*, until the function that is yielded is called."""
    before = QUEUE_LIMIT.read_text()

    def restore() -> None:
        QUEUE_LIMIT.write_text(before)

    QUEUE_LIMIT.write_text(str(events))
    try:
        yield restore
    finally:
        restore()


@pytest.mark.skipif(not os.access(QUEUE_LIMIT, os.W_OK), reason="a smaller queue of events needs root's sysctl")
@pytest.mark.parametrize(("creates", "bursts"), [(3_000, 10), pytest.param(100_000, 20, marks=pytest.mark.long)])
def test_bursts_of_creates_lose_nothing_while_the_daemon_works(
    machine: Machine, source: Path, scratch: Path, creates: int, bursts: int
) -> None:
    with small_queue(64) as restore, daemon(machine, mirror_table(source, rescan="1h")) as running:
        settled(running)
        restore()
        for burst in range(bursts):
            (source / f"burst{burst}").mkdir()
            for number in range(creates // bursts):
                os.close(os.open(source / f"burst{burst}" / f"b{number}", os.O_CREAT | os.O_WRONLY, 0o644))
            time.sleep(0.1)
        wait_until("it is told", lambda: any(event["event"] == "mirror degraded" for event in running.events()))
        wait_until("it is healthy again", lambda: running.mirror()["degraded"] is None)
        settled(running)
        assert newest(machine, scratch / "out").keys() == contents(source).keys()
        assert running.status()["state"] == "healthy"
        before = running.mirror()["pushes"]
        (source / "burst0" / "last").write_text("events come again")
        _pushed_again(running, before)


RAISED = "echo 10000 > /proc/sys/user/max_inotify_watches"


@pytest.mark.skipif(not may_unshare(), reason="a limit of watches of its own needs a user namespace")
def test_too_few_watches_mean_scanning_and_are_told(machine: Machine, source: Path, scratch: Path) -> None:
    for number in range(80):
        (source / f"folder{number}").mkdir()
    limit = 'echo 50 > /proc/sys/user/max_inotify_watches && exec "$@"'
    table = mirror_table(source, rescan="2s")
    with daemon(machine, table, prefix=("unshare", "-Ur", "sh", "-c", limit, "sh")) as running:
        wait_until("it is told", lambda: "max_user_watches" in (running.mirror()["degraded"] or ""))
        assert running.status()["state"] == "degraded"
        settled(running)
        (source / "folder79" / "unwatched").write_text("found by scanning")
        wait_until("it is found", lambda: "folder79/unwatched" in newest(machine, scratch / "out"))
        assert [event["event"] for event in running.events()].count("mirror degraded") == 1, "told once"
        assert running.process is not None
        inside = ("nsenter", "--user", "--preserve-credentials", f"--target={running.process.pid}", "sh", "-c", RAISED)
        subprocess.run(inside, check=True)
        wait_until("it watches", lambda: running.mirror()["degraded"] is None)
        assert running.status()["state"] == "healthy"


def test_a_store_that_is_away_is_tried_again_without_end(machine: Machine, source: Path, scratch: Path) -> None:
    with daemon(machine, mirror_table(source)) as running:
        settled(running)
        store = Path(machine.repository)
        store.rename(store.with_name("away"))
        (source / "later").write_text("later")
        wait_until("it fails", lambda: running.mirror()["state"] == "failing")
        assert running.mirror()["behind_since"] is not None
        store.with_name("away").rename(store)
        wait_until("it catches up", lambda: running.mirror()["seq"] == 2)
        assert newest(machine, scratch / "out") == contents(source)


def test_a_killed_daemon_catches_up_with_what_happened_meanwhile(machine: Machine, source: Path, scratch: Path) -> None:
    with daemon(machine, mirror_table(source)) as running:
        settled(running)
        running.kill()
        (source / "meanwhile").write_text("x")
        (source / "d0" / "f0").unlink()
        running.start()
        wait_until("it catches up", lambda: running.mirror()["seq"] == 2)
        assert newest(machine, scratch / "out") == contents(source)


def _pushed_again(running: Daemon, before: int) -> None:
    wait_until("it made a snapshot", lambda: running.mirror()["pushes"] > before)


def test_two_daemons_with_copies_of_one_tree_push_in_turns(machine: Machine, source: Path, scratch: Path) -> None:
    copy = scratch / "copy"
    shutil.copytree(source, copy)
    other = machine.sibling(scratch / "home2")
    with daemon(machine, mirror_table(source)) as first:
        settled(first)
        with daemon(other, mirror_table(copy)) as second:
            wait_until("it asks", lambda: "--source-change" in (second.mirror()["held"] or ""))
        with daemon(other, mirror_table(copy, shared=True)) as second:
            settled(second)
            for turn in range(2):
                for root, running in ((source, first), (copy, second)):
                    before = running.mirror()["pushes"]
                    (root / f"turn{turn}").write_text(f"turn {turn} of {root.name}")
                    _pushed_again(running, before)
            for root in (source, copy):
                (root / "at once").write_text(f"from {root.name}")
            wait_until("both are quiet", lambda: _quiet(first, 0) and _quiet(second, 0))
            (source / "last").write_text("last")
            wait_until("the last one is in", lambda: "last" in newest(machine, scratch / "out"))
            settled(second)
    lines = [json.loads(line) for line in machine.must("log", "data", "--json").out.splitlines()]
    seqs = [line["seq"] for line in lines if line["type"] == "snapshot"]
    assert seqs == list(range(len(seqs), 0, -1))
    assert len(seqs) >= 5
    assert machine.run("verify", "data").code == 0


def test_another_tree_is_refused_by_push_and_let_in_when_it_is_meant(
    machine: Machine, source: Path, scratch: Path
) -> None:
    machine.must("push", source, "--dataset", "data")
    other = scratch / "other"
    other.mkdir()
    (other / "x").write_text("x")
    refused = machine.run("push", other, "--dataset", "data")
    assert refused.code == 2
    assert "--source-change" in refused.err
    assert machine.run("push", other, "--dataset", "data", "--dry-run").code == 2
    assert machine.must("push", other, "--dataset", "data", "--source-change", "--json").result["seq"] == 2
    assert machine.must("push", source, "--dataset", "data", "--json").result["seq"] == 3, "known from before"
    shutil.rmtree(machine.state)
    assert machine.must("push", other, "--dataset", "data", "--json").result["seq"] == 4, "the history knows it"


def test_watch_in_the_foreground_pushes_until_a_signal(machine: Machine, source: Path, scratch: Path) -> None:
    child = machine.start("push", source, "--dataset", "data", "--watch", "--json")
    try:
        wait_until("the first push", lambda: machine.run("ls", "data").code == 0)
        (source / "more").write_text("more")
        wait_until("the second push", lambda: "more" in newest(machine, scratch / "out"))
    finally:
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert '"type": "pushed"' in out
