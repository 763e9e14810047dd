"""Hard links of the source, grouped by a keyed hash of their first path (docs/format.md, section 10)."""

import sqlite3

from datasync.crypto.hashing import keyed_hash
from datasync.push.scan import Found

IN_MEMORY = 65_536  # files whose other links were not met yet; more are kept on disk

_TABLES = """
PRAGMA journal_mode = OFF;
CREATE TABLE open (device BLOB, inode BLOB, link BLOB, remaining INTEGER, PRIMARY KEY (device, inode)) WITHOUT ROWID;
"""


class LinkGroups:
    """Remembers a file with several links until its last one was met; what lies outside the tree stays remembered.

    A copy of a tree by hard links has all its other links outside: those beyond the first go to a temporary database.
    """

    def __init__(self, key: bytes, in_memory: int = IN_MEMORY) -> None:
        self._key = key
        self._in_memory = in_memory
        self._open: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._disk: sqlite3.Connection | None = None

    def of(self, found: Found) -> bytes:
        """Return the link group of *found*, empty for a file with one link."""
        if found.nlink < 2:
            return b""
        inode = (found.device, found.inode)
        known = self._open.pop(inode, None) or self._from_disk(inode)
        link, left = known if known is not None else (keyed_hash(self._key, found.path), found.nlink)
        if left > 1:
            self._keep(inode, link, left - 1)
        return link

    def _keep(self, inode: tuple[int, int], link: bytes, left: int) -> None:
        if len(self._open) < self._in_memory:
            self._open[inode] = (link, left)
            return
        if self._disk is None:
            self._disk = sqlite3.connect("")
            self._disk.executescript(_TABLES)
        self._disk.execute("INSERT INTO open VALUES (?, ?, ?, ?)", (*_key(inode), link, left))

    def _from_disk(self, inode: tuple[int, int]) -> tuple[bytes, int] | None:
        if self._disk is None:
            return None
        where = "FROM open WHERE device = ? AND inode = ?"
        found: tuple[bytes, int] | None = self._disk.execute(f"SELECT link, remaining {where}", _key(inode)).fetchone()
        if found is not None:
            self._disk.execute(f"DELETE {where}", _key(inode))
        return found


def _key(inode: tuple[int, int]) -> tuple[bytes, bytes]:
    return inode[0].to_bytes(8, "big"), inode[1].to_bytes(8, "big")  # SQLite's integers are signed
