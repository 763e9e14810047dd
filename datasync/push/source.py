"""The directory that is pushed, reached by directory fds only: a name is never resolved through a symbolic link.

Every path is bytes, relative to the root, components joined by `/`; `b""` is the root. A directory is opened one
component at a time beneath the fd of its parent, or several at once by openat2 with RESOLVE_NO_SYMLINKS, so a path of
any length works and a swapped component can not lead elsewhere. At most `DIRECTORY_FDS` directory fds are open at a
time, shared by the walk and by everyone who opens files. An open directory is closed when its last user lets go of it,
so an eviction never closes an fd that another thread uses.

All methods are thread-safe. An entry that can not be read raises `Unreadable`, which carries the `Skipped` to report;
a root that can not be opened raises `NotFound`, `UsageError`, `NotAuthorized` or `StorageUnavailable`; a machine
without free file descriptors or memory raises `StorageUnavailable`.
"""

import errno
import os
import stat
import threading
import weakref
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from datasync.errors import DatasyncError, NotAuthorized, NotFound, PartialFailure, StorageUnavailable, UsageError

DIRECTORY_FDS = 64  # open directories of one tree, all told
_KEPT = 48  # of them remembered for the next use; the others are in use by threads while evicted
LONG_WAY = 3  # directories to go down; a shorter way goes by component
STEP_BYTES = 4_000  # of a path given to one system call: PATH_MAX is 4,096

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BENEATH = _DIRECTORY | os.O_NOFOLLOW
_CONTENT = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO put in place of a file does not block
_NO_ATIME = getattr(os, "O_NOATIME", 0)

CHANGED = "changed while being read"
VANISHED = "vanished while being read"


class Skipped(NamedTuple):
    """An entry that is not in the snapshot, and why; one of them makes the exit code 3."""

    path: bytes
    reason: str


class Unreadable(PartialFailure):
    """One entry can not be read; the push goes on without it."""

    def __init__(self, path: bytes, reason: str) -> None:
        super().__init__(f"{shown(path)}: {reason}")
        self.skipped = Skipped(path, reason)


class Identity(NamedTuple):
    """What stays the same while a directory is itself, whatever its name."""

    device: int
    inode: int


class Directory:
    """One open directory; the fd closes when the last holder lets go."""

    __slots__ = ("__weakref__", "fd", "identity", "status")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.status = os.fstat(fd)
        self.identity = Identity(self.status.st_dev, self.status.st_ino)

    def __del__(self) -> None:
        os.close(self.fd)


class _Last(threading.local):
    """The directory that this thread opened a file in last; weak, so that an idle thread holds no fd."""

    def __init__(self) -> None:
        self.path = b""
        self.directory: weakref.ref[Directory] | None = None


def shown(path: bytes) -> str:
    """Return *path* for a message: UTF-8 where it is, everything that could upset a terminal escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def reason(error: OSError) -> str:
    """Return why an entry is skipped; raise `StorageUnavailable` when the machine is at its limit."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise StorageUnavailable(
            f"reading the source: {error.strerror}; raise `ulimit -n` or close programs, then run the same line again"
        ) from error
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return VANISHED
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EINVAL):
        return CHANGED
    return f"can not be read: {error.strerror}"


