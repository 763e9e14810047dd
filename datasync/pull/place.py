"""Place verified bytes as files: small ones in one go, large ones by parts from several threads, holes left as holes.

A `Destination` says where a finished file goes: into a view of the node's cache, or into a person's directory.
"""

import os
import threading
from collections import OrderedDict
from typing import Protocol

import xxhash

from datasync.cache.beneath import set_xattrs
from datasync.cache.faults import fault, shown
from datasync.cache.kernel import allocate
from datasync.cache.sums import pack_extent
from datasync.pull.plan import PlannedFile

WORK_MODE = 0o600  # of a file that is being written, unless it gets its own at once
OPEN_FILES = 128  # partly written files kept open; more are closed and opened again


class Destination(Protocol):
    """Where files are placed."""

    def create(self, file: PlannedFile, mode: int) -> int:
        """Return a new writable fd for *file*, under a name that does not count yet."""

    def reopen(self, file: PlannedFile) -> int:
        """Return a writable fd for a file that was created and is not finished."""

    def mode(self, file: PlannedFile) -> int:
        """Return the mode that the finished file has."""

    def finish(self, file: PlannedFile) -> None:
        """Give the finished file, closed, its name."""


class Notes(Protocol):
    """What keeps the sums of what was written."""

    def note(self, object_id: bytes, extents: bytes) -> None:
        """Note what was written as *object_id*: its extents, packed."""


class _Part:
    """A file that has some of its chunks; `fd` is -1 while closed."""

    __slots__ = ("bytes", "extents", "fd", "left", "turn", "users")

    def __init__(self, fd: int, chunks: int) -> None:
        self.bytes = 0
        self.fd = fd
        self.left = chunks
        self.extents: list[bytes] = []
        self.turn = threading.Lock()  # the kernel lets one write to a file at a time, and would have the others spin
        self.users = 0


class Placer:
    """Writes chunks into files. Thread-safe."""

    def __init__(self, destination: Destination, sums: Notes | None = None, *, exact: bool = False) -> None:
        """*exact* says that this process has no umask, so files get their mode when they are made."""
        self._exact = exact
        self._destination = destination
        self._sums = sums
        self._lock = threading.Lock()
        self._parts: OrderedDict[int, _Part] = OrderedDict()
        self.files = 0
        self.bytes = 0
        self.finished_bytes = 0  # those of finished files: what is partly written is not in its place yet

    def write(self, file: PlannedFile, at: int, raw: bytes | bytearray | memoryview) -> None:
        """Write one chunk of *file*; the last one finishes it."""
        try:
            if file.chunks == 1:
                self._whole(file, at, raw)
            else:
                self._part(file, at, raw)
        except OSError as error:
            raise fault(error, f"write {shown(file.path)}") from error

    def placed(self, files: int, count: int) -> None:
        """Count in what another process placed."""
        with self._lock:
            self.files += files
            self.bytes += count
            self.finished_bytes += count

    def empty(self, file: PlannedFile) -> None:
        """Make a file without data: empty, or one hole."""
        try:
            self._whole(file, 0, b"")
        except OSError as error:
            raise fault(error, f"write {shown(file.path)}") from error

    def _whole(self, file: PlannedFile, at: int, raw: bytes | bytearray | memoryview) -> None:
        mode = self._destination.mode(file) if self._exact and not file.xattrs else WORK_MODE
        fd = self._destination.create(file, mode)
        try:
            _write_at(fd, at, raw)
            if at + len(raw) != file.size:
                os.ftruncate(fd, file.size)
            self._complete(fd, file, mode)
        finally:
            os.close(fd)
        count = len(raw)
        self._finish(file, self._extent(at, raw) if count else b"")
        with self._lock:
            self.files += 1
            self.bytes += count
            self.finished_bytes += count

    def _extent(self, at: int, raw: bytes | bytearray | memoryview) -> bytes:
        return b"" if self._sums is None else pack_extent(at, len(raw), xxhash.xxh3_128_digest(raw))

    def _finish(self, file: PlannedFile, extents: bytes) -> None:
        self._destination.finish(file)
        if self._sums is not None:
            self._sums.note(file.id, extents)

    def _complete(self, fd: int, file: PlannedFile, mode: int = WORK_MODE) -> None:
        if file.xattrs:
            set_xattrs(fd, file.attributes)
        if mode == WORK_MODE:
            os.fchmod(fd, self._destination.mode(file))
        os.utime(fd, ns=(file.mtime, file.mtime))

    def _part(self, file: PlannedFile, at: int, raw: bytes | bytearray | memoryview) -> None:
        part = self._take(file)
        try:
            with part.turn:
                _write_at(part.fd, at, raw)
            extent = self._extent(at, raw)
        finally:
            with self._lock:
                part.users -= 1
        with self._lock:
            part.bytes += len(raw)
            part.extents.append(extent)
            self.bytes += len(raw)
            part.left -= 1
            last = part.left == 0
            if last:
                del self._parts[file.n]
        if last:
            self._end(part, file)

    def _take(self, file: PlannedFile) -> _Part:
        with self._lock:
            part = self._parts.get(file.n)
            if part is None:
                fd = self._destination.create(file, WORK_MODE)
                part = self._parts[file.n] = _Part(fd, file.chunks)
                if file.dense:
                    allocate(fd, file.size)
                os.ftruncate(fd, file.size)
            elif part.fd < 0:
                part.fd = self._destination.reopen(file)
            part.users += 1
            self._parts.move_to_end(file.n)
            self._close_idle()
            return part

    def _close_idle(self) -> None:
        opened = [part for part in self._parts.values() if part.fd >= 0] if len(self._parts) > OPEN_FILES else []
        for part in opened[: max(0, len(opened) - OPEN_FILES)]:
            if not part.users:
                os.close(part.fd)
                part.fd = -1

    def _end(self, part: _Part, file: PlannedFile) -> None:
        fd = part.fd if part.fd >= 0 else self._destination.reopen(file)
        try:
            self._complete(fd, file)
        finally:
            os.close(fd)
        self._finish(file, b"".join(part.extents))
        with self._lock:
            self.files += 1
            self.finished_bytes += part.bytes

    def close(self) -> None:
        """Close what is unfinished; it stays under names that do not count."""
        for part in self._parts.values():
            if part.fd >= 0:
                os.close(part.fd)
        self._parts.clear()


def _write_at(fd: int, at: int, raw: bytes | bytearray | memoryview) -> None:
    done = os.pwrite(fd, raw, at)
    while done < len(raw):
        done += os.pwrite(fd, memoryview(raw)[done:], at + done)
