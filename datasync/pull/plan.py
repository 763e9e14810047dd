"""Plan a transfer: what is wanted, in the order of the packs it lies in, never file by file.

The plan is a temporary SQLite database (it spills to disk by itself), so a million files cost no memory. Directories
and hard links are kept for the end, when their parents' times and their first members are final.
"""

import itertools
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from datasync.format.pack import TAG_BYTES
from datasync.model.entries import ChunkRef, Entry, PackRef, StoredChunk
from datasync.model.limits import MIB
from datasync.repository.ranges import MAX_GAP_BYTES, widen

_TABLES = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768;
CREATE TABLE packs (n INTEGER PRIMARY KEY, id BLOB UNIQUE, ref BLOB, priority INTEGER);
CREATE TABLE files (n INTEGER PRIMARY KEY, chunks INTEGER, file BLOB);
CREATE TABLE wanted (pack INTEGER, offset INTEGER, stored INTEGER, item BLOB, file INTEGER, at INTEGER);
CREATE TABLE directories (n INTEGER PRIMARY KEY, path BLOB, mode INTEGER, mtime INTEGER, xattrs BLOB);
CREATE TABLE links (n INTEGER PRIMARY KEY, path BLOB, link BLOB);
CREATE TABLE groups (link BLOB PRIMARY KEY, path BLOB) WITHOUT ROWID;
"""

JOB_CHUNKS = 2_048  # of one job at most: a pack may hold 16,384 small files, and several jobs are in memory
JOB_FILES = 16_384  # of one job at most: many files may have the same chunk
INSERT_ROWS = 2_000  # given to SQLite at once: a statement for each file costs twice as much
JOB_BYTES = 16 * MIB  # of one job, from its first wanted byte to its last: while one is opened, others are fetched

Xattrs = tuple[tuple[bytes, bytes], ...]
Row = tuple[object, ...]
_encode = msgspec.msgpack.encode
_xattrs = msgspec.msgpack.Decoder(Xattrs)
_pack_ref = msgspec.msgpack.Decoder(PackRef)


class PlannedFile(NamedTuple):
    """A file to fetch: `chunks` of them make it complete."""

    n: int
    path: bytes
    size: int
    mode: int
    mtime: int
    id: bytes
    chunks: int
    xattrs: bytes
    dense: bool

    @property
    def attributes(self) -> Xattrs:
        """The extended attributes."""
        return _xattrs.decode(self.xattrs) if self.xattrs else ()


class SmallFile(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A file of one chunk: where the chunk lies, where its bytes go, and the file."""

    chunk: ChunkRef
    at: int
    file: PlannedFile


_ARRAY = b"\xdd"  # MessagePack's head of an array, with a length of four bytes
_small_files = msgspec.msgpack.Decoder(list[SmallFile])
_chunk_ref = msgspec.msgpack.Decoder(ChunkRef)
_planned_file = msgspec.msgpack.Decoder(PlannedFile)


def small_files(packed: bytes) -> list[SmallFile]:
    """Return the files that a job's `small` holds."""
    return _small_files.decode(packed) if packed else []


@dataclass(frozen=True, slots=True)
class Job:
    """One range of a pack to fetch, start … end, and what is to be made of it: small files, as `small_files` reads
    them (so that they pass through to a worker as they are), and chunks of larger files with where their bytes go:
    (file, offset).
    """

    pack: PackRef
    start: int
    end: int
    small: bytes
    wanted: list[tuple[ChunkRef, list[tuple[PlannedFile, int]]]]