def _root_error(root: Path, error: OSError) -> DatasyncError:
    if error.errno == errno.ENOENT:
        return NotFound(f"{root}: no such directory; correct the path, or mount the disk it lies on")
    if error.errno == errno.ENOTDIR:
        return UsageError(
            f"{root}: expected a directory; name the one that holds it and choose with --exclude and --include"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotAuthorized(f"{root}: permission denied; run as a user who may read it")
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return UsageError(f"{root}: {error.strerror}; go nearer with `cd` and push `.`")
    return StorageUnavailable(f"{root}: {error.strerror}")


def _straight(above: Directory, path: bytes) -> Directory | None:
    """Open *path* beneath *above* by one system call that follows no symbolic link; None where that does not work, for
    whatever reason: going by component then tells it.
    """
    from datasync.cache.kernel import open_directory_beneath

    try:
        return Directory(open_directory_beneath(above.fd, path)) if len(path) <= STEP_BYTES else None
    except OSError:
        return None


class SourceTree:
    """An open root directory and the directories beneath it that are in use."""

    def __init__(self, root: Path, top: Directory) -> None:
        self.root = root
        self._top = top
        self._kept: OrderedDict[bytes, Directory] = OrderedDict()
        self._lock = threading.Lock()
        self._last = _Last()
        self._content = _CONTENT | _NO_ATIME

    @classmethod
    def open(cls, root: Path) -> Self:
        """Open *root*, following symbolic links in its own path since the user has named them."""
        try:
            return cls(root, Directory(os.open(root, _DIRECTORY)))
        except OSError as error:
            raise _root_error(root, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every remembered directory; the root closes with the tree itself."""
        with self._lock:
            self._kept.clear()

    @property
    def root_stat(self) -> os.stat_result:
        """The root's status when it was opened."""
        return self._top.status

    def identity(self) -> tuple[str, int]:
        """Return the root's file system and inode, to notice that another disk, or none, is mounted there.

        The file system's own id is taken where it has one, since device numbers change between boots.
        """
        number = os.statvfs(self._top.fd).f_fsid
        device = self.root_stat.st_dev
        name = f"fsid:{number:016x}" if number else f"dev:{os.major(device)}:{os.minor(device)}"
        return name, self.root_stat.st_ino

    def directory(self, path: bytes, identity: Identity | None = None, below: Directory | None = None) -> Directory:
        """Return the open directory *path*; with *identity*, exactly that one or `Unreadable`.

        *below* is an open directory in it, or it: its `..` saves the way down from the root, and counts only
        if the identity holds.
        """
        found = self._remembered(path)
        if found is None and below is not None:
            found = below if below.identity == identity else self._above(path, identity, below)
        found = found or self._descend(path)
        if identity is not None and found.identity != identity:
            raise Unreadable(path, CHANGED)
        return found

    def child(self, parent: Directory, path: bytes, name: bytes) -> Directory:
        """Open the directory *name* of *parent*, remembered as *path*."""
        try:
            opened = Directory(os.open(name, _BENEATH, dir_fd=parent.fd))
        except OSError as error:
            raise Unreadable(path, reason(error)) from error
        self._remember(path, opened)
        return opened

    def open_file(self, path: bytes) -> int:
        """Return a new fd of the regular file *path*, which the caller closes."""
        return self.open_regular(path)[0]

    def open_regular(self, path: bytes) -> tuple[int, os.stat_result]:
        """Return a new fd of the regular file *path*, which the caller closes, and its status, which it compares.

        Raises `Unreadable` also when something else than a regular file is there by now.
        """
        parent, _, name = path.rpartition(b"/")
        try:
            directory = self._parent(parent)
        except Unreadable as error:  # names the component; the caller asked for the file
            raise Unreadable(path, error.skipped.reason) from error
        fd = self._open_content(directory, name, path)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise Unreadable(path, CHANGED)
        return fd, status

    def _open_content(self, parent: Directory, name: bytes, path: bytes) -> int:
        flags = self._content
        try:
            return os.open(name, flags, dir_fd=parent.fd)
        except OSError as error:
            if error.errno == errno.EPERM and flags & _NO_ATIME:  # only a file's owner may ask for it: ask no more
                self._content = _CONTENT
                return self._open_content(parent, name, path)
            raise Unreadable(path, reason(error)) from error

    def _parent(self, path: bytes) -> Directory:
        last = self._last
        directory = last.directory() if last.directory is not None and last.path == path else None
        if directory is None:
            directory = self.directory(path)
            last.path, last.directory = path, weakref.ref(directory)
        return directory

    def _remembered(self, path: bytes) -> Directory | None:
        if not path:
            return self._top
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
            return found

    def _remember(self, path: bytes, directory: Directory) -> None:
        with self._lock:
            self._kept[path] = directory
            self._kept.move_to_end(path)
            evicted = self._kept.popitem(last=False) if len(self._kept) > _KEPT else None
        del evicted  # closed here, outside the lock, unless a thread still uses it

    def _above(self, path: bytes, identity: Identity | None, below: Directory) -> Directory | None:
        try:
            found = Directory(os.open(b"..", _DIRECTORY, dir_fd=below.fd))
        except OSError as error:
            reason(error)  # raises when the machine is at its limit; any other trouble is met again on the way down
            return None
        if found.identity != identity:
            return None
        self._remember(path, found)
        return found

    def _descend(self, path: bytes) -> Directory:
        """Open *path* by component from its nearest remembered ancestor."""
        missing: list[bytes] = []
        at, found = path, None
        while found is None:
            at, _, name = at.rpartition(b"/")
            missing.append(name)
            found = self._remembered(at)
        if len(missing) >= LONG_WAY and (straight := _straight(found, b"/".join(reversed(missing)))) is not None:
            self._remember(path, straight)
            return straight
        for name in reversed(missing):
            at = at + b"/" + name if at else name
            found = self.child(found, at, name)
        return found
