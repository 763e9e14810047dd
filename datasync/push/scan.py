"""Walk the source: every entry once, in the order of docs/format.md section 10, whatever the depth.

Iterative, with a bounded number of directory fds (`datasync.push.source`); one listing per directory and one lstat
per entry. Memory is one directory's names per level, of a large one a part (`datasync.push.names`). A directory that
comes back from eviction is verified by device and inode. What can not be pushed (FIFOs, sockets, devices, unreadable,
vanished or swapped entries, names past the format's limits) is handed to `skipped`, once, and is not yielded; an
unreadable directory is not yielded either, since an empty one would be a lie. When a directory is removed or swapped
after its own entry was yielded, it is reported once and the rest of it is left out.

Raises `UsageError` for a bad `.datasyncignore`; `StorageUnavailable` when the root can not be listed or the machine
has no fds left. Does not open files (except for extended attributes), does not compare with an earlier push.
"""

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator

import msgspec

from datasync.errors import NotFound, StorageUnavailable
from datasync.model.entries import DIRECTORY, FILE, SYMLINK
from datasync.model.limits import NAME_BYTES, PATH_BYTES
from datasync.push.ignore import FILE_NAME, IgnoreRules, Scope, read_rules
from datasync.push.names import NamesOnDisk, names_of
from datasync.push.source import CHANGED, VANISHED, Directory, Skipped, SourceTree, Unreadable, reason
from datasync.push.xattrs import TooLarge, Xattrs, read_xattrs

__all__ = ["Found", "Skipped", "scan"]

_KIND = 0o170000
_IS_FILE = stat.S_IFREG
_IS_DIRECTORY = stat.S_IFDIR
_NOT_PUSHED = {
    stat.S_IFIFO: "a FIFO is not pushed",
    stat.S_IFSOCK: "a socket is not pushed",
    stat.S_IFBLK: "a device is not pushed",
    stat.S_IFCHR: "a device is not pushed",
}


class Found(msgspec.Struct, frozen=True, gc=False):
    """One entry as lstat told it. Times in nanoseconds, `size` in bytes (0 unless a file), `blocks` of 512 bytes."""

    path: bytes
    kind: int
    mode: int
    mtime: int
    ctime: int
    size: int
    inode: int
    device: int
    nlink: int
    blocks: int
    target: bytes = b""
    xattrs: Xattrs = ()


class _Level:
    """One directory of the walk: its names that are still to come, and what makes it itself."""

    __slots__ = ("identity", "names", "path", "prefix", "scope")

    def __init__(self, path: bytes, directory: Directory, names: Iterator[bytes], scope: Scope) -> None:
        self.path = path
        self.prefix = path + b"/" if path else b""
        self.identity = directory.identity
        self.names = names
        self.scope = scope


def scan(
    root: SourceTree,
    rules: IgnoreRules,
    skipped: Callable[[Skipped], None],
    *,
    xattrs: bool = False,
    one_file_system: bool = False,
) -> Iterator[Found]:
    """Yield all entries beneath *root* that *rules* keep, parents first, in the manifest's order.

    With *one_file_system* a directory of another file system is yielded, and not entered.
    """
    walk = _Walk(root, skipped, xattrs=xattrs, device=root.root_stat.st_dev if one_file_system else None)
    return walk.run(rules)


