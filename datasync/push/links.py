"""Hard links of the source, grouped by a keyed hash of their first path (docs/format.md, section 10)."""

from datasync.crypto.hashing import keyed_hash
from datasync.push.scan import Found


class LinkGroups:
    """Remembers a file with several links until its last one was met; what lies outside the tree stays remembered."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._open: dict[tuple[int, int], tuple[bytes, int]] = {}

    def of(self, found: Found) -> bytes:
        """Return the link group of *found*, empty for a file with one link."""
        if found.nlink < 2:
            return b""
        inode = (found.device, found.inode)
        known = self._open.pop(inode, None)
        link, left = known if known is not None else (keyed_hash(self._key, found.path), found.nlink)
        if left > 1:
            self._open[inode] = (link, left - 1)
        return link
