"""Verify a log with its public key alone: every line, every checkpoint, in one pass and constant memory.

Finds edits, cuts, insertions, reorders, duplicates and foreign keys, and names the first event that is wrong. Against
kept or anchored checkpoints it also finds a cut tail, an older state offered as the newest, and a split view. Raises
`IntegrityError`, `RollbackError` for what only a kept checkpoint shows.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import BinaryIO

from datasync.audit.checkpoint import Checkpoint, log_id, open_checkpoint
from datasync.audit.event import Event, decode, time_value
from datasync.audit.merkle import Frontier, leaf_hash
from datasync.audit.primitives import Primitives
from datasync.audit.retention import FIRST_KEPT, RETAIN
from datasync.audit.seal import month_of
from datasync.audit.segments import MARK_BYTES, LogFiles, is_note, lines, marks_of, read_note
from datasync.errors import FormatError, IntegrityError, RollbackError


@dataclass(frozen=True, slots=True)
class Silence:
    """Two events with more time between them than was allowed."""

    seq: int
    since: str
    until: str


@dataclass(slots=True)
class Verified:
    """What a log that holds is: its newest checkpoint, counts, times, and what deserves a look."""

    log: str
    begins: int
    size: int
    root: bytes
    note: str
    checkpoints: int
    first_time: str
    last_time: str
    gaps: list[tuple[int, str]] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    removals: dict[str, int] = field(default_factory=dict)
    """Of which logs this one tells that retention removed the events before a number."""
    uncompared: list[int] = field(default_factory=list)
    """Sizes of kept checkpoints of a time whose events retention removed."""


def check_beginnings(logs: Sequence[Verified]) -> None:
    """Refuse a log whose oldest events are gone unless a signed event of one of *logs* tells that retention did it."""
    for item in logs:
        told = max((other.removals.get(item.log, 0) for other in logs), default=0)
        if item.begins > told:
            raise IntegrityError(
                f"log {item.log}: event {told}: the events before {item.begins} are gone, and no audit.retain event "
                "of the logs here tells of their removal: they were cut out"
            )


def _ignore(seq: int, event: Event, leaf: bytes) -> None:
    return


def verify_log(
    p: Primitives,
    files: LogFiles,
    *,
    kept: Iterable[Checkpoint] = (),
    max_silence: timedelta | None = None,
    each: Callable[[int, Event, bytes], None] = _ignore,
) -> Verified:
    """Return what the log is; *each* gets every event's number, the event and its leaf hash, in order."""
    return _Pass(p, files, kept, max_silence, each).run()