class _Walk:
    def __init__(
        self, tree: SourceTree, skipped: Callable[[Skipped], None], *, xattrs: bool, device: int | None
    ) -> None:
        self._tree = tree
        self._skipped = skipped
        self._with_xattrs = xattrs
        self._device = device

    def run(self, rules: IgnoreRules) -> Iterator[Found]:
        directory = self._tree.directory(b"")
        levels = [self._root(directory, rules)]
        while levels:
            level = levels[-1]
            try:  # `directory` lies beneath this level, or is it: its `..` is the short way back
                directory = self._tree.directory(level.path, level.identity, below=directory)
            except Unreadable as error:
                self._skipped(Skipped(level.path, error.skipped.reason))
                levels.pop()
                continue
            child = yield from self._entries(level, directory)
            if child is None:
                levels.pop()
            else:
                levels.append(child)

    def _root(self, directory: Directory, rules: IgnoreRules) -> _Level:
        try:
            return self._level(b"", directory, rules.top())
        except Unreadable as error:
            if error.skipped.reason == VANISHED:
                raise NotFound(
                    f"{self._tree.root}: the directory was removed; correct the path, or mount the disk it lies on"
                ) from error
            raise StorageUnavailable(f"{self._tree.root}: the directory {error.skipped.reason}") from error

    def _entries(self, level: _Level, directory: Directory) -> Generator[Found, None, _Level | None]:
        """Yield entries of *level* up to its next directory, which is returned as the level to go on with."""
        fd, prefix, with_xattrs = directory.fd, level.prefix, self._with_xattrs
        ignores = None if level.scope.empty else level.scope.ignores
        for name in level.names:
            path = prefix + name
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError as error:
                self._skipped(Skipped(path, reason(error)))
                continue
            kind = status.st_mode & _KIND
            if ignores is not None and ignores(path, kind == _IS_DIRECTORY):
                continue
            if kind == _IS_FILE and not with_xattrs:  # most entries by far: no further call
                yield _found(path, FILE, status, status.st_size)
            elif kind == _IS_DIRECTORY and (self._device is None or status.st_dev == self._device):
                child = self._enter(level, directory, name, status)
                if child is not None:
                    yield child[0]
                    return child[1]
            else:
                found = self._other(directory, name, path, status)
                if found is not None:
                    yield found
        return None

    def _enter(
        self, level: _Level, parent: Directory, name: bytes, status: os.stat_result
    ) -> tuple[Found, _Level] | None:
        """Open and list the directory *name*, unless it can not be read or is no longer what lstat saw."""
        path = level.prefix + name
        try:
            directory = self._tree.child(parent, path, name)
            if directory.identity != (status.st_dev, status.st_ino):
                raise Unreadable(path, CHANGED)
            child = self._level(path, directory, level.scope)
            return _found(path, DIRECTORY, directory.status, 0, xattrs=self._xattrs(directory.fd, path)), child
        except Unreadable as error:
            self._skipped(error.skipped)
            return None

    def _level(self, path: bytes, directory: Directory, scope: Scope) -> _Level:
        try:
            listed = names_of(directory.fd, directory.status.st_size)
        except OSError as error:
            raise Unreadable(path, reason(error)) from error
        if not listed and os.fstat(directory.fd).st_nlink == 0:  # removed: an empty listing, and no error
            raise Unreadable(path, VANISHED)
        if _holds_rules(directory, listed):
            scope = scope.within(path, read_rules(self._tree, path))
        return _Level(path, directory, self._fitting(path, listed), scope)

    def _fitting(self, path: bytes, names: list[bytes] | NamesOnDisk) -> Iterator[bytes]:
        """Return *names* without those that the format can not hold, each reported."""
        room = min(NAME_BYTES, PATH_BYTES - len(path) - 1)
        longest = names.longest if isinstance(names, NamesOnDisk) else max(map(len, names), default=0)
        return iter(names) if longest <= room else self._only_fitting(path, names, room)

    def _only_fitting(self, path: bytes, names: Iterable[bytes], room: int) -> Iterator[bytes]:
        why = f"the name is too long: at most {NAME_BYTES} bytes, and {PATH_BYTES} for the whole path"
        for name in names:
            if len(name) <= room:
                yield name
            else:
                self._skipped(Skipped(path + b"/" + name if path else name, why))

    def _other(self, parent: Directory, name: bytes, path: bytes, status: os.stat_result) -> Found | None:
        """Return the entry for what is neither a plain file nor a directory to enter, or report it."""
        kind = status.st_mode & _KIND
        try:
            if kind == _IS_FILE:
                return _found(path, FILE, status, status.st_size, xattrs=self._file_xattrs(path))
            if kind == _IS_DIRECTORY:
                return _found(path, DIRECTORY, status, 0)
            if kind == stat.S_IFLNK:
                return _found(path, SYMLINK, status, 0, target=os.readlink(name, dir_fd=parent.fd))
        except Unreadable as error:
            self._skipped(error.skipped)
        except OSError as error:
            self._skipped(Skipped(path, reason(error)))
        else:
            self._skipped(Skipped(path, _NOT_PUSHED.get(kind, "this kind of entry is not pushed")))
        return None

    def _file_xattrs(self, path: bytes) -> Xattrs:
        fd = self._tree.open_file(path)
        try:
            return self._xattrs(fd, path)
        finally:
            os.close(fd)

    def _xattrs(self, fd: int, path: bytes) -> Xattrs:
        if not self._with_xattrs:
            return ()
        try:
            return read_xattrs(fd)
        except TooLarge as error:
            self._skipped(Skipped(path, str(error)))
            return ()
        except OSError as error:
            raise Unreadable(path, reason(error)) from error


def _holds_rules(directory: Directory, names: list[bytes] | NamesOnDisk) -> bool:
    if isinstance(names, NamesOnDisk):
        try:
            os.stat(FILE_NAME, dir_fd=directory.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True
    position = bisect_left(names, FILE_NAME)
    return position < len(names) and names[position] == FILE_NAME


def _found(
    path: bytes, kind: int, status: os.stat_result, size: int, *, target: bytes = b"", xattrs: Xattrs = ()
) -> Found:
    return Found(
        path,
        kind,
        status.st_mode & 0o7777,
        status.st_mtime_ns,
        status.st_ctime_ns,
        size,
        status.st_ino,
        status.st_dev,
        status.st_nlink,
        status.st_blocks,
        target,
        xattrs,
    )
