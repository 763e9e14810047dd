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
from datasync.repository.ranges import Range, plan_ranges

_TABLES = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768;
CREATE TABLE packs (n INTEGER PRIMARY KEY, id BLOB UNIQUE, ref BLOB, priority INTEGER);
CREATE TABLE files (n INTEGER PRIMARY KEY, path BLOB, size INTEGER, mode INTEGER, mtime INTEGER, id BLOB,
                    chunks INTEGER, xattrs BLOB, dense INTEGER);
CREATE TABLE wanted (pack INTEGER, offset INTEGER, chunk BLOB, raw INTEGER, stored INTEGER, form INTEGER,
                     position INTEGER, file INTEGER, at INTEGER);
CREATE TABLE directories (n INTEGER PRIMARY KEY, path BLOB, mode INTEGER, mtime INTEGER, xattrs BLOB);
CREATE TABLE links (n INTEGER PRIMARY KEY, path BLOB, link BLOB);
CREATE TABLE groups (link BLOB PRIMARY KEY, path BLOB) WITHOUT ROWID;
"""

JOB_CHUNKS = 2_048  # of one job at most: a pack may hold 16,384 small files, and several jobs are in memory
INSERT_ROWS = 2_000  # given to SQLite at once: a statement for each file costs twice as much
JOB_BYTES = 16 * MIB  # of one job, from its first wanted byte to its last: while one is opened, others are fetched

Xattrs = tuple[tuple[bytes, bytes], ...]
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
    dense: int

    @property
    def attributes(self) -> Xattrs:
        """The extended attributes."""
        return _xattrs.decode(self.xattrs) if self.xattrs else ()


@dataclass(frozen=True, slots=True)
class Job:
    """One range to fetch, and for each chunk of it (by the range's index) where its bytes go: (file, offset)."""

    part: Range
    targets: list[list[tuple[PlannedFile, int]]]


class Plan:
    """What is still to do. One thread uses it."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", check_same_thread=False)
        self._db.executescript(_TABLES)
        self._packs: dict[bytes, int] = {}
        self.files = 0
        self.bytes = 0
        self.small_files = 0
        self._rows = 0
        self._new_files: list[tuple[object, ...]] = []
        self._new_wanted: list[tuple[object, ...]] = []
        self._new_directories: list[tuple[object, ...]] = []
        self._priority = self._last_priority = 0

    def close(self) -> None:
        """Drop the plan."""
        self._db.close()

    def want(self, entry: Entry, file_id: bytes, chunks: Iterable[StoredChunk], priority: int = 0) -> None:
        """Plan to fetch the file *entry*; packs of files with a smaller *priority* come first."""
        self._priority = priority
        self._last_priority = max(self._last_priority, priority)
        n, before = self.files, self._rows
        self.files += 1
        for row in self._wanted(n, entry, chunks):
            self._new_wanted.append(row)
            if len(self._new_wanted) >= INSERT_ROWS:
                self._insert()
        self.small_files += self._rows - before == 1
        xattrs = _encode(entry.xattrs) if entry.xattrs else b""
        row = (n, entry.path, entry.size, entry.mode, entry.mtime, file_id, self._rows - before, xattrs)
        self._new_files.append((*row, not entry.holes))
        if len(self._new_files) >= INSERT_ROWS:
            self._insert()

    def _insert(self) -> None:
        self._db.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._new_files)
        self._db.executemany("INSERT INTO wanted VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._new_wanted)
        self._db.executemany("INSERT INTO directories VALUES (NULL, ?, ?, ?, ?)", self._new_directories)
        self._new_directories.clear()
        self._new_files.clear()
        self._new_wanted.clear()

    def _wanted(self, n: int, entry: Entry, chunks: Iterable[StoredChunk]) -> Iterator[tuple[object, ...]]:
        position, holes = 0, iter(entry.holes)
        hole = next(holes, None)
        for c in chunks:
            while hole and hole[0] == position:
                position += hole[1]
                hole = next(holes, None)
            yield self._pack(c.pack), c.offset, c.id, c.raw, c.stored, c.form, c.position, n, position
            position += c.raw
            self.bytes += c.raw
            self._rows += 1

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
        for row in self._db.execute("SELECT * FROM files WHERE chunks = 0 ORDER BY n"):
            yield PlannedFile(*row)

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
            "SELECT w.offset, w.chunk, w.raw, w.stored, w.form, w.position, w.at, "
            "f.* FROM wanted w JOIN files f ON f.n = w.file "
            "WHERE w.pack = ? ORDER BY w.offset",
            (n,),
        )
        refs: list[ChunkRef] = []
        targets: list[list[tuple[PlannedFile, int]]] = []
        for offset, chunk, raw, stored, form, position, at, *file in rows:
            ref = ChunkRef(chunk, raw, stored, form, 0, position, offset)
            if not refs or refs[-1] != ref:
                if refs and (len(refs) >= JOB_CHUNKS or offset + stored + TAG_BYTES - refs[0].offset > JOB_BYTES):
                    yield from _jobs(pack, refs, targets)
                    refs, targets = [], []
                refs.append(ref)
                targets.append([])
            targets[-1].append((PlannedFile(*file), at))
        yield from _jobs(pack, refs, targets)


def _jobs(pack: PackRef, refs: list[ChunkRef], targets: list[list[tuple[PlannedFile, int]]]) -> Iterator[Job]:
    for part in plan_ranges((index, pack, ref) for index, ref in enumerate(refs)):
        yield Job(part, targets)
