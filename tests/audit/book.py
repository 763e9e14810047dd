"""A log for tests: its own key, persons and clock, and short ways to write, read and verify."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasync.audit.checkpoint import Checkpoint, open_checkpoint
from datasync.audit.event import Event
from datasync.audit.log import Draft, Log, draft
from datasync.audit.query import Wanted, select
from datasync.audit.seal import People, Person
from datasync.audit.segments import LogFiles, local_log
from datasync.audit.verify import Verified, verify_log
from datasync.crypto.notes import NoteKey
from datasync.service.audit_log import PRIMITIVES

START = 1_764_000_000_000_000  # 2025-11-24T16:00:00Z
SECOND = 1_000_000
DAY = 86_400 * SECOND
SEED = bytes(range(32))


@dataclass(slots=True)
class Clock:
    """A clock that moves a millisecond each time it is read."""

    now: int = START

    def __call__(self) -> int:
        self.now += SECOND // 1000
        return self.now


@dataclass(slots=True)
class Book:
    """One log and its surroundings."""

    root: Path
    key: NoteKey
    people: People
    clock: Clock
    log: Log
    opened: list[Log] = field(default_factory=list)

    @classmethod
    def make(cls, root: Path, seed: bytes = SEED) -> "Book":
        key, clock = NoteKey(seed), Clock()
        people = People(root / "people", PRIMITIVES, seed)
        return cls(root, key, people, clock, Log(root, key, PRIMITIVES, people, now=clock))

    def again(self) -> Log:
        """Return another writer of the same log, as another process has it."""
        return Log(self.root, self.key, PRIMITIVES, People(self.root / "people", PRIMITIVES, SEED), now=self.clock)

    def write(self, count: int, action: str = "warm", *, who: str = "alice@host", group: int = 1) -> None:
        """Write *count* events, *group* of them under each checkpoint."""
        for number in range(count):
            self.log.append(self.event(action, number, who), sync=False)
            if (number + 1) % group == 0:
                self.log.flush()
        self.log.flush()

    def event(self, action: str, number: int = 0, who: str = "alice@host", **fields: Any) -> Draft:
        """Return a draft."""
        return draft(
            action, "success", Person(who, method="os-user", host="host"), dataset=f"data{number % 3}", **fields
        )

    @property
    def files(self) -> LogFiles:
        """The log as it lies on the disk."""
        return local_log(PRIMITIVES, self.log.directory)

    def segments(self) -> list[Path]:
        """The segments, the oldest first."""
        return sorted((self.log.directory / "segments").iterdir())

    def verify(self, kept: Iterable[Checkpoint] = ()) -> Verified:
        """Verify the log from its files."""
        return verify_log(PRIMITIVES, self.files, kept=kept)

    def checkpoint(self) -> Checkpoint:
        """Return the newest checkpoint."""
        return open_checkpoint(PRIMITIVES, self.verify().note, self.key.public)

    def events(self) -> list[Event]:
        """Return every event."""
        return list(select(self.files, Wanted()))
