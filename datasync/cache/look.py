"""Look at a cache directory without changing anything in it: no name is made, removed or given another time.

What does not exist yet is empty; its disk is that of the nearest directory above. The steps of a warm and a pull run
unchanged on `Untouched`, so a plan says what they would do. Raises for a directory that is not safe to use what
`Cache.open` raises, and `NotAuthorized` for one that could not be made.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from datasync.cache.beneath import Tree
from datasync.cache.directories import Directory
from datasync.cache.dirty import Markers
from datasync.cache.faults import fault, shown
from datasync.cache.kernel import current_boot_id
from datasync.cache.layout import OBJECTS, VIEWS, Cache, check_directory, check_inside
from datasync.cache.objects import Objects
from datasync.errors import NotFound
from datasync.model.ids import FileId


class Untouched(Tree):
    """A tree that is looked at: whatever is to be made, changed or removed is left as it is."""

    def make_directory(self, path: bytes, mode: int = 0o700, *, fresh: bool = False) -> None:
        """Make nothing."""

    def symlink(self, path: bytes, target: bytes) -> None:
        """Make nothing."""

    def link(self, source_dir_fd: int, source_name: bytes, path: bytes) -> bool:
        """Make nothing; it would be made."""
        return True

    def remove(self, path: bytes) -> None:
        """Remove nothing."""

    def set_mode(self, path: bytes, mode: int) -> None:
        """Change nothing."""

    def set_mtime(self, path: bytes, mtime_ns: int) -> None:
        """Change nothing."""

    def set_xattrs(self, path: bytes, xattrs: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Change nothing."""
        return []


class Absent(Untouched):
    """A directory that is not there; the root is the directory above in which it would be made."""

    def locate(self, path: bytes) -> tuple[Directory, bytes]:
        """Find nothing."""
        raise NotFound(f"{shown(path)}: it is not there")

    def subtree(self, path: bytes) -> Tree:
        """Find nothing."""
        raise NotFound(f"{shown(path)}: it is not there")


class LookedAt(Objects):
    """Objects as a warm would find them: what it would remove first, after a power loss, is not there."""

    _since: int | None = None
    _absent = False

    @classmethod
    def look(cls, cache: Cache) -> Self:
        """Return the objects of *cache*, none where it has no place for them yet."""
        try:
            with cache.tree.subtree(OBJECTS) as tree:
                found = cls.share(os.dup(tree.root_fd), reflinks=False)
        except NotFound:
            found = cls.share(os.dup(cache.tree.root_fd), reflinks=False)
            found._absent = True
            return found
        try:
            found._since = Markers(found.fd, current_boot_id()).distrusted_since()
        except OSError as error:
            found.close()
            raise fault(error, f"objects of cache {cache.path}") from error
        return found

    def may_have(self, file_id: FileId) -> bool:
        """Tell whether it is worth to look."""
        return not self._absent and super().may_have(file_id)

    def has(self, file_id: FileId, size: int) -> bool:
        """Tell whether the object is there with *size* bytes, and trusted."""
        return super().has(file_id, size) and (self._since is None or self.changed_ns(file_id) < self._since)


def look_at(path: Path) -> Cache:
    """Return the cache at *path* as it is, checked as `Cache.open` checks it; nothing is made."""
    path = Path(os.path.abspath(path))
    if not path.exists():
        above = above_of(path)
        return Cache(path, Absent(_open(above, path)))
    tree = Untouched(_open(path, path))
    try:
        check_directory(path, os.fstat(tree.root_fd))
        check_inside(tree, (OBJECTS, VIEWS), path)
    except BaseException:
        tree.close()
        raise
    return Cache(path, tree)


def above_of(path: Path) -> Path:
    """Return the nearest directory above *path* that is there, in which this user may make it."""
    above = next(item for item in path.parents if item.exists())
    if not above.is_dir():
        raise fault(NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)), f"directory {path}")
    if not os.access(above, os.W_OK | os.X_OK):
        raise fault(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), f"directory {path}")
    return above


def _open(path: Path, wanted: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise fault(error, f"cache directory {wanted}") from error
