"""The local store of one log: append-only segments, one fdatasync a group, several processes and threads at once.

A group is the events that wait, and a signed checkpoint over all so far, in one write. `append(sync=True)` returns when
the event is durable; callers that come while a group is being written share the next one. Numbers and times are given
under the lock, so they only grow. Opening replays what a crash left between segment and head; an unfinished group is
set aside and an event says so. A log that lost its tail is never continued (`IntegrityError`): that would sign two
histories. When a group can not be written nothing of it happened (`NoSpace`, `DatasyncError`), and the next group that
can be begins with a gap event.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from datasync.audit.checkpoint import Checkpoint, log_id, sign_checkpoint, verifier_key
from datasync.audit.event import Event, decode, encode, time_text
from datasync.audit.gap import Gap, read_gap, write_gap
from datasync.audit.head import PAGE, Head, write_page
from datasync.audit.merkle import Frontier, leaf_hash
from datasync.audit.primitives import Primitives, Signer
from datasync.audit.recovery import Found, recover, set_aside
from datasync.audit.seal import People, Person, month_of
from datasync.audit.segments import PUBLIC, SEGMENT_BYTES, SEGMENTS, marks_of, note_line, segment_name
from datasync.errors import DatasyncError, FormatError, IntegrityError, NoSpace, UsageError

BATCH = 4096  # waiting events that start a group by themselves
BATCH_SECONDS = 1.0  # the oldest waiting event waits no longer, when another comes
STEP_MICROSECONDS = 5_000_000  # a clock that went back further is told in the event
GROUP_BYTES = 8 * 1024 * 1024  # a group ends with the event that reaches this; a parcel holds any group
EMPTY_LOG = "0" * 32


@dataclass(frozen=True, slots=True)
class Draft:
    """An event before it has a number and a time, and the persons to seal into it."""

    event: Event
    who: Person | None = None
    whom: Person | None = None


def draft(action: str, outcome: str, who: Person | None = None, whom: Person | None = None, **fields: object) -> Draft:
    """Return a draft; *fields* are those of `Event`."""
    event = Event(v=1, log=EMPTY_LOG, seq=0, time="", action=action, outcome=outcome, **fields)  # type: ignore[arg-type]
    return Draft(event, who, whom)


@dataclass(slots=True)
class _Waiting:
    draft: Draft
    time: int
    sync: bool
    done: bool = False
    seq: int = -1
    error: DatasyncError | None = None


@dataclass(frozen=True, slots=True)
class _Lines:
    lines: list[bytes]
    leaves: list[bytes]


def _now() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class _Open:
    """Open descriptors, and what the log is known to hold."""

    lock: int
    head: int
    gap: int
    page: bytes = b""
    found: Found | None = None
    segment: int = -1
    segment_first: int = -1


class Log:
    """One log; `directory` is named by the log's id and made at first use."""

    def __init__(
        self, root: Path, signer: Signer, p: Primitives, people: People, *, now: Callable[[], int] = _now
    ) -> None:
        self.id = log_id(p, signer.public)
        self.directory = root / self.id
        self._signer = signer
        self._p = p
        self._people = people
        self._now = now
        self._turn = threading.Condition()  # guards _waiting and _writing
        self._writing = False  # one thread writes, the others wait for it or for their own turn
        self._waiting: list[_Waiting] = []
        self._open: _Open | None = None

    def append(self, item: Draft, *, sync: bool) -> int:
        """Record *item*; with *sync* return its number when it is durable, else -1 before it is."""
        waiting = _Waiting(item, self._now(), sync)
        with self._turn:
            self._waiting.append(waiting)
            full = len(self._waiting) >= BATCH or waiting.time - self._waiting[0].time >= BATCH_SECONDS * 1e6
        if sync or full:
            self._write_group(waiting, durable=True)
        return waiting.seq

    def flush(self, *, durable: bool = True) -> None:
        """Write what waits; not *durable*: a power loss may take it, a kill does not."""
        with self._turn:
            last = self._waiting[-1] if self._waiting else None
        if last is not None:
            self._write_group(last, durable=durable)

    def ready(self) -> None:
        """Raise what an append would raise: the log can not be opened, or there is no room for it."""
        with self._alone(), self._locked():
            self._refresh()
            room = os.statvfs(self.directory)
            if room.f_bavail * room.f_frsize < 2 * PAGE:
                raise NoSpace(f"audit log {self.directory}: no space left: make room, nothing is done unrecorded")

    @contextmanager
    def quiet(self) -> Iterator[Found]:
        """Keep other writers out, and yield where the log stands."""
        with self._alone(), self._locked():
            yield self._refresh()

    def close(self) -> None:
        """Write what waits and give back the descriptors."""
        try:
            self.flush()
        finally:
            if self._open is not None:
                for fd in (self._open.lock, self._open.head, self._open.gap, self._open.segment):
                    if fd >= 0:
                        os.close(fd)
                self._open = None

    # One writer at a time, of all threads (_turn) and of all processes (flock).

    def _write_group(self, mine: _Waiting, *, durable: bool) -> None:
        """Write what waits, unless the thread that writes now, or the next one, writes *mine*, too."""
        with self._turn:
            while self._writing and not mine.done:
                self._turn.wait()
            group: list[_Waiting] = []
            if not mine.done:
                self._writing = True
                group, self._waiting = self._waiting, []
        if group:
            try:
                self._lead(group, durable=durable or any(item.sync for item in group))
            finally:
                self._end_turn()
        if mine.error is not None:
            raise mine.error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep this process's other threads from writing."""
        with self._turn:
            while self._writing:
                self._turn.wait()
            self._writing = True
        try:
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        with self._turn:
            self._writing = False
            self._turn.notify_all()

    def _lead(self, group: list[_Waiting], *, durable: bool) -> None:
        failure: DatasyncError | None = DatasyncError(
            f"audit log {self.directory}: the writer failed: nothing is there"
        )
        try:
            with self._locked():
                self._put(group, durable=durable)
            failure = None
        except OSError as error:
            failure = _cannot(self.directory, error)
        except DatasyncError as error:
            failure = error
        finally:  # whatever happened, nobody waits for ever or believes that it was recorded
            if failure is not None and self._open is not None:
                self._note_gap(group, failure)
            for item in group:
                item.done = True
                item.error = item.error or failure

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            opened = self._open or self._make()
            fcntl.flock(opened.lock, fcntl.LOCK_EX)
        except OSError as error:
            raise _cannot(self.directory, error) from None
        try:
            yield
        finally:
            fcntl.flock(opened.lock, fcntl.LOCK_UN)

    def _make(self) -> _Open:
        """Open the log, or make it: the public key comes last, so a log with a key is whole."""
        (self.directory / SEGMENTS).mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        names = ("lock", "head", "gap")
        lock, head, gap = (os.open(self.directory / name, flags, 0o600) for name in names)
        self._open = _Open(lock, head, gap)
        if os.fstat(gap).st_size < PAGE:  # its blocks are there before the disk is full
            os.pwrite(gap, bytes(PAGE), 0)
            os.fsync(gap)
        public = self.directory / PUBLIC
        if not public.exists():
            aside = public.with_name(f".{PUBLIC}.{os.getpid()}")
            aside.write_text(verifier_key(self._p, self._signer.public) + "\n")
            os.replace(aside, public)
            _fsync_directory(self.directory)
        return self._open

    def _opened(self) -> _Open:
        if self._open is None:
            raise DatasyncError(f"audit log {self.directory}: used outside its lock")
        return self._open

    def _refresh(self) -> Found:
        """Return where the log stands, read again when another process has written."""
        opened = self._opened()
        page = os.pread(opened.head, PAGE, 0)
        if opened.found is None or page != opened.page or self._grew(opened.found):
            found = recover(self._p, self.directory, page, self._signer.public)
            if opened.segment >= 0:
                os.close(opened.segment)
            opened.segment = opened.segment_first = -1
            opened.found, opened.page = found, page
        return opened.found

    def _grew(self, found: Found) -> bool:
        if found.segment < 0:
            return any((self.directory / SEGMENTS).iterdir())
        try:
            size = os.stat(self.directory / SEGMENTS / segment_name(found.segment)).st_size
        except FileNotFoundError:
            return True
        later = self.directory / SEGMENTS / segment_name(found.frontier.size)
        return size != found.end or (found.frontier.size != found.segment and later.exists())

    def _put(self, group: list[_Waiting], *, durable: bool) -> None:
        found = self._refresh()
        opened = self._opened()
        if found.unfinished:
            set_aside(self.directory, found)
        extra = [draft("log.recovered", "success", reason=note) for note in found.notes]
        gap = read_gap(os.pread(opened.gap, PAGE, 0))
        if gap is not None:
            extra.append(draft("log.gap", "failure", reason=gap.text, error=gap.error, detail={"lost": gap.count}))
        queue = [_Waiting(item, self._now(), sync=False) for item in extra] + group
        while queue:  # more than one turn only where the month changes inside a group, or it is very large
            queue = self._put_some(found, queue, durable=durable)
        found.notes = []
        if gap is not None:
            os.pwrite(opened.gap, bytes(PAGE), 0)

    def _put_some(self, found: Found, queue: list[_Waiting], *, durable: bool) -> list[_Waiting]:
        """Write events of the first one's month, up to `GROUP_BYTES`, and a checkpoint; return the others."""
        frontier, when, month, size = found.frontier.copy(), found.time, "", 0
        block: list[bytes] = []
        leaves: list[bytes] = []
        for position, item in enumerate(queue):
            event = self._finish(item, frontier.size, when)
            if (month and month_of(event.time) != month) or size >= GROUP_BYTES:
                self._write(found, frontier, _Lines(block, leaves), month, when, durable=durable)
                return queue[position:]
            month = month_of(event.time)
            try:
                line = encode(event)
                decode(line)  # what does not read again is never written
            except (UsageError, FormatError) as error:
                item.error = UsageError(f"audit event {event.action}: {error}")
                continue
            item.seq, when = event.seq, max(item.time, when)
            leaves.append(leaf_hash(self._p.sha256, line))
            frontier.append(leaves[-1])
            block.append(line)
            size += len(line)
        if block:
            self._write(found, frontier, _Lines(block, leaves), month, when, durable=durable)
        return []

    def _finish(self, item: _Waiting, seq: int, last: int) -> Event:
        text = time_text(max(item.time, last))  # another process may have been quicker; order is what counts
        month = month_of(text)
        return msgspec.structs.replace(
            item.draft.event,
            log=self.id,
            seq=seq,
            time=text,
            clock="stepped back" if last - item.time > STEP_MICROSECONDS else "",
            who=self._people.seal(item.draft.who, month) if item.draft.who else None,
            whom=self._people.seal(item.draft.whom, month) if item.draft.whom else None,
        )

    def _write(self, found: Found, frontier: Frontier, events: _Lines, month: str, when: int, *, durable: bool) -> None:
        opened = self._opened()
        if found.segment < 0 or found.month != month or found.end >= SEGMENT_BYTES:
            self._new_segment(found, opened)
        elif opened.segment_first != found.segment:
            path = self.directory / SEGMENTS / segment_name(found.segment)
            opened.segment = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            opened.segment_first = found.segment
        note = sign_checkpoint(self._p, Checkpoint(self.id, frontier.size, frontier.root()), self._signer)
        block = b"\n".join([*events.lines, note_line(note, marks_of(events.leaves)), b""])
        try:
            _write_all(opened.segment, block)
            if durable:
                os.fdatasync(opened.segment)
        except OSError:
            opened.found = None  # what is on the disk now is looked at again
            with suppress(OSError):
                os.ftruncate(opened.segment, found.end)
            raise
        found.end += len(block)
        found.frontier, found.month, found.note, found.time = frontier, month, note, when
        if durable:
            hashes = tuple(item.hex() for item in frontier.hashes)
            opened.page = write_page(
                opened.head, Head(note, frontier.size, hashes, found.segment, found.end, found.time)
            )

    def _new_segment(self, found: Found, opened: _Open) -> None:
        first = found.frontier.size
        path = self.directory / SEGMENTS / segment_name(first)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(fd).st_size:
            os.close(fd)
            raise IntegrityError(f"{path}: expected no segment there, found one: another program writes this log")
        _fsync_directory(path.parent)
        if opened.segment >= 0:
            os.close(opened.segment)
        opened.segment, opened.segment_first = fd, first
        found.segment, found.end = first, 0

    def _note_gap(self, group: list[_Waiting], failure: DatasyncError) -> None:
        """Say in the page that is kept for it that events were lost; the blocks of the page are there already."""
        opened = self._opened()
        with suppress(OSError):
            known = read_gap(os.pread(opened.gap, PAGE, 0))
            since = known.since if known is not None else time_text(group[0].time)
            count = (known.count if known is not None else 0) + len(group)
            write_gap(opened.gap, Gap(since, count, type(failure).__name__))


def _cannot(directory: Path, error: OSError) -> DatasyncError:
    text = f"audit log {directory}: can not be written ({error.strerror}): nothing is done unrecorded"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"{text}: make room, then run the same line again")
    return DatasyncError(f"{text}: mend the directory, then run the same line again")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _fsync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
