"""One machine that uses datasync: a HOME of its own, one repository, the command line as a process and the service in
this one.

`Machine.run` and `Machine.start` are the real command line; `push`, `pull` and `warm` are the same service without the
start of an interpreter, and count what they ask of the store. Both read the environment that the fixture has set.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.config import Flags, load_config
from datasync.push.options import PushOptions, PushResult
from datasync.service.push import push_directory
from datasync.service.session import TOOL, Session
from datasync.service.warm import Pulled, Warmed, pull, warm
from datasync.storage.location import open_store, parse_url
from datasync.storage.meter import Meter, MeteredStore
from datasync.storage.protocol import ObjectStat
from datasync.storage.retry import RetryingStore
from tests.support.requests import RecordingStore, Request

PROJECT = Path(__file__).resolve().parents[2]
DATASET = "data"
DEADLINE_SECONDS = 120
COMMAND = (sys.executable, "-m", "datasync.cli.main")


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """What --json printed."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def result(self) -> dict[str, Any]:
        """The last line of --json."""
        last = self.events[-1]
        assert last["type"] == "result"
        return last


@dataclass(frozen=True, slots=True)
class Machine:
    """A HOME, a working directory that is empty, and the URL of a repository."""

    home: Path
    url: str

    @property
    def cache(self) -> Path:
        return self.home / "cache"

    @property
    def state(self) -> Path:
        return self.home / ".local" / "state" / "datasync"

    @property
    def identity(self) -> Path:
        return self.home / ".config" / "datasync" / "identity"

    def environment(self) -> dict[str, str]:
        """Return what a child process gets."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DATASYNC_", "XDG_"))}
        return kept | self._settings() | {"PYTHONPATH": str(PROJECT)}

    def _settings(self) -> dict[str, str]:
        return {"HOME": str(self.home), "DATASYNC_REPOSITORY": self.url, "DATASYNC_CACHE": str(self.cache)}

    def start(
        self, *arguments: str | Path, command: tuple[str, ...] = COMMAND, stdin: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[str]":
        """Start the command line and return at once."""
        return subprocess.Popen(
            [*command, *map(str, arguments)],
            env=self.environment(),
            cwd=self.home,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def run(self, *arguments: str | Path, expect: int = 0, command: tuple[str, ...] = COMMAND) -> Finished:
        """Run the command line to its end, which has the exit code *expect*."""
        done = finish(self.start(*arguments, command=command))
        assert done.code == expect, f"{arguments}: expected {expect}, found {done.code}\n{done.stdout}\n{done.stderr}"
        return done

    # the service, in this process

    @contextmanager
    def session(self, requests: list[Request] | None = None) -> Iterator[Session]:
        """Yield a session; *requests* receives every request to the store."""
        config = load_config(Flags(), self._settings())
        session = Session(config)
        if requests is not None:
            store = RecordingStore(open_store(parse_url(self.url)), requests)
            session.__dict__["store"] = MeteredStore(RetryingStore(store))
        try:
            yield session
        finally:
            session.close()

    def push(self, path: Path, *, requests: list[Request] | None = None, **options: Any) -> PushResult:
        """Push *path* into the one dataset."""
        with self.session(requests) as session:
            chosen = PushOptions(tool=TOOL, **options)
            return push_directory(session, path, DATASET, chosen, tag=None, report=lambda _: None).result

    def pull(self, target: Path, reference: str = DATASET) -> Pulled:
        """Pull into *target*."""
        with self.session() as session:
            return pull(session, reference, target, lambda _: None)

    def warm(self, reference: str = DATASET) -> tuple[Warmed, Meter]:
        """Warm, and tell what the store was asked for."""
        with self.session() as session:
            return warm(session, reference, lambda _: None), session.store.snapshot()

    def objects(self, part: str = "") -> dict[str, ObjectStat]:
        """Return the store's objects whose names hold *part*."""
        store = open_store(parse_url(self.url))
        try:
            return {item.name: item for item in store.list("") if part in item.name}
        finally:
            store.close()


def finish(process: "subprocess.Popen[str]") -> Finished:
    """Wait for a command's end."""
    try:
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        raise AssertionError(f"{process.args!r} did not end:\n{stdout}\n{stderr}") from None
    return Finished(process.returncode, stdout, stderr)
