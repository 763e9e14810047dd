"""Where chunks lie since they were re-sealed: a local table of what relocations say (docs/format.md, section 12).

A hint: the ids of what is read are verified all the same, so a wrong row makes a chunk fail. Places that no relocation
object tells yet are kept apart: they count for who goes on with the re-sealing alone, since nobody else knows them, and
a prune elsewhere may delete their packs. The table lies beside the other local state and may be deleted at any time; it
is read again from the repository then. Thread-safe.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from datasync.model.entries import PackRef

SCHEMA = 3
EMPTIED_REMEMBERED = 4096  # packs that were asked for
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS packs (n INTEGER PRIMARY KEY, id BLOB UNIQUE, ref BLOB);
CREATE TABLE IF NOT EXISTS chunks (id BLOB PRIMARY KEY, pack INTEGER, stored INTEGER, form INTEGER, position INTEGER,
                                   offset INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS untold (id BLOB PRIMARY KEY, pack INTEGER, stored INTEGER, form INTEGER, position INTEGER,
                                   offset INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS emptied (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""
_encode = msgspec.msgpack.encode
_pack_ref = msgspec.msgpack.Decoder(PackRef)


class Moved(NamedTuple):
    """A chunk's new place."""

    id: bytes
    pack: PackRef
    stored: int
    form: int
    position: int
    offset: int


class Relocations:
    """The table of one dataset, opened when it is first asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._opened: sqlite3.Connection | None = None
        self._packs: dict[int, PackRef] = {}
        self._asked: dict[bytes, bool] = {}

    @property
    def _db(self) -> sqlite3.Connection:
        if self._opened is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._opened = _open(self._path)
        return self._opened

    @property
    def number(self) -> int:
        """The newest relocation object that the table holds."""
        with self._lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = 'number'").fetchone()
            return int(row[0]) if row else 0

    def find(self, chunk_id: bytes, *, untold: bool = False) -> Moved | None:
        """Return where the chunk lies now, None where it was; *untold*: or where this machine alone knows it to be."""
        with self._lock:
            row = self._row("untold", chunk_id) if untold else None
            row = row or self._row("chunks", chunk_id)
            return Moved(chunk_id, self._pack(row[0]), *row[1:]) if row else None

    def _row(self, table: str, chunk_id: bytes) -> tuple[int, int, int, int, int] | None:
        query = f"SELECT pack, stored, form, position, offset FROM {table} WHERE id = ?"
        found: tuple[int, int, int, int, int] | None = self._db.execute(query, (chunk_id,)).fetchone()
        return found

    def _pack(self, n: int) -> PackRef:
        ref = self._packs.get(n)
        if ref is None:
            row = self._db.execute("SELECT ref FROM packs WHERE n = ?", (n,)).fetchone()
            ref = self._packs[n] = _pack_ref.decode(row[0])
        return ref

    def holds(self, pack: bytes) -> bool:
        """Tell whether chunks were moved to *pack*."""
        with self._lock:
            return self._db.execute("SELECT 1 FROM packs WHERE id = ?", (pack,)).fetchone() is not None

    def is_empty(self) -> bool:
        """Tell whether nothing was ever moved."""
        with self._lock:
            return self._db.execute("SELECT 1 FROM chunks UNION ALL SELECT 1 FROM untold LIMIT 1").fetchone() is None

    def has_emptied(self, pack: bytes) -> bool:
        """Tell whether what snapshots need of *pack* lies elsewhere now."""
        with self._lock:
            known = self._asked.get(pack)
            if known is None:
                if len(self._asked) >= EMPTIED_REMEMBERED:
                    self._asked.clear()
                row = self._db.execute("SELECT 1 FROM emptied WHERE id = ?", (pack,)).fetchone()
                known = self._asked[pack] = row is not None
            return known

    def add(self, moved: Iterable[Moved], *, number: int | None, emptied: Iterable[bytes] = ()) -> None:
        """Enter new places: those of relocation object *number*, or (None) those not published yet; and the packs that
        it names as *emptied*. Durable.
        """
        with self._lock, self._db:
            self._asked.clear()
            self._db.executemany("INSERT OR IGNORE INTO emptied VALUES (?)", ((pack,) for pack in emptied))
            for item in moved:
                self._db.execute("INSERT OR IGNORE INTO packs VALUES (NULL, ?, ?)", (item.pack.id, _encode(item.pack)))
                n = self._db.execute("SELECT n FROM packs WHERE id = ?", (item.pack.id,)).fetchone()[0]
                table, row = "untold" if number is None else "chunks", (item.id, n, *item[2:])
                self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?, ?, ?)", row)
                if number is not None:  # the newest told place counts
                    self._db.execute("DELETE FROM untold WHERE id = ?", (item.id,))
            if number is not None:
                self._db.execute("INSERT OR REPLACE INTO meta VALUES ('number', ?)", (number,))

    def unpublished(self, limit: int) -> list[Moved]:
        """Return places that no relocation object tells yet, by chunk id."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, pack, stored, form, position, offset FROM untold ORDER BY id LIMIT ?",
                (limit,),
            ).fetchall()
            return [Moved(row[0], self._pack(row[1]), *row[2:]) for row in rows]

    def unpublished_packs(self) -> list[bytes]:
        """Return the ids of the packs that unpublished places lie in."""
        with self._lock:
            rows = self._db.execute("SELECT id FROM packs WHERE n IN (SELECT pack FROM untold) ORDER BY id").fetchall()
        return [row[0] for row in rows]

    def drop_unpublished(self, pack: bytes) -> None:
        """Forget the unpublished places in *pack*, which can not be relied on any more. Durable."""
        with self._lock, self._db:
            self._db.execute("DELETE FROM untold WHERE pack = (SELECT n FROM packs WHERE id = ?)", (pack,))

    def packs(self) -> Iterator[PackRef]:
        """Yield every pack that chunks were moved to."""
        with self._lock:
            rows = self._db.execute("SELECT ref FROM packs").fetchall()
        for row in rows:
            yield _pack_ref.decode(row[0])

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path)
    except sqlite3.DatabaseError:  # a damaged table is only read again
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False, timeout=60)
    if db.execute("PRAGMA user_version").fetchone()[0] not in (0, SCHEMA):
        raise sqlite3.DatabaseError("another schema")
    db.executescript(_TABLES + f"PRAGMA user_version = {SCHEMA};")
    return db
