"""Read one file, cut it, and claim its chunks: one pass over each byte, holes never read.

A file that changes while it is read is read again, then reported: what is returned is never a torn mix. One
`FileReader` per thread.
"""

import os
import stat
from dataclasses import dataclass

import xxhash

from datasync.chunker import Cutter
from datasync.crypto.hashing import keyed_hash
from datasync.errors import DatasyncError
from datasync.model.entries import FILE, Entry
from datasync.model.limits import MIB, SMALL_FILE_BYTES
from datasync.push.detect import Changed, SameEntry
from datasync.push.extents import Extents, data_extents
from datasync.push.index import ChunkIndex, Placed
from datasync.push.pack import Packer
from datasync.push.record import FileStat
from datasync.push.source import CHANGED, Skipped, SourceTree, Unreadable, reason

TRIES = 3  # reads of a file that keeps changing
WINDOW_BYTES = 8 * MIB  # twice the longest chunk, so reads are large and leftovers small
SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was while nothing changed: entry without chunks, its chunks in order, and its stat."""

    entry: Entry
    chunks: list[Placed]
    stat: FileStat


@dataclass(frozen=True, slots=True)
class SameContent:
    """The content is that of the record (only with --checksum): metadata from now, chunks from before."""

    entry: Entry
    before: SameEntry
    stat: FileStat


Outcome = ReadFile | SameContent | Skipped


class _Torn(Exception):
    """The file changed between the first look and the last."""


class FileReader:
    """Reads files into packs with buffers of its own."""

    def __init__(self, tree: SourceTree, cutter: Cutter, id_key: bytes, index: ChunkIndex) -> None:
        self._tree = tree
        self._cutter = cutter
        self._id_key = id_key
        self._index = index
        self._window = memoryview(bytearray(WINDOW_BYTES))
        self.stopped = False
        self.read_bytes = 0
        self.new_bytes = 0

    def read(self, item: Changed, packer: Packer, *, checksum: bool) -> Outcome:
        """Return the file of *item*, its new chunks added to *packer*."""
        path = item.found.path
        for _ in range(TRIES):
            try:
                fd = self._tree.open_file(path)
            except Unreadable as error:
                return error.skipped
            try:
                return self._read(fd, item, packer, checksum=checksum)
            except _Torn:
                continue
            except OSError as error:
                return Skipped(path, reason(error))
            finally:
                os.close(fd)
        return Skipped(path, CHANGED)

    def _read(self, fd: int, item: Changed, packer: Packer, *, checksum: bool) -> Outcome:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return Skipped(item.found.path, CHANGED)
        sparse = status.st_blocks * SECTOR_BYTES < status.st_size
        data, holes = (
            data_extents(fd, status.st_size) if sparse else (((0, status.st_size),) if status.st_size else (), ())
        )
        entry = _entry(item, status, holes)
        before = item.before
        if (
            checksum
            and before
            and before.stat.xxh3
            and before.entry.size == status.st_size
            and before.entry.holes == holes
        ):
            digest = self._digest(fd, data)
            if digest == before.stat.xxh3:
                _check_same(fd, status)
                return SameContent(entry, before, FileStat(status.st_ctime_ns, status.st_ino, digest))
        if status.st_size <= SMALL_FILE_BYTES and not holes:
            chunks, digest = self._small(fd, status, packer)
        else:
            chunks, digest = self._large(fd, data, packer)
            _check_same(fd, status)
        return ReadFile(entry, chunks, FileStat(status.st_ctime_ns, status.st_ino, digest))

    def _small(self, fd: int, status: os.stat_result, packer: Packer) -> tuple[list[Placed], bytes]:
        view = self._window[: status.st_size]
        self._fill(fd, 0, view)
        _check_same(fd, status)  # before the bytes go anywhere
        digest = xxhash.xxh3_128_digest(view)
        return ([self._chunk(view, packer)] if len(view) else []), digest

    def _large(self, fd: int, data: Extents, packer: Packer) -> tuple[list[Placed], bytes]:
        chunks: list[Placed] = []
        hasher = xxhash.xxh3_128()
        for offset, length in data:
            position, end, held = offset, offset + length, 0
            while position < end or held:
                count = min(WINDOW_BYTES - held, end - position)
                self._fill(fd, position, self._window[held : held + count])
                hasher.update(self._window[held : held + count])
                position += count
                held = self._cut(held + count, packer, chunks, final=position == end)
        return chunks, hasher.digest()

    def _cut(self, filled: int, packer: Packer, chunks: list[Placed], *, final: bool) -> int:
        """Chunk the window's first *filled* bytes; return how many are left at its front."""
        start = 0
        whole = final and filled <= SMALL_FILE_BYTES
        for length in [filled] if whole else self._cutter.cuts(self._window[:filled], final=final):
            chunks.append(self._chunk(self._window[start : start + length], packer))
            start += length
        self._window[: filled - start] = self._window[start:filled]
        return filled - start

    def _chunk(self, raw: memoryview, packer: Packer) -> Placed:
        chunk, new = self._index.claim(keyed_hash(self._id_key, raw), len(raw))
        if new:
            packer.add(chunk, raw)
            self.new_bytes += len(raw)
        return chunk

    def _fill(self, fd: int, offset: int, view: memoryview) -> None:
        done = 0
        if self.stopped:
            raise DatasyncError("the push was stopped")
        while done < len(view):
            count = os.preadv(fd, [view[done:]], offset + done)
            if count == 0:
                raise _Torn
            done += count
        self.read_bytes += done

    def _digest(self, fd: int, data: Extents) -> bytes:
        hasher = xxhash.xxh3_128()
        for offset, length in data:
            position = offset
            while position < offset + length:
                view = self._window[: min(WINDOW_BYTES, offset + length - position)]
                self._fill(fd, position, view)
                hasher.update(view)
                position += len(view)
        return hasher.digest()


def _check_same(fd: int, before: os.stat_result) -> None:
    now = os.fstat(fd)
    if (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (before.st_size, before.st_mtime_ns, before.st_ctime_ns):
        raise _Torn


def _entry(item: Changed, status: os.stat_result, holes: Extents) -> Entry:
    mode, mtime = status.st_mode & 0o7777, status.st_mtime_ns
    return Entry(item.found.path, FILE, mode, mtime, status.st_size, item.found.xattrs, b"", b"", (), holes, ())
