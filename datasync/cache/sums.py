"""xxh3-128 of every extent of an object, noted while it was written: a fast first look for scrub, never an identity.

One SQLite file per cache directory (`sums.db`); without it, or without an object's row, scrub compares content. So a
note that can not be kept (a full disk, a damaged file) is dropped, and never fails what it is a note of. Thread-safe.
"""

import contextlib
import sqlite3
import struct
import threading
from pathlib import Path
from typing import NamedTuple

ROWS = 8_192  # objects noted in one transaction: each touches pages all over the table, as ids are random
_EXTENT = struct.Struct("<QI16s")


class Sum(NamedTuple):
    """One extent of a file: offset and length in bytes, and its xxh3-128."""

    offset: int
    length: int
    digest: bytes


def pack_extent(offset: int, length: int, digest: bytes) -> bytes:
    """Return one extent as a row holds it; those of an object follow each other."""
    return _EXTENT.pack(offset, length, digest)


class Sums:
    """The notes of one cache directory."""

    def __init__(self, directory: Path) -> None:
        self._db: sqlite3.Connection | None = None
        with contextlib.suppress(sqlite3.Error):
            self._db = sqlite3.connect(directory / "sums.db", check_same_thread=False, timeout=30)
            self._db.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
                "CREATE TABLE IF NOT EXISTS sums (id BLOB PRIMARY KEY, extents BLOB) WITHOUT ROWID;"
            )
        self._lock = threading.Lock()
        self._waiting: list[tuple[bytes, bytes]] = []

    def note(self, object_id: bytes, extents: bytes) -> None:
        """Note what was written as *object_id*: its extents, packed."""
        self.note_all([(object_id, extents)])

    def note_all(self, notes: list[tuple[bytes, bytes]]) -> None:
        """Note many at once: object id and packed extents."""
        with self._lock:
            self._waiting += notes
            if len(self._waiting) >= ROWS:
                self._write()

    def _write(self) -> None:
        if self._db is not None and self._waiting:
            with contextlib.suppress(sqlite3.Error), self._db:
                self._db.executemany("INSERT OR REPLACE INTO sums VALUES (?, ?)", sorted(self._waiting))
        self._waiting.clear()

    def of(self, object_id: bytes) -> list[Sum] | None:
        """Return what was noted of an object."""
        row = None
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._db is not None:
                row = self._db.execute("SELECT extents FROM sums WHERE id = ?", (object_id,)).fetchone()
        return [Sum(*item) for item in _EXTENT.iter_unpack(row[0])] if row else None

    def close(self) -> None:
        """Write what waits, and close."""
        with self._lock:
            self._write()
            if self._db is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._db.close()
