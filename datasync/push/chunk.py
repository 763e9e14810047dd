"""Read one file, cut it, and claim its chunks: one pass over each byte, holes never read.

A file that changes while it is read is read again, then reported: what is returned is never a torn mix. One
`FileReader` per thread.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from datasync.chunker import Cutter
from datasync.crypto.hashing import keyed_hash
from datasync.errors import DatasyncError
from datasync.model.entries import FILE, Entry
from datasync.model.limits import MIB, SMALL_FILE_BYTES
from datasync.push.buffers import anonymous_memory
from datasync.push.detect import Changed, SameEntry
from datasync.push.extents import Extents, data_extents
from datasync.push.index import ChunkIndex, Placed
from datasync.push.pack import Packer
from datasync.push.record import FileStat
from datasync.push.source import CHANGED, Skipped, SourceTree, Unreadable, reason

TRIES = 3  # reads of a file that keeps changing
WINDOW_BYTES = 8 * MIB  # twice the longest chunk, so reads are large and leftovers small
HELD_BYTES = 1 * MIB  # small files that are claimed together: as much as stays in a core's cache
HELD_FILES = 64
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


class _Held(NamedTuple):
    """A small file, whole and not torn, whose chunk is not claimed yet; `at` is as `Packer.add` wants it."""

    id: bytes
    raw: memoryview
    at: int
    chunks: list[Placed]


class FileReader:
    """Reads files into packs. Small files gather in the pack's own buffer, one claim for many; what is new of them
    stays where it was read to. Larger ones pass through a window.
    """

    def __init__(self, tree: SourceTree, cutter: Cutter, id_key: bytes, index: ChunkIndex) -> None:
        self._tree = tree
        self._cutter = cutter
        self._id_key = id_key
        self._index = index
        self._window = memoryview(anonymous_memory(WINDOW_BYTES))
        self._held: list[_Held] = []
        self._filled = 0
        self.stopped = False
        self.reading = b""  # a path, while its file is being read
        self.read_bytes = 0
        self.new_bytes = 0

    def read(self, items: Sequence[Changed], packer: Packer, *, checksum: bool) -> list[Outcome]:
        """Return the file of each of *items*, in order, their new chunks added to *packer*."""
        outcomes = [self._untorn(item, packer, checksum=checksum) for item in items]
        self.reading = b""
        self._claim_held(packer)
        return outcomes

    def _untorn(self, item: Changed, packer: Packer, *, checksum: bool) -> Outcome:
        path = self.reading = item.found.path
        for _ in range(TRIES):
            try:
                fd, status = self._tree.open_regular(path)
            except Unreadable as error:
                return error.skipped
            try:
                return self._read(fd, status, item, packer, checksum=checksum)
            except _Torn:
                continue
            except OSError as error:
                return Skipped(path, reason(error))
            finally:
                os.close(fd)
        return Skipped(path, CHANGED)

    def _read(self, fd: int, status: os.stat_result, item: Changed, packer: Packer, *, checksum: bool) -> Outcome:
        size = status.st_size
        sparse = status.st_blocks * SECTOR_BYTES < size
        data, holes = data_extents(fd, size) if sparse else (((0, size),) if size else (), ())
        entry = _entry(item, status, holes)
        before = item.before
        if checksum and before and before.stat.xxh3 and before.entry.size == size and before.entry.holes == holes:
            digest = self._digest(fd, data)
            if digest == before.stat.xxh3:
                _check_same(fd, status)
                return SameContent(entry, before, FileStat(status.st_ctime_ns, status.st_ino, digest))
        if size <= SMALL_FILE_BYTES and not holes:
            chunks, digest = self._small(fd, status, packer)
        else:
            self._claim_held(packer)
            chunks, digest = self._large(fd, data, packer)
            _check_same(fd, status)
        return ReadFile(entry, chunks, FileStat(status.st_ctime_ns, status.st_ino, digest))

    def _small(self, fd: int, status: os.stat_result, packer: Packer) -> tuple[list[Placed], bytes]:
        """Hold a whole file; its chunk enters the list that is returned when it is claimed."""
        size, chunks = status.st_size, list[Placed]()
        if self._filled + size > HELD_BYTES or len(self._held) == HELD_FILES:
            self._claim_held(packer)
        room = packer.room()
        if self._filled + size > len(room):  # the pack is nearly full
            self._claim_held(packer)
            room, at = self._window, -1
        else:
            at = len(room) - self._filled
        view = room[self._filled : self._filled + size]
        self._fill(fd, 0, view)
        _check_same(fd, status)  # before the bytes go anywhere
        if size:
            self._held.append(_Held(keyed_hash(self._id_key, view), view, at, chunks))
            self._filled += size
        digest = xxhash.xxh3_128_digest(view)
        if at < 0:
            self._claim_held(packer)
        return chunks, digest

    def _claim_held(self, packer: Packer) -> None:
        """Claim the chunks of the files that are held and hand the new ones on."""
        if not self._held:
            return
        held, self._held, self._filled = self._held, [], 0
        claimed = self._index.claim([(item.id, len(item.raw)) for item in held])
        for item, (chunk, new) in zip(held, claimed, strict=True):
            item.chunks.append(chunk)
            if new:
                packer.add(chunk, item.raw, at=item.at)
                self.new_bytes += len(item.raw)

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
        chunk, new = self._index.claim([(keyed_hash(self._id_key, raw), len(raw))])[0]
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
