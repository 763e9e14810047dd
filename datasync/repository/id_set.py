"""A set of ids on disk, for what grows with a repository's history: pages that were seen, in all snapshots.

A temporary SQLite database that goes with the object; memory is its page cache. Used by one thread.
"""

import sqlite3
from collections.abc import Iterable, Iterator

CACHE_KIB = 16 * 1024


class IdSet:
    """Ids that were added."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("")
        self._db.executescript(
            f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{CACHE_KIB};"
            "CREATE TABLE ids (id BLOB PRIMARY KEY) WITHOUT ROWID;"
        )
        self._count = 0

    def add(self, item: bytes) -> None:
        """Add *item*."""
        self._count += self._db.execute("INSERT OR IGNORE INTO ids VALUES (?)", (item,)).rowcount

    def update(self, items: Iterable[bytes]) -> None:
        """Add all *items*."""
        for item in items:
            self.add(item)

    def __contains__(self, item: object) -> bool:
        return self._db.execute("SELECT 1 FROM ids WHERE id = ?", (item,)).fetchone() is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for (item,) in self._db.execute("SELECT id FROM ids ORDER BY id"):
            yield item

    def close(self) -> None:
        """Remove it from disk."""
        self._db.close()
