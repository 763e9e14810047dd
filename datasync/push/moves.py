"""What left its path and what came to one, so that a rename is no loss.

An entry has moved when what came has the inode, the time, the size and the kind of what is gone: another disk in the
source's place may have the same inode numbers, and not the same times and sizes with them. Eight bytes are kept of
each, up to `MOVES`; what comes after those counts as lost, which is the careful answer. Pure.
"""

from array import array

MOVES = 4_000_000  # remembered of either kind: 32 MB


class Moves:
    """Entries that are gone from their paths, and entries that are at paths where they were not."""

    __slots__ = ("_came", "_gone")

    def __init__(self) -> None:
        self._gone, self._came = array("q"), array("q")

    def gone(self, inode: int, mtime: int, size: int, kind: int) -> None:
        """Remember an entry of the last push that is not at its path."""
        if len(self._gone) < MOVES:
            self._gone.append(hash((inode, mtime, size, kind)))

    def came(self, inode: int, mtime: int, size: int, kind: int) -> None:
        """Remember an entry that is at a path where the last push did not see it."""
        if len(self._came) < MOVES:
            self._came.append(hash((inode, mtime, size, kind)))

    def count(self) -> int:
        """Return how many entries moved within the source."""
        return len(set(self._gone).intersection(self._came))
