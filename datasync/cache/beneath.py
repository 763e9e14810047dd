"""A directory under which names from an untrusted manifest are placed, and never outside it.

Paths are bytes, relative, joined by `/`, at most 65,535 bytes; absolute ones, empty, `.` and `..` components, NUL and
names over 255 bytes are refused with `IntegrityError`, as is every way through a symbolic link. A parent is opened
beneath the root's fd (openat2 with RESOLVE_BENEATH and NO_SYMLINKS, else component by component with O_NOFOLLOW) and
kept in a small cache, so each call then is one system call on the last name, which is never followed.

Thread-safe. Set-user-id and set-group-id bits are never set. The fd that `create` returns is the cheap way to mode and
mtime (`os.fchmod`, `os.utime`). Whoever runs as the same user, or as root, may still rename directories under our feet.

Raises `IntegrityError`, `NotFound`, `NoSpace`, `NotAuthorized`, and `DatasyncError` for a broken disk.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from datasync.cache.directories import Directories, Directory, split_path
from datasync.cache.faults import fault, shown
from datasync.cache.kernel import DIRECTORY_FLAGS, sync_filesystem
from datasync.cache.removal import empty_directory, open_workable
from datasync.errors import IntegrityError, NotFound

MODE_MASK = 0o1777  # set-user-id and set-group-id never come out of a manifest
XATTR_PREFIX = b"user."  # other namespaces hold capabilities, labels and access lists of this machine

_CREATE_FLAGS = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC
_OPEN_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO put in the way must not block us
# Not an error of the tree: this file system, or this inode, takes no (further) hard link, and a copy does.
_NO_LINK = frozenset({errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_NO_XATTR = frozenset({errno.EOPNOTSUPP, errno.EPERM, errno.ERANGE, errno.E2BIG})


class Tree:
    """One root directory and everything beneath it."""

    def __init__(self, root_fd: int, *, openat2: bool | None = None) -> None:
        """Take over the open directory *root_fd*; *openat2* False forces the walk by component."""
        self._openat2 = openat2
        self._directories = Directories(root_fd, openat2=openat2)

    @classmethod
    def open(cls, path: Path, *, openat2: bool | None = None) -> Self:
        """Open the existing directory *path*, which the user chose: links on the way to it are followed."""
        try:
            root_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise fault(error, f"directory {path}") from error
        return cls(root_fd, openat2=openat2)

    def subtree(self, path: bytes) -> "Tree":
        """Return a tree of its own, rooted at the directory *path* beneath this one."""
        with self._directories.take(path) as fd:
            return Tree(os.dup(fd), openat2=self._openat2)

    @property
    def uses_openat2(self) -> bool:
        """Tell which of the two ways is taken."""
        return self._directories.in_steps

    @property
    def root_fd(self) -> int:
        """The root's fd, for calls on the root itself; valid until `close`."""
        return self._directories.root_fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every fd; twice is fine."""
        self._directories.close()

    def locate(self, path: bytes) -> tuple[Directory, bytes]:
        """Return the parent directory of *path*, for a `with`, and the last name; `NotFound` without a parent."""
        parent, name = split_path(path)
        return self._directories.take(parent), name

    def make_directory(self, path: bytes, mode: int = 0o700, *, fresh: bool = False) -> None:
        """Make a directory; one that is there already is fine unless *fresh* says that it can not be."""
        directory, name = self._place(path)
        with directory as fd:
            try:
                os.mkdir(name, mode & MODE_MASK, dir_fd=fd)
            except FileExistsError as error:
                if fresh or not stat.S_ISDIR(_status(fd, name, path).st_mode):
                    raise fault(error, f"make directory {shown(path)}") from error
            except OSError as error:
                raise fault(error, f"make directory {shown(path)}") from error

    def create(self, path: bytes, mode: int = 0o600) -> int:
        """Create a file that must not exist, and return its fd, open for writing."""
        directory, name = self._place(path)
        with directory as fd:
            try:
                return os.open(name, _CREATE_FLAGS, mode & MODE_MASK, dir_fd=fd)
            except OSError as error:
                raise fault(error, f"create {shown(path)}") from error

    def open_file(self, path: bytes, flags: int = os.O_RDONLY) -> int:
        """Open an existing regular file and return its fd; O_CREAT in *flags* has no effect."""
        directory, name = self.locate(path)
        with directory as fd:
            try:
                file_fd = os.open(name, flags & ~os.O_CREAT | _OPEN_FLAGS, dir_fd=fd)
            except OSError as error:
                raise fault(error, f"open {shown(path)}") from error
        if not stat.S_ISREG(os.fstat(file_fd).st_mode):
            os.close(file_fd)
            raise IntegrityError(f"open {shown(path)}: expected a regular file, found something else")
        return file_fd

    def symlink(self, path: bytes, target: bytes) -> None:
        """Make a symbolic link; *target* is never looked at."""
        if not target or b"\0" in target:
            raise IntegrityError(f"symbolic link {shown(path)}: its target is empty or holds NUL")
        directory, name = self._place(path)
        with directory as fd:
            try:
                os.symlink(target, name, dir_fd=fd)
            except OSError as error:
                raise fault(error, f"make symbolic link {shown(path)}") from error

    def link(self, source_dir_fd: int, source_name: bytes, path: bytes) -> bool:
        """Hard-link a file as *path*; False when no (further) link can be made and a copy is needed.

        Raises `NotFound` when the source is not there. A source that is a symbolic link is linked itself.
        """
        directory, name = self._place(path)
        with directory as fd:
            try:
                os.link(source_name, name, src_dir_fd=source_dir_fd, dst_dir_fd=fd, follow_symlinks=False)
            except OSError as error:
                if error.errno in _NO_LINK:
                    return False
                raise fault(error, f"link {shown(path)}") from error
        return True

    def link_within(self, existing: bytes, path: bytes) -> bool:
        """Hard-link *existing*, a file of this tree, as *path*; the result is as for `link`."""
        directory, name = self.locate(existing)
        with directory as fd:
            return self.link(fd, name, path)

    def rename(self, old: bytes, new: bytes) -> None:
        """Rename within the tree; a file or an empty directory at *new* is replaced atomically."""
        from_directory, old_name = self.locate(old)
        with from_directory as from_fd:
            to_directory, new_name = self._place(new)
            with to_directory as to_fd:
                try:
                    os.rename(old_name, new_name, src_dir_fd=from_fd, dst_dir_fd=to_fd)
                except OSError as error:
                    raise fault(error, f"rename {shown(old)} to {shown(new)}") from error
        self._directories.drop(old)
        self._directories.drop(new)

    def lstat(self, path: bytes) -> os.stat_result | None:
        """Return what is at *path*, never following it; None when nothing is."""
        try:
            directory, name = self.locate(path)
            with directory as fd:
                return _status(fd, name, path)
        except NotFound:
            return None

    def set_mode(self, path: bytes, mode: int) -> None:
        """Set the permission bits of a file or directory (empty *path*: the root)."""
        fd = self._open_any(path)
        try:
            os.fchmod(fd, mode & MODE_MASK)
        except OSError as error:
            raise fault(error, f"set the mode of {shown(path)}") from error
        finally:
            os.close(fd)

    def set_mtime(self, path: bytes, mtime_ns: int) -> None:
        """Set the modification time of anything, a symbolic link included (empty *path*: the root)."""
        try:
            if not path:
                os.utime(self.root_fd, ns=(mtime_ns, mtime_ns))
                return
            directory, name = self.locate(path)
            with directory as fd:
                os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            raise fault(error, f"set the time of {shown(path)}") from error

    def finish_directory(self, path: bytes, mode: int, mtime_ns: int) -> None:
        """Set the permission bits and the modification time of a directory that nothing is placed in any more."""
        directory, name = self.locate(path)
        with directory as parent:
            try:
                fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
                try:
                    os.fchmod(fd, mode & MODE_MASK)
                    os.utime(fd, ns=(mtime_ns, mtime_ns))
                finally:
                    os.close(fd)
            except OSError as error:
                raise fault(error, f"set mode and time of {shown(path)}") from error

    def set_xattrs(self, path: bytes, xattrs: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Set extended attributes (empty *path*: the root) and return the names that could not be set here."""
        fd = self._open_any(path)
        try:
            return set_xattrs(fd, xattrs)
        except OSError as error:
            raise fault(error, f"set an extended attribute of {shown(path)}") from error
        finally:
            os.close(fd)

    def remove(self, path: bytes) -> None:
        """Remove a file, link or empty directory; nothing there is no error."""
        try:
            directory, name = self.locate(path)
        except NotFound:
            return
        with directory as fd:
            try:
                _remove_one(fd, name)
            except FileNotFoundError:
                return
            except OSError as error:
                raise fault(error, f"remove {shown(path)}") from error
        self._directories.drop(path)

    def remove_tree(self, path: bytes = b"") -> None:
        """Remove *path* and everything beneath it; an empty *path* empties the root. Nothing there is no error."""
        if not path:
            self._directories.drop(b"")
            self._empty(self.root_fd, path)
            return
        status = self.lstat(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._directories.drop(path)
            directory, name = self.locate(path)
            with directory as parent_fd:
                fd = _open_to_empty(parent_fd, name, path)
            try:
                self._empty(fd, path)
            finally:
                os.close(fd)
        self.remove(path)

    def fsync_directory(self, path: bytes = b"") -> None:
        """Make the names in a directory survive a power loss."""
        with self._directories.take(path) as fd:
            try:
                os.fsync(fd)
            except OSError as error:
                raise fault(error, f"flush directory {shown(path)}") from error

    def sync(self) -> None:
        """Write the whole file system that holds the root to the disk."""
        try:
            sync_filesystem(self.root_fd)
        except OSError as error:
            raise fault(error, "flush the file system") from error

    def _place(self, path: bytes) -> tuple[Directory, bytes]:
        """Like `locate`, for a name to be made: a parent that is missing contradicts the manifest."""
        try:
            return self.locate(path)
        except NotFound as error:
            raise IntegrityError(f"place {shown(path)}: expected its parent directory, found none") from error

    def _open_any(self, path: bytes) -> int:
        """Open a regular file or a directory for reading its inode."""
        if not path:
            return os.dup(self.root_fd)
        directory, name = self.locate(path)
        with directory as fd:
            try:
                found = os.open(name, os.O_RDONLY | _OPEN_FLAGS, dir_fd=fd)
            except OSError as error:
                raise fault(error, f"open {shown(path)}") from error
        mode = os.fstat(found).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            os.close(found)
            raise IntegrityError(f"open {shown(path)}: expected a file or a directory, found something else")
        return found

    @staticmethod
    def _empty(fd: int, path: bytes) -> None:
        try:
            empty_directory(fd)
        except OSError as error:
            raise fault(error, f"remove what is beneath {shown(path)}") from error


def set_xattrs(fd: int, xattrs: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Set `user.` attributes on the open file *fd*; return the names of those that this file system or rule refuses."""
    refused = []
    for name, value in xattrs:
        if not name.startswith(XATTR_PREFIX) or b"\0" in name:
            refused.append(name)
            continue
        try:
            os.setxattr(fd, name, value)
        except OSError as error:
            if error.errno not in _NO_XATTR and not _is_too_large(error, fd):
                raise
            refused.append(name)
    return refused


def _is_too_large(error: OSError, fd: int) -> bool:
    """Tell an attribute that ext4 has no room for in an inode (ENOSPC, too) from a full disk."""
    return error.errno == errno.ENOSPC and os.fstatvfs(fd).f_bavail > 0


def _status(dir_fd: int, name: bytes, path: bytes) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        raise fault(error, f"look at {shown(path)}") from error


def _remove_one(dir_fd: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=dir_fd)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=dir_fd)


def _open_to_empty(parent_fd: int, name: bytes, path: bytes) -> int:
    try:
        return open_workable(parent_fd, name)
    except OSError as error:
        raise fault(error, f"open {shown(path)} to remove it") from error
