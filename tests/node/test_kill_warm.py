"""kill -9 at any moment of a warm: a receipt has every byte, and the same line finishes with what was placed kept."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from datasync.storage.local import LocalStore
from tests.node.datasets import broken, fill, receipts
from tests.support.machine import Machine
from tests.support.trees import KIB, MIB, Node, survey

FILES, FILE_BYTES = 48, 700 * KIB  # each is one to three chunks: what is there is not read through
SLACK_BYTES = 2 * MIB  # pages and widened ranges


@pytest.fixture
def fetched(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return what tells how many bytes this process and its children fetched so far."""
    get_range, log = LocalStore.get_range, scratch / "log"

    def counted(self: LocalStore, name: str, offset: int, buffer: memoryview) -> None:
        get_range(self, name, offset, buffer)
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, bytes(len(buffer) // KIB + 1))  # a byte for each KiB
        os.close(fd)

    monkeypatch.setattr(LocalStore, "get_range", counted)
    return lambda: log.stat().st_size * KIB if log.exists() else 0


def warm_in_a_child(machine: Machine) -> int:
    """Start a warm without the start of an interpreter; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        code = machine.run("warm", "data").code
    finally:
        os._exit(code)


def end(pid: int, after: float | None) -> int:
    """Wait for the child, killed *after* that many seconds unless it ends before; return its wait status."""
    if after is not None:
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


@pytest.mark.parametrize("kills", [12, pytest.param(50, marks=pytest.mark.long)])
def test_a_kill_at_any_moment_leaves_no_receipt_without_every_byte(
    machine: Machine, scratch: Path, fetched: Callable[[], int], kills: int
) -> None:
    source, cache = fill(scratch / "data", FILES, FILE_BYTES), scratch / "cache"
    fill(source / "small", 500, 3 * KIB, seed=7)
    machine.must("push", source)
    sources = {"data/1": survey(source)}
    started = time.monotonic()
    assert end(warm_in_a_child(machine), None) == 0
    whole_seconds = time.monotonic() - started
    dice, killed = random.Random(11), 0
    for at in range(kills):
        if at % 2 == 0:
            _forget(machine, cache)  # every other one goes on where a killed one stood
        status = end(warm_in_a_child(machine), whole_seconds * dice.uniform(0.02, 1.1))
        killed += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):
            whole_seconds *= 0.7  # the first one met a slower machine: the next kill comes sooner
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        assert broken(cache, sources) == []
        if at % 2 == 1:
            _finish(machine, cache, sources, fetched)
    assert killed > kills // 3
    machine.must("ready", "data", "--deep")


def _forget(machine: Machine, cache: Path) -> None:
    if receipts(cache):
        machine.must("cache", "evict", "data")
    machine.must("cache", "purge", "--yes")
    assert not list(cache.glob("objects/??/*"))
    assert not list(cache.glob("views/*/.staging-*"))


def _finish(machine: Machine, cache: Path, sources: dict[str, dict[bytes, Node]], fetched: Callable[[], int]) -> None:
    there = sum(path.stat().st_size for path in cache.glob("objects/??/*"))
    before = fetched()
    assert end(warm_in_a_child(machine), None) == 0
    missing = FILES * FILE_BYTES + 500 * 3 * KIB - there
    assert fetched() - before <= missing * 3 // 2 + SLACK_BYTES
    assert len(receipts(cache)) == 1
    assert broken(cache, sources) == []
    assert not list(cache.glob("views/*/.staging-*"))
