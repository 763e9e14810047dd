"""Where a log stands, as its writer finds it: the head, and what was written after it.

Trusts nothing but this log's own signatures. A whole group after the head is taken in; an unfinished one, which only a
crash leaves at the very end, is moved to `unfinished-…` by the next write. A log shorter than its head, or one whose
lines are not as they were signed, is `IntegrityError`.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from datasync.audit.checkpoint import open_checkpoint
from datasync.audit.event import decode, microseconds, time_text
from datasync.audit.head import Head, frontier_of, read_head
from datasync.audit.merkle import Frontier, leaf_hash
from datasync.audit.primitives import Primitives
from datasync.audit.seal import month_of
from datasync.audit.segments import SEGMENTS, Base, is_note, read_base, read_note, segment_name, segment_paths
from datasync.errors import FormatError, IntegrityError

_CUT = "keep this directory as evidence, move it away together with the log's key, and a new log begins"


@dataclass(slots=True)
class Found:
    """The tree, the last event's time in microseconds, the last segment and where it ends; what there is to tell."""

    frontier: Frontier
    time: int
    segment: int
    end: int
    month: str
    note: str = ""
    unfinished: bytes = b""
    notes: list[str] = field(default_factory=list)


def recover(p: Primitives, directory: Path, page: bytes, public: bytes) -> Found:
    """Return where the log in *directory* stands."""
    notes = []
    base = read_base(directory)
    paths = [item for item in segment_paths(directory) if item[0] >= base.size]  # a kill may have left older ones
    head: Head | None = None
    if page.strip(b"\0 \n"):
        try:
            head = read_head(page, directory / "head")
        except FormatError:
            notes.append("the head was damaged: the whole log was read again")
    elif paths:
        notes.append("the head was missing: the whole log was read again")
    found = _from_head(p, directory, head, public, paths) if head is not None else _from_base(p, base)
    found.notes = notes
    for first, path in paths:
        if first >= max(found.segment, 0) or found.segment < 0:
            _replay(p, path, first, found, public, last=path == paths[-1][1])
    return found


def _from_base(p: Primitives, base: Base) -> Found:
    frontier = Frontier(p.sha256, base.size, [bytes.fromhex(item) for item in base.frontier])
    return Found(frontier, 0, -1, 0, "")


def _from_head(p: Primitives, directory: Path, head: Head, public: bytes, paths: list[tuple[int, Path]]) -> Found:
    checkpoint = open_checkpoint(p, head.note, public)
    frontier = frontier_of(p, head)
    if checkpoint.size != head.size or frontier.root() != checkpoint.root:
        raise IntegrityError(f"{directory}/head: it is not that of its checkpoint at {checkpoint.size}: {_CUT}")
    path = directory / SEGMENTS / segment_name(head.segment)
    size = path.stat().st_size if path.exists() else 0
    if (head.segment, path) not in paths or size < head.end:
        raise IntegrityError(
            f"{path}: expected at least {head.end} bytes, found {size}: the log's tail was cut, "
            f"{head.size} events were recorded: {_CUT}"
        )
    return Found(frontier, head.time, head.segment, head.end, month_of(time_text(head.time)), head.note)


def _replay(p: Primitives, path: Path, first: int, found: Found, public: bytes, *, last: bool) -> None:
    """Take in the whole groups of *path* after what is known."""
    offset = found.end if first == found.segment else 0
    if first != found.segment and first != found.frontier.size:
        raise IntegrityError(f"{path}: expected the segment of event {found.frontier.size}: a segment is missing")
    found.segment, found.end = first, offset
    frontier = found.frontier.copy()
    when, pending = found.time, bytearray()
    with open(path, "rb") as file:
        file.seek(offset)
        for line in file:
            pending += line
            if line[-1:] != b"\n":
                break
            if is_note(line):
                _take(p, line[:-1], frontier, public, path)
                found.frontier, found.time, found.note = frontier, when, read_note(line[:-1]).note
                found.month = month_of(time_text(when))
                found.end += len(pending)
                frontier, pending = frontier.copy(), bytearray()
                continue
            try:
                event = decode(line[:-1])
            except FormatError as error:
                if file.read(1) == b"" and last:  # garbage of a power loss at the very end
                    break
                raise IntegrityError(f"{path}: event {frontier.size}: {error}") from None
            when = microseconds(event.time)
            frontier.append(leaf_hash(p.sha256, line[:-1]))
    if pending and not last:
        raise IntegrityError(
            f"{path}: after event {found.frontier.size - 1} a group is unfinished, and the log goes on"
        )
    found.unfinished = bytes(pending)


def _take(p: Primitives, line: bytes, frontier: Frontier, public: bytes, path: Path) -> None:
    checkpoint = open_checkpoint(p, read_note(line).note, public)
    if checkpoint.size != frontier.size or checkpoint.root != frontier.root():
        raise IntegrityError(f"{path}: the events up to {checkpoint.size} are not those that were signed: {_CUT}")


def set_aside(directory: Path, found: Found) -> None:
    """Move the unfinished group out of the last segment; what there is to tell about it joins `notes`."""
    seq = found.frontier.size
    aside = directory / f"unfinished-{seq}-{time.time_ns()}"
    aside.write_bytes(found.unfinished)
    fd = os.open(directory / SEGMENTS / segment_name(found.segment), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, found.end)
        os.fsync(fd)
    finally:
        os.close(fd)
    size = len(found.unfinished)
    found.notes.append(f"an unfinished group of {size} bytes after {seq} events was set aside in {aside.name}")
    found.unfinished = b""
