"""What was pushed from here: one SQLite file per dataset and source (WAL), which may be deleted at any time.

Holds the last snapshot's pages with each entry's stat (change detection), the chunks whose packs are stored (a table,
never a dict), and the journal: packs stored by a push that has not committed yet. A pack is entered only after its PUT.
Without the file everything is read again and nothing is sent twice that the newest snapshot has. Thread-safe.
"""

import fcntl
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from datasync.errors import Locked
from datasync.format.page import Page, decode_own_page
from datasync.format.snapshot import PageRef, Totals
from datasync.model.entries import ListRef, PackRef

SCHEMA = 3
PACKS_REMEMBERED = 4096
JOURNAL_AT_ONCE = 1000
IDS_AT_ONCE = 64  # chunks of one query: each count is a statement that SQLite keeps prepared
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS packs (n INTEGER PRIMARY KEY, id BLOB UNIQUE, ref BLOB, stored INTEGER, committed INTEGER);
CREATE TABLE IF NOT EXISTS chunks (id BLOB PRIMARY KEY, pack INTEGER, raw INTEGER, stored INTEGER, form INTEGER,
                                   position INTEGER, offset INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS chunks_by_pack ON chunks (pack);
CREATE TABLE IF NOT EXISTS lists (id BLOB PRIMARY KEY, ref BLOB, pack BLOB, packs BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contents (id BLOB PRIMARY KEY, page BLOB, stats BLOB, totals BLOB,
                                     scanned INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pages (generation INTEGER, ordinal INTEGER, id BLOB, ref BLOB, pack BLOB,
                                  PRIMARY KEY (generation, ordinal)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pages_by_id ON pages (id);
"""


class FileStat(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is compared on the next push, beside the entry itself; ctime in ns,
    xxh3 of the content (16 bytes) for files.
    """

    ctime: int
    inode: int
    xxh3: bytes


class SourceMark(msgspec.Struct, array_like=True, frozen=True):
    """The last push of this source: snapshot, its seq, the root directory's device and inode, entries,
    when the lists were last checked (ms), and the number of the condemned list then.
    """

    snapshot: bytes
    seq: int
    device: int
    inode: int
    entries: int
    checked: int
    condemned: int


class ChunkRow(NamedTuple):
    """A stored chunk, as the table has it."""

    pack: PackRef
    raw: int
    stored: int
    form: int
    position: int
    offset: int


class PageRow(NamedTuple):
    """One page of the last snapshot: its reference, its entries, their stats, its totals,
    and the scan (ns) that saw them.
    """

    ref: PageRef
    pack: PackRef
    page: Page
    stats: list[FileStat]
    totals: Totals
    scanned: int


_encode = msgspec.msgpack.encode
_stats = msgspec.msgpack.Decoder(list[FileStat])
_pack_ref = msgspec.msgpack.Decoder(PackRef)
_page_ref = msgspec.msgpack.Decoder(PageRef)
_list_ref = msgspec.msgpack.Decoder(ListRef)
_totals = msgspec.msgpack.Decoder(Totals)
_mark = msgspec.msgpack.Decoder(SourceMark)


class Record:
    """The record of one source. Opening it takes a lock that one push at a time holds."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._held = _lock(path)
        self._lock = threading.RLock()
        self._packs: dict[int, PackRef] = {}
        self._learned: dict[bytes, int] = {}
        self._db = _open(path)
        self.generation = self._number("generation")
        with self._db:
            self._db.execute("DELETE FROM pages WHERE generation != ?", (self.generation,))

    def close(self) -> None:
        """Let the next push in."""
        self._db.close()
        self._held.close()

    def _number(self, key: str) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return int(row[0]) if row else 0

    @property
    def mark(self) -> SourceMark | None:
        """The last push of this source, if the record knows one."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'mark'").fetchone()
        return _mark.decode(row[0]) if row else None

    def forget(self, *, keep_journal: bool) -> None:
        """Drop everything that an earlier snapshot vouched for; the journal stays when asked."""
        with self._lock, self._db:
            self._db.execute("DELETE FROM pages")
            self._db.execute("DELETE FROM contents")
            self._db.execute("DELETE FROM lists")
            self._db.execute("DELETE FROM meta WHERE key = 'mark'")
            self._db.execute("DELETE FROM packs" + (" WHERE committed = 1" if keep_journal else ""))
            self._db.execute("DELETE FROM chunks WHERE pack NOT IN (SELECT n FROM packs)")
            self._packs.clear()

    def forget_chunks(self) -> None:
        """Drop where chunks and chunk lists are stored, the journal excepted; the last snapshot's pages stay."""
        with self._lock, self._db:
            self._db.execute("DELETE FROM lists")
            self._db.execute("DELETE FROM packs WHERE committed = 1")
            self._db.execute("DELETE FROM chunks WHERE pack NOT IN (SELECT n FROM packs)")
            self._packs.clear()

    # pages of the last snapshot

    def pages(self) -> Iterator[PageRow]:
        """Yield the last snapshot's pages in order."""
        ordinal = 0
        while True:
            with self._lock:
                row = self._db.execute(
                    "SELECT p.ref, p.pack, c.page, c.stats, c.totals, c.scanned "
                    "FROM pages p JOIN contents c ON c.id = p.id "
                    "WHERE p.generation = ? AND p.ordinal = ?",
                    (self.generation, ordinal),
                ).fetchone()
            if row is None:
                return
            yield PageRow(
                _page_ref.decode(row[0]),
                _pack_ref.decode(row[1]),
                decode_own_page(row[2]),
                _stats.decode(row[3]),
                _totals.decode(row[4]),
                row[5],
            )
            ordinal += 1

    def page(self, page_id: bytes) -> tuple[PageRef, PackRef] | None:
        """Return where the page *page_id* of the last snapshot lies."""
        with self._lock:
            row = self._db.execute(
                "SELECT ref, pack FROM pages WHERE id = ? AND generation = ?", (page_id, self.generation)
            ).fetchone()
        return (_page_ref.decode(row[0]), _pack_ref.decode(row[1])) if row else None

    def content(self, page_id: bytes) -> tuple[Page, list[FileStat]]:
        """Return what a page that `pages` yielded holds, and its stats."""
        with self._lock:
            page, stats = self._db.execute("SELECT page, stats FROM contents WHERE id = ?", (page_id,)).fetchone()
        return decode_own_page(page), _stats.decode(stats)

    def keep_page(self, page_id: bytes, page: bytes, stats: Sequence[FileStat], totals: Totals, scanned: int) -> None:
        """Keep what a page of the coming snapshot holds; true of the source whether or not that snapshot comes."""
        with self._lock, self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO contents VALUES (?, ?, ?, ?, ?)",
                (page_id, page, _encode(stats), _encode(totals), scanned),
            )

    def commit(self, pages: Sequence[tuple[PageRef, PackRef]], mark: SourceMark) -> None:
        """Make *pages* the last snapshot's, and everything in the journal committed."""
        new = self.generation + 1
        rows = ((new, ordinal, ref.id, _encode(ref), _encode(pack)) for ordinal, (ref, pack) in enumerate(pages))
        with self._lock, self._db:
            self._db.executemany("INSERT INTO pages VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("DELETE FROM pages WHERE generation != ?", (new,))
            self._db.execute("DELETE FROM contents WHERE id NOT IN (SELECT id FROM pages)")
            self._db.execute("UPDATE packs SET committed = 1 WHERE committed = 0")
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('generation', ?)", (new,))
            self._set_mark(mark)
        self.generation = new

    def note(self, mark: SourceMark) -> None:
        """Replace the mark: nothing changed, or the lists were checked."""
        with self._lock, self._db:
            self._set_mark(mark)

    def _set_mark(self, mark: SourceMark) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('mark', ?)", (_encode(mark),))

    # chunks and the journal

    def chunks(self, ids: Sequence[bytes]) -> dict[bytes, ChunkRow]:
        """Return where those of the chunks *ids* that are known are stored."""
        found: dict[bytes, ChunkRow] = {}
        with self._lock:
            for start in range(0, len(ids), IDS_AT_ONCE):
                some = ids[start : start + IDS_AT_ONCE]
                rows = self._db.execute(
                    "SELECT id, pack, raw, stored, form, position, offset FROM chunks "
                    f"WHERE id IN ({','.join('?' * len(some))})",
                    some,
                ).fetchall()
                found.update((row[0], ChunkRow(self._pack(row[1]), *row[2:])) for row in rows)
        return found

    def _pack(self, n: int) -> PackRef:
        ref = self._packs.get(n)
        if ref is None:
            if len(self._packs) >= PACKS_REMEMBERED:
                self._packs.clear()
            ref = self._packs[n] = _pack_ref.decode(
                self._db.execute("SELECT ref FROM packs WHERE n = ?", (n,)).fetchone()[0]
            )
        return ref

    def add_pack(
        self, pack: PackRef, chunks: Sequence[tuple[bytes, int, int, int, int, int]], *, stored: int, committed: bool
    ) -> None:
        """Enter a stored pack (at *stored* ms) and its chunks: (id, raw, stored, form, position, offset)."""
        with self._lock, self._db:
            self._db.execute(
                "INSERT OR IGNORE INTO packs VALUES (NULL, ?, ?, ?, ?)",
                (pack.id, _encode(pack), stored, int(committed)),
            )
            n = self._db.execute("SELECT n FROM packs WHERE id = ?", (pack.id,)).fetchone()[0]
            self._db.executemany(
                "INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", ((c[0], n, *c[1:]) for c in sorted(chunks))
            )

    def list_place(self, list_id: bytes) -> tuple[ListRef, PackRef] | None:
        """Return where a chunk-list page is stored, if it is known."""
        with self._lock:
            row = self._db.execute("SELECT ref, pack FROM lists WHERE id = ?", (list_id,)).fetchone()
        return (_list_ref.decode(row[0]), _pack_ref.decode(row[1])) if row else None

    def add_list(self, ref: ListRef, pack: PackRef, packs: Sequence[bytes]) -> None:
        """Enter a stored chunk-list page, and the ids of the *packs* that its chunks lie in."""
        with self._lock, self._db:
            self.learn_list(ref, pack, packs)

    def learn(self, chunks: Iterable[tuple[bytes, ChunkRow]]) -> None:
        """Enter chunks that the newest snapshot has; `learned` ends the batch."""
        with self._lock:
            for chunk_id, row in chunks:
                n = self._learned.get(row.pack.id)
                if n is None:
                    if len(self._learned) >= PACKS_REMEMBERED:
                        self._learned.clear()
                    self._db.execute(
                        "INSERT OR IGNORE INTO packs VALUES (NULL, ?, ?, 0, 1)", (row.pack.id, _encode(row.pack))
                    )
                    n = self._db.execute("SELECT n FROM packs WHERE id = ?", (row.pack.id,)).fetchone()[0]
                    self._learned[row.pack.id] = n
                self._db.execute("INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", (chunk_id, n, *row[1:]))

    def learn_list(self, ref: ListRef, pack: PackRef, packs: Sequence[bytes]) -> None:
        """The same for a list that the newest snapshot has; `learned` ends the batch."""
        with self._lock:
            self._db.execute(
                "INSERT OR IGNORE INTO lists VALUES (?, ?, ?, ?)", (ref.id, _encode(ref), _encode(pack), _encode(packs))
            )

    def learn_page(self, ordinal: int, ref: PageRef, pack: PackRef) -> None:
        """Enter where a page of the newest snapshot lies; what its entries look like here is not known."""
        with self._lock:
            self._db.execute(
                "INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)",
                (self.generation, ordinal, ref.id, _encode(ref), _encode(pack)),
            )

    def learned(self) -> None:
        """Make what was learned durable."""
        with self._lock:
            self._db.commit()
            self._learned.clear()

    def relies_on(self, condemned: frozenset[bytes], pages: Iterable[bytes] | None = None) -> bool:
        """Tell whether the given pages (default: the last snapshot's) need a condemned pack, or may:
        a chunk list that is not known counts.
        """
        with self._lock:
            if pages is None:
                rows = self._db.execute(
                    "SELECT id, pack FROM pages WHERE generation = ?", (self.generation,)
                ).fetchall()
                if any(_pack_ref.decode(row[1]).id in condemned for row in rows):
                    return True
                pages = [row[0] for row in rows]
            return any(self._page_relies_on(page_id, condemned) for page_id in pages)

    def _page_relies_on(self, page_id: bytes, condemned: frozenset[bytes]) -> bool:
        content = self._db.execute("SELECT page FROM contents WHERE id = ?", (page_id,)).fetchone()
        if content is None:
            return False
        page = decode_own_page(content[0])
        if any(pack.id in condemned for pack in page.packs):
            return True
        for item in (item for entry in page.entries for item in entry.lists):
            row = self._db.execute("SELECT packs FROM lists WHERE id = ?", (item.id,)).fetchone()
            if row is None or not condemned.isdisjoint(msgspec.msgpack.decode(row[0])):
                return True
        return False

    def count_packs(self) -> tuple[int, int]:
        """Return how many packs of a push that did not commit are known, and how many packs at all."""
        with self._lock:
            found = self._db.execute("SELECT count(*) - coalesce(sum(committed), 0), count(*) FROM packs").fetchone()
        return int(found[0]), int(found[1])

    def journal(self) -> Iterator[list[tuple[PackRef, int]]]:
        """Yield the packs of a push that did not commit, in order of id, some at a time: (pack, when stored in ms)."""
        last = b""
        while True:
            with self._lock:
                rows = self._db.execute(
                    "SELECT ref, stored, id FROM packs WHERE committed = 0 AND id > ? ORDER BY id LIMIT ?",
                    (last, JOURNAL_AT_ONCE),
                ).fetchall()
            if not rows:
                return
            yield [(_pack_ref.decode(row[0]), row[1]) for row in rows]
            last = rows[-1][2]

    def drop_packs(self, ids: Sequence[bytes]) -> None:
        """Forget packs and what lies in them: the store does not have them, or nothing new may rely on them."""
        gone = frozenset(ids)
        with self._lock, self._db:
            lists = self._db.execute("SELECT id, pack FROM lists")
            dropped = [(list_id,) for list_id, pack in lists if _pack_ref.decode(pack).id in gone]
            self._db.executemany("DELETE FROM lists WHERE id = ?", dropped)
            for pack_id in ids:
                self._db.execute("DELETE FROM chunks WHERE pack = (SELECT n FROM packs WHERE id = ?)", (pack_id,))
                self._db.execute("DELETE FROM packs WHERE id = ?", (pack_id,))
            self._packs.clear()


def _lock(path: Path) -> IO[str]:
    held = open(path.with_suffix(".lock"), "w")  # noqa: SIM115 (held until close)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise Locked(
            f"{path.stem}: another push of this source into this dataset is running on this machine: wait for it"
        ) from None
    return held


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path)
    except sqlite3.DatabaseError:  # a damaged record is only a slower push
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False)
    db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16384;")
    if db.execute("PRAGMA user_version").fetchone()[0] not in (0, SCHEMA):
        raise sqlite3.DatabaseError("another schema")
    db.executescript(_TABLES + f"PRAGMA user_version = {SCHEMA};")
    return db
