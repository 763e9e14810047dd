"""Which objects a power loss may have emptied: one durable marker per run that publishes.

Objects are not flushed one by one. Before a run's first publish its marker (boot id, start time) is durable; one flush
of the file system at the end makes the objects durable, then the marker goes. Whoever opens the cache after another
boot and finds a marker removes every object whose ctime is not older than the marker's start, then the marker. (A hard
link moves the ctime too, so what the lost run adopted goes as well: fetched again, never trusted wrongly.) A run that
was only killed loses nothing: the page cache holds its objects, and its marker goes with the next flush of anybody.

A run holds an flock on its marker, so that a living run's marker is never taken for a dead one's. Markers are made, and
looked at, under the flock of `.markers.lock`. A clock that is set back during a run is met by a further marker with the
earlier start.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Condition, Lock

from datasync.cache.kernel import names_in
from datasync.errors import UsageError

MARKER = "objects.dirty."  # and 16 random hex digits
UNFINISHED = ".objects.dirty."
LOCK = ".markers.lock"
MARKER_BYTES = 4_096
CTIME_SLACK_NS = 1_000_000_000  # a ctime is taken from a coarser clock than time.time_ns


@dataclass(slots=True)
class _Run:
    """What was published since the last flush: its markers, its earliest start, publishes under way."""

    start_ns: int
    markers: list[tuple[str, int]] = field(default_factory=list)
    active: int = 0


class Markers:
    """The markers in the directory *objects_fd*. Raises `OSError`, and `UsageError` where files can not be locked."""

    def __init__(self, objects_fd: int, boot_id: str) -> None:
        self._fd = objects_fd
        self._boot_id = boot_id
        self._lock = Lock()  # taken directly for each file: half the cost of taking it through the condition
        self._idle = Condition(self._lock)
        self._run: _Run | None = None

    def recover(self, remove_since: Callable[[int], int], sync: Callable[[], None]) -> int:
        """After another boot: let *remove_since* remove objects from a time (ns) on, and return how many it removed."""
        with self._alone():
            self._remove_unfinished()
            stale = self._dead_markers(of_this_boot=False)
            if not stale:
                return 0
            try:
                removed = remove_since(min(mark.start_ns for mark in stale))
                sync()
            except BaseException:
                self._abandon([(mark.name, mark.fd) for mark in stale])
                raise
            self._remove([(mark.name, mark.fd) for mark in stale])
            return removed

    def distrusted_since(self) -> int | None:
        """Return from which time (ns) on `recover` would remove objects, None for none; changes nothing."""
        starts = []
        for name in names_in(self._fd):
            if name.startswith(MARKER):
                with contextlib.suppress(FileNotFoundError):  # its run flushed just now
                    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._fd)
                    try:
                        mark = _Marker.read(name, fd)
                    finally:
                        os.close(fd)
                    starts += [mark.start_ns] if mark.boot_id != self._boot_id else []
        return min(starts, default=None)

    def begin(self) -> _Run:
        """Count one publish in; a durable marker covers it when this returns. Ends with `end`."""
        now = time.time_ns()
        with self._lock:
            run = self._run
            if run is None or now < run.start_ns + CTIME_SLACK_NS // 2:
                run = self._mark(now - CTIME_SLACK_NS)
            run.active += 1
            return run

    def end(self, run: _Run) -> None:
        """Count one publish out."""
        with self._lock:
            run.active -= 1
            if not run.active:
                self._idle.notify_all()

    def flush(self, sync: Callable[[], None]) -> None:
        """Make durable all that was published before, by this run and by dead ones, and remove their markers."""
        with self._lock:
            run, self._run = self._run, None
            self._idle.wait_for(lambda: run is None or not run.active)
        done = [] if run is None else run.markers
        try:
            with self._alone():
                done += [(mark.name, mark.fd) for mark in self._dead_markers(of_this_boot=True)]
            sync()
        except BaseException:
            self._abandon(done)
            raise
        self._remove(done)

    def close(self) -> None:
        """Give up an unflushed run's markers: they stay, and the next flush or boot deals with them."""
        with self._lock:
            run, self._run = self._run, None
        if run is not None:
            self._abandon(run.markers)

    def _mark(self, start_ns: int) -> _Run:
        """Make a durable marker, in addition to those that the run has."""
        run = self._run or _Run(start_ns)
        body = json.dumps({"boot": self._boot_id, "start_ns": start_ns}).encode()
        token = os.urandom(8).hex()
        with self._alone():
            unfinished = UNFINISHED + token
            fd = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(fd, body)
                os.fsync(fd)
                os.rename(unfinished, MARKER + token, src_dir_fd=self._fd, dst_dir_fd=self._fd)
                os.fsync(self._fd)
            except BaseException:
                os.close(fd)
                raise
        run.start_ns = start_ns
        run.markers.append((MARKER + token, fd))
        self._run = run
        return run

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        fd = os.open(LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self._fd)
        try:
            _flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _dead_markers(self, *, of_this_boot: bool) -> "list[_Marker]":
        """Return the markers of runs that ended without a flush, in this boot or in others, locked by us now."""
        found = []
        for name in names_in(self._fd):
            if name.startswith(MARKER) and (fd := self._lock_if_dead(name)) is not None:
                mark = _Marker.read(name, fd)
                if (mark.boot_id == self._boot_id) == of_this_boot:
                    found.append(mark)
                else:
                    os.close(fd)
        return found

    def _lock_if_dead(self, name: str) -> int | None:
        try:
            fd = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._fd)
        except FileNotFoundError:
            return None  # its run flushed just now
        try:
            _flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def _remove_unfinished(self) -> None:
        """Remove markers that a killed run never finished: it can not have published anything."""
        for name in names_in(self._fd):
            if name.startswith(UNFINISHED):
                os.unlink(name, dir_fd=self._fd)

    def _remove(self, markers: list[tuple[str, int]]) -> None:
        for name, fd in markers:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)
            os.close(fd)

    @staticmethod
    def _abandon(markers: list[tuple[str, int]]) -> None:
        for _, fd in markers:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class _Marker:
    name: str
    fd: int
    boot_id: str
    start_ns: int

    @classmethod
    def read(cls, name: str, fd: int) -> "_Marker":
        """Parse a marker; a damaged one distrusts every object."""
        try:
            value = json.loads(os.pread(fd, MARKER_BYTES, 0))
            boot_id, start_ns = value["boot"], value["start_ns"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls(name, fd, "", 0)
        if not isinstance(boot_id, str) or not isinstance(start_ns, int):
            return cls(name, fd, "", 0)
        return cls(name, fd, boot_id, start_ns)


def _flock(fd: int, operation: int) -> None:
    try:
        fcntl.flock(fd, operation)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise UsageError("cache directory: its file system can not lock files; use one on a local disk") from error
        raise
