"""kill -9 at any moment leaves a log that verifies and has every event that was said to be durable."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.audit.book import Book

PROGRAM = """
import sys
from pathlib import Path
from tests.audit.book import Book

book = Book.make(Path(sys.argv[1]))
number = 0
while True:
    for _ in range(5):
        book.log.append(book.event("look", number), sync=False)
        number += 1
    print(book.log.append(book.event("key.grant", number), sync=True), flush=True)
"""


def _kill_once(root: Path, seconds: float) -> list[int]:
    """Write, two processes at once, until both are killed; return the numbers of the events that were durable."""
    project = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", PROGRAM, str(root)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=project, env={"PYTHONPATH": str(project)})
        for _ in range(2)
    ]
    told: list[int] = []
    for process in running:
        assert process.stdout is not None
        told.append(int(process.stdout.readline()))  # both are at work
    time.sleep(seconds)
    for process in running:
        process.send_signal(signal.SIGKILL)
    for process in running:
        assert process.stdout is not None
        told += [int(line) for line in process.stdout if line.endswith("\n")]
        process.stdout.close()
        process.wait(timeout=60)
    return told


def _check(root: Path, moments: int) -> None:
    chance = random.Random(20261130)
    durable: list[int] = []
    for _ in range(moments):
        durable += _kill_once(root, chance.uniform(0, 0.15))
        book = Book.make(root)
        book.write(1, "push")
        done = book.verify()
        assert len(set(durable)) == len(durable), "a number was given twice"
        assert done.size > max(durable)
    grants = {event.seq for event in book.events() if event.action == "key.grant"}
    assert set(durable) <= grants, "an event that was durable is gone"
    assert len(grants) - len(set(durable)) <= 2 * moments, "more was written than was told"


def test_six_kills_lose_no_event_that_was_durable(tmp_path: Path) -> None:
    _check(tmp_path / "audit", 6)


@pytest.mark.long
def test_fifty_kills_lose_no_event_that_was_durable(tmp_path: Path) -> None:
    _check(tmp_path / "audit", 50)