class _Pass:
    def __init__(
        self,
        p: Primitives,
        files: LogFiles,
        kept: Iterable[Checkpoint],
        max_silence: timedelta | None,
        each: Callable[[int, Event, bytes], None],
    ) -> None:
        self._p, self._files, self._each = p, files, each
        self._id = log_id(p, files.public)
        self._kept = sorted(kept, key=lambda item: item.size)
        self._roots: dict[int, list[bytes]] = {}
        for item in self._kept:
            self._roots.setdefault(item.size, []).append(item.root)
        self._group: list[bytes] = []
        self._max_silence = max_silence
        self._tree: Frontier = files.frontier(p)
        self._covered = self._tree.size
        self._fork = -1
        self._done = Verified(self._id, self._tree.size, 0, b"", "", 0, "", "")

    def run(self) -> Verified:
        if self._files.name != self._id:
            raise IntegrityError(f"log {self._files.name}: its key is that of log {self._id}: the key was replaced")
        for item in self._kept:
            if item.log != self._id:
                raise IntegrityError(f"log {self._id}: the kept checkpoint is of log {item.log}")
        self._compare_kept()
        for piece in self._files.pieces:
            self._piece(piece.name, piece.first, piece.open)
        if self._covered != self._tree.size:
            raise IntegrityError(f"{self._where(self._covered)}: no checkpoint covers it: the group is unfinished")
        self._tell_fork()
        self._done.size, self._done.root = self._tree.size, self._tree.root()
        for item in self._kept:
            if item.size < self._done.begins:
                self._done.uncompared.append(item.size)
            if item.size > self._tree.size:
                raise RollbackError(
                    f"{self._where(self._tree.size)}: a kept checkpoint has {item.size} events, the log only "
                    f"{self._tree.size}: the tail was cut, or an older state is offered as the newest"
                )
        return self._done

    def _where(self, seq: int) -> str:
        return f"log {self._id}: event {seq}"

    def _piece(self, name: str, first: int, opener: Callable[[], BinaryIO]) -> None:
        if first != self._tree.size:
            what = "is missing" if first > self._tree.size else "is there twice"
            raise IntegrityError(f"{self._where(min(first, self._tree.size))}: {what} (before {name})")
        month = ""
        with opener() as file:
            try:
                for line in lines(file, name):
                    month = self._line(line, name, month)
            except FormatError as error:
                raise IntegrityError(f"{self._where(self._tree.size)}: {name}: {error}") from None
        if self._covered != self._tree.size:
            raise IntegrityError(
                f"{self._where(self._covered)}: {name}: no checkpoint covers it: the group is unfinished"
            )

    def _line(self, line: bytes, name: str, month: str) -> str:
        if is_note(line):
            self._checkpoint(line)
            return month
        event = decode(line)
        seq = self._tree.size
        if event.log != self._id or event.seq != seq:
            raise IntegrityError(
                f"{self._where(seq)}: expected it, found event {event.seq} of log {event.log} in {name}"
            )
        if event.time < self._done.last_time or month not in ("", month_of(event.time)):
            raise IntegrityError(f"{self._where(seq)}: its time {event.time} does not fit its place in {name}")
        self._look(seq, event)
        leaf = leaf_hash(self._p.sha256, line)
        self._tree.append(leaf)
        self._group.append(leaf)
        self._each(seq, event, leaf)
        if self._tree.size in self._roots:
            self._compare_kept()
        return month_of(event.time)

    def _look(self, seq: int, event: Event) -> None:
        done = self._done
        limit = self._max_silence
        if limit is not None and done.last_time and time_value(event.time) - time_value(done.last_time) > limit:
            done.silences.append(Silence(seq, done.last_time, event.time))
        if event.action in ("log.gap", "log.recovered"):
            done.gaps.append((seq, event.reason))
        if event.action == RETAIN:
            for name, first in event.detail.items():
                if name.startswith(FIRST_KEPT) and isinstance(first, int):
                    log = name.removeprefix(FIRST_KEPT)
                    done.removals[log] = max(first, done.removals.get(log, 0))
        done.first_time = done.first_time or event.time
        done.last_time = event.time

    def _checkpoint(self, line: bytes) -> None:
        read = read_note(line)
        checkpoint = open_checkpoint(self._p, read.note, self._files.public)
        if checkpoint.size != self._tree.size or self._covered == self._tree.size:
            raise IntegrityError(
                f"{self._where(self._covered)}: a checkpoint at {checkpoint.size} lies after {self._tree.size} events"
            )
        marks = marks_of(self._group)
        if checkpoint.root != self._tree.root() or read.marks != marks:
            raise IntegrityError(f"{self._bad_event(read.marks, marks)} is not what was signed")
        self._tell_fork()
        self._covered = self._tree.size
        self._group = []
        self._done.note = read.note
        self._done.checkpoints += 1

    def _bad_event(self, signed: str, found: str) -> str:
        """Return which event of the group is wrong, as far as the marks, or only the root hash, tell."""
        for position, (one, other) in enumerate(zip(_split(signed), _split(found), strict=False)):
            if one != other:
                return self._where(self._covered + position)
        if self._covered == self._done.begins and self._covered:
            return f"{self._where(self._covered)} or one before"
        return f"{self._where(self._covered)} or one up to {self._tree.size - 1}"

    def _compare_kept(self) -> None:
        """Note a kept checkpoint that is not of this history; it is told after the files' own is checked."""
        roots = self._roots.get(self._tree.size, ())
        if self._fork < 0 and any(root != self._tree.root() for root in roots):
            self._fork = self._tree.size

    def _tell_fork(self) -> None:
        if self._fork >= 0:
            raise RollbackError(
                f"{self._where(max(0, self._fork - 1))}: a kept checkpoint at {self._fork} has another root hash: two "
                "histories were signed (split view), or one was rewritten"
            )


def _split(marks: str) -> list[bytes]:
    try:
        data = base64.b64decode(marks, validate=True)
    except ValueError:
        return []
    return [data[at : at + MARK_BYTES] for at in range(0, len(data), MARK_BYTES)]
