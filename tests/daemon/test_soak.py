"""A writer at work while one daemon mirrors to S3 and another one warms; both are killed, the server answers 503, is
killed and starts again, twice, and is away for a while: at the end source, newest snapshot and view are the same.

The short one, of two minutes, runs with `make test`; the long one, of a quarter of an hour, with `make test-long`.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.daemons import Daemon, configure, daemon, mirror_table, wait_until
from tests.support.faulty_server import Answer, Request, fault
from tests.support.machine import Machine, contents
from tests.support.relay import Relay, relay
from tests.support.servers import Restartable, restartable_seaweedfs

KILLS = 3
RESTARTS = 2
SETTLE_SECONDS = 400.0


@dataclass(frozen=True, slots=True)
class Load:
    """How long, how many files, how many operations a second, and how long the server is away."""

    seconds: float
    files: int
    rate: float
    outage: float


SHORT = Load(seconds=70, files=500, rate=100, outage=5)
LONG = Load(seconds=900, files=5000, rate=200, outage=60)


class Writer:
    """Creates, edits, renames and deletes files in two levels of folders."""

    def __init__(self, root: Path, load: Load) -> None:
        self._root, self._load = root, load
        self._random = random.Random(7)
        self._files = [root / f"d{number % 20}" / f"f{number}" for number in range(load.files)]
        self._next = load.files
        self.operations = 0
        for path in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(self._random.randrange(1, 2000)))

    def run(self) -> None:
        """Work until the time is over."""
        started = time.monotonic()
        while (now := time.monotonic() - started) < self._load.seconds:
            while self.operations < now * self._load.rate:
                self._one()
                self.operations += 1
            time.sleep(0.01)

    def _one(self) -> None:
        index = self._random.randrange(len(self._files))
        path, what = self._files[index], self._random.random()
        if what < 0.25:
            self._files.append(self._fresh())
            self._files[-1].write_bytes(os.urandom(self._random.randrange(1, 2000)))
        elif what < 0.6:
            with path.open("ab") as file:
                file.write(os.urandom(20))
        elif what < 0.75 or len(self._files) <= self._load.files:
            self._files[index] = path.rename(self._fresh())
        else:
            path.unlink()
            self._files[index] = self._files[-1]
            self._files.pop()

    def _fresh(self) -> Path:
        self._next += 1
        return self._root / f"d{self._random.randrange(20)}" / f"f{self._next}"


def slow_down(_: Request) -> Answer | None:
    return fault(503, "SlowDown")


@contextmanager
def at_work(writer: Writer) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=writer.run)
    thread.start()
    yield thread
    thread.join()


def disturb(load: Load, relayed: Relay, server: Restartable, running: tuple[Daemon, Daemon]) -> None:
    """Kill each daemon three times; in between the server is busy, restarts, and restarts after it was away."""
    step = (load.seconds - 2 * load.outage) / (KILLS + 1)
    for number in range(KILLS):
        time.sleep(step)
        for item in running:
            item.kill()
            item.start()
        if number == 0:
            relayed.fault = slow_down
            time.sleep(load.outage)
            relayed.heal()
        if number < RESTARTS:
            server.kill()
            time.sleep(load.outage * number)
            server.start()


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("load", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])
def test_nothing_is_lost_while_everything_fails(scratch: Path, fresh_bucket: str, load: Load) -> None:
    with restartable_seaweedfs() as server, relay(server.place) as relayed:
        server.place.make_bucket(fresh_bucket)
        owner = Machine.make(scratch / "owner", relayed.url(fresh_bucket), server.place.environment())
        owner.must("init")
        node = owner.sibling(scratch / "node", DATASYNC_CACHE=str(scratch / "cache"))
        writer = Writer(scratch / "source", load)
        table = mirror_table(scratch / "source", max_loss="100%", debounce="500ms", stable="300ms", rescan="5s")
        warm = f'[[warm]]\ndataset = "data"\nevery = "1s"\n[daemon]\nsocket = "{node.home}/d.sock"\n'
        with daemon(owner, table) as mirrors:
            wait_until("a first snapshot", lambda: mirrors.mirror()["seq"])
            configure(node, warm)
            with daemon(node, warm) as warms:
                with at_work(writer):
                    disturb(load, relayed, server, (mirrors, warms))
                wait_until("all is pushed", lambda: _same(owner, mirrors, scratch), SETTLE_SECONDS)
                seq = mirrors.mirror()["seq"]
                wait_until("it is ready", lambda: warms.status()["warms"][0]["seq"] == seq, SETTLE_SECONDS)
                view = Path(warms.status()["warms"][0]["path"])
                assert contents(view) == contents(scratch / "source")
        told = f"{writer.operations} operations, {seq} snapshots; of {relayed.passed} requests"
        print(f"{told}, {relayed.faults} were answered 503 and {relayed.broken} broken off")
        assert writer.operations >= load.rate * load.seconds * 0.5, "the writer was no idle one"
        assert relayed.faults > 0
        assert relayed.broken > 0
        assert owner.run("verify", "data").code == 0


def _same(owner: Machine, mirrors: Daemon, scratch: Path) -> bool:
    found = mirrors.mirror()
    if found["state"] != "waiting" or found["behind_since"] is not None:
        return False
    target = scratch / f"out{found['seq']}"
    owner.must("pull", f"data@{found['seq']}", target)
    return contents(target) == contents(scratch / "source")