class Plan:
    """What is still to do. One thread uses it."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", check_same_thread=False)
        self._db.executescript(_TABLES)
        self._packs: dict[bytes, int] = {}
        self.files = 0
        self.bytes = 0
        self.small_files = 0
        self._new_files: list[Row] = []
        self._new_wanted: list[Row] = []
        self._new_directories: list[Row] = []
        self._priority = self._last_priority = 0

    def close(self) -> None:
        """Drop the plan."""
        self._db.close()

    def want(self, entry: Entry, file_id: bytes, chunks: Iterable[StoredChunk], priority: int = 0) -> None:
        """Plan to fetch the file *entry*; packs of files with a smaller *priority* come first."""
        self._priority = priority
        self._last_priority = max(self._last_priority, priority)
        n = self.files
        self.files += 1
        xattrs = _encode(entry.xattrs) if entry.xattrs else b""
        if isinstance(chunks, list) and len(chunks) == 1:
            self._want_small(entry, (n, entry.path, entry.size, entry.mode, entry.mtime, file_id, 1, xattrs), chunks[0])
        else:
            count = 0
            for row in self._wanted(n, entry, chunks):
                count += 1
                self._new_wanted.append(row)
                if len(self._new_wanted) >= INSERT_ROWS:
                    self._insert()
            file = (n, entry.path, entry.size, entry.mode, entry.mtime, file_id, count, xattrs, not entry.holes)
            self._new_files.append((n, count, _encode(file)))
        if len(self._new_wanted) >= INSERT_ROWS or len(self._new_files) >= INSERT_ROWS:
            self._insert()

    def _want_small(self, entry: Entry, file: Row, c: StoredChunk) -> None:
        at = entry.holes[0][1] if entry.holes and not entry.holes[0][0] else 0
        chunk = (c.id, c.raw, c.stored, c.form, 0, c.position, c.offset)
        item = _encode((chunk, at, (*file, not entry.holes)))  # a `SmallFile`
        self._new_wanted.append((self._pack(c.pack), c.offset, c.stored, item, None, None))
        self.bytes += c.raw
        self.small_files += 1

    def _insert(self) -> None:
        self._db.executemany("INSERT INTO files VALUES (?, ?, ?)", self._new_files)
        self._db.executemany("INSERT INTO wanted VALUES (?, ?, ?, ?, ?, ?)", self._new_wanted)
        self._db.executemany("INSERT INTO directories VALUES (NULL, ?, ?, ?, ?)", self._new_directories)
        self._new_directories.clear()
        self._new_files.clear()
        self._new_wanted.clear()

    def _wanted(self, n: int, entry: Entry, chunks: Iterable[StoredChunk]) -> Iterator[Row]:
        position, holes = 0, iter(entry.holes)
        hole = next(holes, None)
        for c in chunks:
            while hole and hole[0] == position:
                position += hole[1]
                hole = next(holes, None)
            chunk = (c.id, c.raw, c.stored, c.form, 0, c.position, c.offset)
            yield self._pack(c.pack), c.offset, c.stored, _encode(chunk), n, position
            position += c.raw
            self.bytes += c.raw

    def _pack(self, pack: PackRef) -> int:
        n = self._packs.get(pack.id)
        if n is None:
            n = self._packs[pack.id] = len(self._packs)
            self._db.execute("INSERT INTO packs VALUES (?, ?, ?, ?)", (n, pack.id, _encode(pack), self._priority))
        elif self._priority != self._last_priority:
            self._db.execute("UPDATE packs SET priority = min(priority, ?) WHERE n = ?", (self._priority, n))
        return n

    def directory(self, entry: Entry) -> None:
        """Keep a directory's mode and times for the end."""
        xattrs = _encode(entry.xattrs) if entry.xattrs else b""
        self._new_directories.append((entry.path, entry.mode, entry.mtime, xattrs))
        if len(self._new_directories) >= INSERT_ROWS:
            self._insert()

    def directories(self) -> Iterator[tuple[bytes, int, int, Xattrs]]:
        """Yield (path, mode, mtime, xattrs), children before parents."""
        self._insert()
        for path, mode, mtime, xattrs in self._db.execute(
            "SELECT path, mode, mtime, xattrs FROM directories ORDER BY n DESC"
        ):
            yield path, mode, mtime, _xattrs.decode(xattrs) if xattrs else ()

    def first_of_group(self, entry: Entry) -> bool:
        """Tell whether *entry* is its link group's first member; a later one is kept for the end."""
        row = self._db.execute("INSERT OR IGNORE INTO groups VALUES (?, ?)", (entry.link, entry.path))
        if row.rowcount:
            return True
        self._db.execute("INSERT INTO links VALUES (NULL, ?, ?)", (entry.path, entry.link))
        return False

    def links(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (path, path of the group's first member)."""
        yield from self._db.execute("SELECT l.path, g.path FROM links l JOIN groups g ON g.link = l.link ORDER BY l.n")

    def empty_files(self) -> Iterator[PlannedFile]:
        """Yield the files that have no data at all: empty, or one hole."""
        self._insert()
        for (file,) in self._db.execute("SELECT file FROM files WHERE chunks = 0 ORDER BY n"):
            yield _planned_file.decode(file)

    def jobs(self, abreast: int = 1) -> Iterator[Job]:
        """Yield the ranges to fetch: packs by priority, then in the order of first use, those of *abreast* packs in
        turn. So requests at the same time go to different objects: a server that hashes an object when it is first
        asked for would hash it once for each of them.
        """
        self._insert()
        self._db.execute("CREATE INDEX wanted_order ON wanted (pack, offset)")
        packs = self._db.execute("SELECT n, ref FROM packs ORDER BY priority, n")
        waiting = (self._pack_jobs(n, _pack_ref.decode(ref)) for n, ref in packs)
        begun = deque(itertools.islice(waiting, abreast))
        while begun:
            pack = begun.popleft()
            job = next(pack, None)
            if job is not None:
                begun.append(pack)
                yield job
            else:
                begun.extendleft(itertools.islice(waiting, 1))

    def _pack_jobs(self, n: int, pack: PackRef) -> Iterator[Job]:
        rows = self._db.execute(
            "SELECT w.offset, w.stored, w.item, w.at, f.file FROM wanted w LEFT JOIN files f ON f.n = w.file "
            "WHERE w.pack = ? ORDER BY w.offset",
            (n,),
        )
        job = _OpenJob(pack)
        for offset, stored, item, at, file in rows:
            if job.is_full(offset, offset + stored + TAG_BYTES):
                yield job.close()
                job = _OpenJob(pack)
            job.add(offset, offset + stored + TAG_BYTES)
            if file is None:
                job.small.append(item)
            else:
                job.want(_chunk_ref.decode(item), _planned_file.decode(file), at)
        if job.end:
            yield job.close()


class _OpenJob:
    """A range that grows, chunk by chunk in the order of the pack."""

    __slots__ = ("chunks", "end", "last", "pack", "small", "start", "wanted")

    def __init__(self, pack: PackRef) -> None:
        self.pack = pack
        self.start = self.end = self.chunks = 0  # no chunk lies at 0
        self.last = -1
        self.small: list[bytes] = []
        self.wanted: list[tuple[ChunkRef, list[tuple[PlannedFile, int]]]] = []

    def is_full(self, first: int, last: int) -> bool:
        """Tell whether a chunk at first … last belongs to the next range."""
        if not self.end or (first == self.last and len(self.small) < JOB_FILES):
            return False
        far = first - self.end > MAX_GAP_BYTES or last - self.start > JOB_BYTES
        return far or self.chunks >= JOB_CHUNKS or len(self.small) >= JOB_FILES

    def add(self, first: int, last: int) -> None:
        """Let the range cover a chunk at first … last."""
        self.start = self.start or first
        self.end = max(self.end, last)
        self.chunks += first != self.last
        self.last = first

    def want(self, chunk: ChunkRef, file: PlannedFile, at: int) -> None:
        """Note where the bytes of a larger file's chunk go."""
        if not self.wanted or self.wanted[-1][0] != chunk:
            self.wanted.append((chunk, []))
        self.wanted[-1][1].append((file, at))

    def close(self) -> Job:
        """Return the range."""
        small = _ARRAY + len(self.small).to_bytes(4, "big") + b"".join(self.small)
        return Job(self.pack, *widen(self.pack, self.start, self.end), small if self.small else b"", self.wanted)
