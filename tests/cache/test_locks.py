"""ViewLock: one maker at a time, and death hands over."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from datasync.cache.layout import Cache, View
from datasync.cache.locks import ViewLock
from datasync.errors import DeadlineExceeded, IntegrityError
from datasync.model.ids import SnapshotId


@pytest.fixture
def view(cache: Cache) -> View:
    return cache.view("d", 1, SnapshotId(bytes(32)))


def test_one_holds_and_the_other_waits_until_its_deadline(cache: Cache, view: View) -> None:
    calls: list[int] = []
    first, second = ViewLock(cache, view), ViewLock(cache, view)
    first.acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    with pytest.raises(DeadlineExceeded, match="d/1-0000"):
        second.acquire(lambda: calls.append(1), time.monotonic() + 0.05)
    assert calls
    first.release()
    first.release()
    with second:
        assert not first.try_acquire()
    assert first.try_acquire()
    first.release()


def test_views_do_not_wait_for_each_other(cache: Cache, view: View) -> None:
    with ViewLock(cache, view), ViewLock(cache, cache.view("d", 2, SnapshotId(bytes(32)))):
        pass


def test_a_callback_may_end_the_waiting(cache: Cache, view: View) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with ViewLock(cache, view), pytest.raises(KeyboardInterrupt):
        ViewLock(cache, view).acquire(stop)


def test_a_lock_file_that_was_removed_locks_nobody(cache: Cache, view: View) -> None:
    first, second = ViewLock(cache, view), ViewLock(cache, view)
    first.acquire()
    cache.tree.remove(view.lock)
    assert second.try_acquire()  # the name is what counts
    third = ViewLock(cache, view)
    assert not third.try_acquire()


def test_a_planted_lock_is_refused(cache: Cache, view: View, tmp_path: Path) -> None:
    cache.make_folder(view)
    (tmp_path / "victim").touch()
    (cache.path / os.fsdecode(view.lock)).symlink_to(tmp_path / "victim")
    with pytest.raises(IntegrityError):
        ViewLock(cache, view).acquire()


HOLDER = """
import os, sys
from pathlib import Path
from datasync.cache.layout import Cache
from datasync.cache.locks import ViewLock
with Cache.open(Path(sys.argv[1])) as cache:
    with ViewLock(cache, cache.view("d", 1, bytes(32))):
        print("holding", flush=True)
        sys.stdin.read()
"""

RANK = """
import os, sys, time
from pathlib import Path
from datasync.cache.layout import Cache
from datasync.cache.locks import ViewLock
done = Path(sys.argv[1], "done")
with Cache.open(Path(sys.argv[1])) as cache:
    lock = ViewLock(cache, cache.view("d", 1, bytes(32)))
    print("asking", flush=True)
    with lock:
        if not done.exists():
            with open(Path(sys.argv[1], "transfers"), "a") as log:
                log.write("x")
            time.sleep(0.02)
            done.touch()
"""


def start(script: str, cache: Cache) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", script, str(cache.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_kill_of_the_holder_hands_over_and_one_of_the_waiters_does_the_work(cache: Cache, view: View) -> None:
    children = [start(HOLDER, cache)]
    try:
        assert children[0].stdout is not None
        assert children[0].stdout.readline() == b"holding\n"
        for _ in range(4):
            rank = start(RANK, cache)
            children.append(rank)
            assert rank.stdout is not None
            assert rank.stdout.readline() == b"asking\n"
        assert not ViewLock(cache, view).try_acquire()
        assert not (cache.path / "done").exists()
        children[0].kill()
        assert [rank.wait(60) for rank in children[1:]] == [0, 0, 0, 0]
        assert (cache.path / "transfers").read_text() == "x"
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_a_command_that_the_holder_starts_does_not_inherit_the_lock(cache: Cache, view: View) -> None:
    lock = ViewLock(cache, view)
    lock.acquire()
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as command:
        lock.release()
        assert ViewLock(cache, view).try_acquire()
        assert command.poll() is None
        command.communicate()
