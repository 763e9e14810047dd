"""Small files are placed by processes of their own: the same result, the same errors, and nothing left behind."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datasync.cache.layout import Cache
from datasync.errors import DatasyncError, IntegrityError, NoSpace
from datasync.pull import crew as crews
from datasync.pull.batch import Batch, Done
from datasync.pull.crew import Crew, size_for
from datasync.service.scrub import first_look
from tests.node.conftest import Disk
from tests.node.datasets import broken, fill, receipts
from tests.support.daemons import wait_until
from tests.support.machine import Machine
from tests.support.trees import KIB, content, survey

FILES = 120


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Let one small file be enough for workers, two of them; yield the first processes of those that were started."""
    found: list[Any] = []
    real = subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> Any:
        found.append(real(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(crews, "FILES_TO_PAY", 1)
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    yield found
    assert all(process.returncode is not None for process in found), "a worker was not waited for"


@pytest.fixture
def source(machine: Machine, scratch: Path) -> Path:
    """Small files of all kinds, and two of several chunks."""
    root = fill(scratch / "data", FILES, 3 * KIB)
    (root / "empty").touch()
    (root / "private").write_bytes(b"mine")
    os.chmod(root / "private", 0o600)
    (root / "twin").write_bytes((root / "class-0" / "00000").read_bytes())
    os.setxattr(root / "twin", "user.note", b"value")
    (root / "hole").write_bytes(b"data")
    os.truncate(root / "hole", 100 * KIB)
    for number in range(2):
        (root / f"large-{number}").write_bytes(content(900 + number, 5_000 * KIB))
    (root / "link").symlink_to("twin")
    machine.must("push", root, "--xattrs")
    return root


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o777])
def test_a_view_is_the_same_whatever_the_umask(
    machine: Machine, source: Path, scratch: Path, started: list[Any], umask: int
) -> None:
    machine.must("cache", "status")  # makes the cache's directories
    before = os.umask(umask)
    try:
        machine.must("warm", "data")
    finally:
        os.umask(before)
    assert len(started) == 1
    assert broken(scratch / "cache", {"data/1": survey(source)}) == []
    machine.must("ready", "data", "--deep")
    assert not list((scratch / "cache" / "objects").glob("objects.dirty.*"))  # the workers' markers went with the flush
    with Cache.open(scratch / "cache") as cache:  # what was noted while writing fits all objects
        assert len(first_look(cache).clean) == len(list((scratch / "cache" / "objects").glob("??/*")))


def test_workers_get_no_key_and_no_credential_by_argument_or_environment(
    machine: Machine, source: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
    given: list[Any] = []
    real = subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        given.append((command, options["env"]))
        return real(command, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    machine.must("warm", "data")
    assert given
    for command, environment in given:
        assert command[1:4] == ["-P", "-m", "datasync.pull.worker"]
        assert all(text.isdigit() for text in command[4:])
        assert set(environment) <= {*crews._KEPT, "PYTHONPATH"}


def workers(first: int) -> list[int]:
    """Return the two workers' pids, once both are there."""
    children = Path(f"/proc/{first}/task/{first}/children")
    wait_until("a forked worker", lambda: children.read_text().split())
    return [first, *map(int, children.read_text().split())]


@pytest.mark.parametrize("victims", [slice(None), slice(1, None)], ids=["both", "the forked"])
def test_a_worker_that_dies_stops_the_warm_and_the_same_line_finishes(
    machine: Machine,
    source: Path,
    scratch: Path,
    started: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    victims: slice,
) -> None:
    killed: list[int] = []
    place, alone = crews.Crew.place, threading.Lock()

    def kill_first(self: Crew, batch: Batch) -> Done:
        with alone:
            if not killed:
                assert all(member.is_up() for member in self._members)
                killed.extend(workers(started[0].pid)[victims])
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
        return place(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(crews.Crew, "place", kill_first)
        ran = machine.run("warm", "data")
    assert ran.code == 1
    assert "worker process" in ran.message
    assert receipts(scratch / "cache") == []
    machine.must("warm", "data")
    assert broken(scratch / "cache", {"data/1": survey(source)}) == []


def test_where_no_worker_can_be_forked_one_does_the_work(
    machine: Machine, source: Path, scratch: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (scratch / "no-fork").mkdir()
    (scratch / "no-fork" / "sitecustomize.py").write_text(
        "import os\n\ndef fork():\n    raise BlockingIOError('no more processes')\n\nos.fork = fork\n"
    )
    monkeypatch.syspath_prepend(scratch / "no-fork")  # workers get our path
    machine.must("warm", "data")
    assert len(started) == 1
    assert broken(scratch / "cache", {"data/1": survey(source)}) == []


def test_where_no_process_can_be_started_threads_do_the_work(
    machine: Machine, source: Path, scratch: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    machine.must("warm", "data")
    assert broken(scratch / "cache", {"data/1": survey(source)}) == []


def test_a_disk_that_a_worker_finds_full_is_told_as_such(
    machine: Machine, source: Path, scratch: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Crew, "place", lambda self, batch: _raise(NoSpace("the disk is full")))
    ran = machine.run("warm", "data")
    assert ran.code == 8
    assert receipts(scratch / "cache") == []


def _raise(error: DatasyncError) -> Done:
    raise error


def test_a_small_disk_fills_up_in_a_worker(
    machine: Machine, source: Path, disk: Disk, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = disk("24m")
    hog = small / "hog"
    real = crews.Crew.place

    def place(self: Crew, batch: Batch) -> Done:
        with hog.open("wb") as file:  # another program takes what was reserved
            os.posix_fallocate(file.fileno(), 0, os.statvfs(small).f_bavail * os.statvfs(small).f_frsize)
        return real(self, batch)

    monkeypatch.setattr(crews.Crew, "place", place)
    tight = Machine(machine.home, machine.repository, {**machine.extra, "DATASYNC_CACHE": str(small / "cache")})
    ran = tight.run("warm", "data")
    assert ran.code == 8
    assert receipts(small / "cache") == []


def test_a_changed_byte_is_refused_in_a_worker(
    machine: Machine, source: Path, scratch: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = crews.Crew.place

    def place(self: Crew, batch: Batch) -> Done:
        return real(self, Batch(batch.name, batch.key, batch.head, batch.base + 1, batch.small))

    monkeypatch.setattr(crews.Crew, "place", place)
    ran = machine.run("warm", "data")
    assert ran.code == IntegrityError.exit_code
    assert receipts(scratch / "cache") == []


def test_few_files_are_not_worth_a_process() -> None:
    assert size_for(crews.FILES_TO_PAY - 1) == 0
    assert size_for(crews.FILES_TO_PAY) in range(1, crews.WORKERS + 1)
