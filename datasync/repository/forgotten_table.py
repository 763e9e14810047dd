"""Which snapshots are forgotten: a local table of what the repository's objects say (docs/format.md, section 12).

What enters it was verified. It lies beside the other local state and may be deleted at any time; it is read again from
the repository then. Without a path it lives in this process alone. Thread-safe.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from datasync.model.ids import ZERO_ID

SCHEMA = 1
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots (seq INTEGER, id BLOB, previous BLOB, created INTEGER, forgotten INTEGER,
                                      by BLOB, header BLOB, PRIMARY KEY (seq, id)) WITHOUT ROWID;
"""
_COLUMNS = "seq, id, previous, created, forgotten, by, header"


class Gone(NamedTuple):
    """A forgotten snapshot: its number, id, the id that it follows, when it was made and forgotten (ms), by which
    signer, and its Signed body.
    """

    seq: int
    id: bytes
    previous: bytes
    created: int
    forgotten: int
    by: bytes
    header: bytes


class ForgottenTable:
    """The table of one dataset, opened when it is first asked."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._opened: sqlite3.Connection | None = None

    @property
    def _db(self) -> sqlite3.Connection:
        if self._opened is None:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._opened = _open(self._path)
        return self._opened

    @property
    def newest(self) -> tuple[int, bytes]:
        """Number and hash of the newest object that the table holds; zeros before the first."""
        with self._lock:
            found = dict(self._db.execute("SELECT key, value FROM meta").fetchall())
        return int(found.get("number", 0)), bytes(found.get("digest", ZERO_ID))

    def add(self, gone: Iterable[Gone], *, number: int, digest: bytes) -> None:
        """Enter what object *number* says. Durable; who is named first stays."""
        with self._lock, self._db:
            self._db.executemany("INSERT OR IGNORE INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?)", gone)
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('number', ?)", (number,))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('digest', ?)", (digest,))

    def find(self, seq: int, snapshot: bytes | None = None) -> Gone | None:
        """Return the forgotten snapshot *seq*; with *snapshot* only the one of that id."""
        text, values = "seq = ?", [seq, snapshot]
        if snapshot is not None:
            text += " AND id = ?"
        with self._lock:
            row = self._db.execute(
                f"SELECT {_COLUMNS} FROM snapshots WHERE {text} LIMIT 1", values[: text.count("?")]
            ).fetchone()
        return Gone(*row) if row else None

    def has(self, seq: int, digest: bytes | None) -> bool:
        """Tell whether the object of that number, and that hash where its name has one, is forgotten."""
        return self.find(seq, digest) is not None

    def with_prefix(self, prefix: str) -> Gone | None:
        """Return the newest forgotten snapshot whose id begins with the hex digits *prefix*."""
        with self._lock:
            row = self._db.execute(
                f"SELECT {_COLUMNS} FROM snapshots WHERE substr(hex(id), 1, ?) = ? ORDER BY seq DESC LIMIT 1",
                (len(prefix), prefix.upper()),
            ).fetchone()
        return Gone(*row) if row else None

    def count(self) -> int:
        """Return how many are forgotten."""
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM snapshots").fetchone()[0])

    def below(self, seq: int) -> Iterator[Gone]:
        """Yield those with a number below *seq*, the newest first."""
        while True:
            with self._lock:
                row = self._db.execute(
                    f"SELECT {_COLUMNS} FROM snapshots WHERE seq < ? ORDER BY seq DESC LIMIT 1", (seq,)
                ).fetchone()
            if row is None:
                return
            yield Gone(*row)
            seq = row[0]

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


def _open(path: Path | None) -> sqlite3.Connection:
    if path is None:
        return _connect(":memory:")
    try:
        return _connect(str(path))
    except sqlite3.DatabaseError:  # a damaged table is only read again
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return _connect(str(path))


def _connect(where: str) -> sqlite3.Connection:
    db = sqlite3.connect(where, check_same_thread=False, timeout=60)
    if db.execute("PRAGMA user_version").fetchone()[0] not in (0, SCHEMA):
        raise sqlite3.DatabaseError("another schema")
    db.executescript(_TABLES + f"PRAGMA user_version = {SCHEMA};")
    return db
