"""Private, writable copies of views, for a job that must write into its files; by reflink where there is one.

`<cache>/copies/<16 hex>/` with a lock file beside it that its owner holds: a copy whose owner died is removed by
whoever makes the next one.
"""

import contextlib
import fcntl
import os
import stat
from typing import Self

from datasync.cache.beneath import Tree
from datasync.cache.faults import fault, shown
from datasync.cache.kernel import clone_file, entries_in, names_in
from datasync.cache.layout import Cache, View
from datasync.cache.objects import copy_extents
from datasync.errors import NotFound

COPIES = b"copies"


class PrivateCopy:
    """A copy that lives as long as its owner."""

    def __init__(self, cache: Cache, name: bytes, lock: int) -> None:
        """Use `PrivateCopy.make`."""
        self._cache = cache
        self._name = name
        self._lock = lock
        self.path = cache.path / os.fsdecode(name)

    @classmethod
    def make(cls, cache: Cache, view: View) -> Self:
        """Copy *view*, which the caller holds a lease of."""
        tree = cache.tree
        if tree.lstat(COPIES) is None:
            tree.make_directory(COPIES, 0o700)
        tree.set_mode(COPIES, 0o700)  # the job's own: not even for those who may read the view
        remove_dead_copies(cache)
        name, lock = _own_name(tree)
        copy = cls(cache, name, lock)
        try:
            tree.make_directory(name, 0o700, fresh=True)
            with tree.subtree(view.place) as source, tree.subtree(name) as target:
                _copy_tree(source, target)
        except BaseException:
            copy.remove()
            raise
        return copy

    def remove(self) -> None:
        """Remove the copy."""
        self._cache.tree.remove_tree(self._name)
        self._cache.tree.remove(self._name + b".lock")
        os.close(self._lock)


def _own_name(tree: Tree) -> tuple[bytes, int]:
    """Return a name for a copy, and its lock, held."""
    while True:
        name = COPIES + b"/" + os.urandom(8).hex().encode()
        lock = tree.create(name + b".lock", 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever looks for dead copies holds it for a moment
        if tree.lstat(name + b".lock") is not None:
            return name, lock
        os.close(lock)  # and took this one for dead before it was locked


def remove_dead_copies(cache: Cache) -> None:
    """Remove copies whose owner died."""
    if cache.tree.lstat(COPIES) is None:
        return
    with cache.tree.subtree(COPIES) as tree:
        names = [os.fsencode(name) for name in names_in(tree.root_fd)]
    for name in names:
        if not name.endswith(b".lock"):
            continue
        with contextlib.suppress(NotFound):
            fd = cache.tree.open_file(COPIES + b"/" + name, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                cache.tree.remove_tree(COPIES + b"/" + name.removesuffix(b".lock"))
                cache.tree.remove(COPIES + b"/" + name)
            except BlockingIOError:
                continue
            finally:
                os.close(fd)


def _copy_tree(source: Tree, target: Tree) -> None:
    pending = [b""]
    while pending:
        directory = pending.pop()
        with source.subtree(directory) as opened, entries_in(opened.root_fd) as found:
            for item in found:
                name = os.fsencode(item.name)
                path = directory + b"/" + name if directory else name
                status = item.stat(follow_symlinks=False)
                if item.is_dir(follow_symlinks=False):
                    target.make_directory(path, stat.S_IMODE(status.st_mode) | 0o700)
                    pending.append(path)
                elif item.is_symlink():
                    target.symlink(path, os.readlink(name, dir_fd=opened.root_fd))
                else:
                    _copy_file(source, target, path, status)


def _copy_file(source: Tree, target: Tree, path: bytes, status: os.stat_result) -> None:
    old = source.open_file(path)
    try:
        new = target.create(path, 0o600)
        try:
            try:
                clone_file(old, new)
            except OSError:
                copy_extents(old, new)  # this file system has no reflinks
            os.fchmod(new, stat.S_IMODE(status.st_mode) | 0o600)
            os.utime(new, ns=(status.st_mtime_ns, status.st_mtime_ns))
        finally:
            os.close(new)
    except OSError as error:
        raise fault(error, f"copy {shown(path)}") from error
    finally:
        os.close(old)
