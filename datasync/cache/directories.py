"""Open directory fds beneath one root: at most `DIRECTORY_FDS`, least recently used ones are closed first.

Thread-safe. A directory in use is never closed under its user, so that its number can not come to mean another file.
A path is checked, and resolved through real directories only, when it is opened; a hit costs no system call. Raises
`IntegrityError` for a path that leaves the root, is malformed or leads through a symbolic link, and what
`datasync.cache.faults.fault` says.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock

from datasync.cache.faults import fault, shown
from datasync.cache.kernel import DIRECTORY_FLAGS, has_openat2, open_directory_beneath
from datasync.errors import IntegrityError
from datasync.model.limits import NAME_BYTES, PATH_BYTES

DIRECTORY_FDS = 64  # with the root and the two that are open for a moment on a long way down
STEP_BYTES = 4_000  # of a path given to one openat2: PATH_MAX is 4,096

_FORBIDDEN = frozenset({b"", b".", b".."})


def check_length(path: bytes) -> None:
    """Refuse a path that is longer than a manifest may hold."""
    if len(path) > PATH_BYTES:
        raise IntegrityError(f"path {shown(path)}: expected at most {PATH_BYTES} bytes, found {len(path)}")


def check_name(name: bytes, path: bytes) -> None:
    """Refuse a component of *path* that is empty, `.`, `..`, too long or holds NUL."""
    if name in _FORBIDDEN:
        raise IntegrityError(f"path {shown(path)}: expected names without '.', '..' or emptiness, found {shown(name)}")
    if len(name) > NAME_BYTES:
        raise IntegrityError(f"path {shown(path)}: expected names of at most {NAME_BYTES} bytes, found {len(name)}")
    if b"\0" in name:
        raise IntegrityError(f"path {shown(path)}: found a NUL byte in a name")


def split_path(path: bytes) -> tuple[bytes, bytes]:
    """Return parent (not yet checked) and checked last name of *path*."""
    check_length(path)
    parent, slash, name = path.rpartition(b"/")
    if slash and not parent:
        raise IntegrityError(f"path {shown(path)}: expected a relative path, found an absolute one")
    check_name(name, path)
    return parent, name


class Directory:
    """One open directory; `with directory as fd` gives it back at the end."""

    __slots__ = ("_owner", "fd", "kept", "users")

    def __init__(self, owner: "Directories", fd: int) -> None:
        self._owner = owner
        self.fd = fd
        self.users = 0
        self.kept = True

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        self._owner.give_back(self)


class Directories:
    """The open directories of one tree."""

    def __init__(self, root_fd: int, *, openat2: bool | None = None) -> None:
        """Take over *root_fd*; openat2 is used where the kernel has it, unless *openat2* is False."""
        self._lock = Lock()
        self._root = Directory(self, root_fd)
        self._open: OrderedDict[bytes, Directory] = OrderedDict()
        self.in_steps = openat2 is not False and has_openat2(root_fd)

    @property
    def root_fd(self) -> int:
        """The fd of the root."""
        return self._root.fd

    def take(self, path: bytes) -> Directory:
        """Return the directory *path* (empty: the root), opened unless it is open; give it back by `with`."""
        with self._lock:
            if not path:
                directory = self._root
            elif (known := self._open.get(path)) is not None:
                directory = known
                self._open.move_to_end(path)
            else:
                directory = self._open_and_keep(path)
            directory.users += 1
            return directory

    def give_back(self, directory: Directory) -> None:
        """End one use of *directory*."""
        with self._lock:
            directory.users -= 1
            if not directory.kept and not directory.users:
                os.close(directory.fd)

    def drop(self, path: bytes) -> None:
        """Forget *path* and everything beneath it: the names mean something else from now on."""
        beneath = path + b"/"
        with self._lock:
            for known in [key for key in self._open if key == path or not path or key.startswith(beneath)]:
                self._let_go(self._open.pop(known))

    def close(self) -> None:
        """Close all; one that is in use is closed when it is given back."""
        self.drop(b"")
        with self._lock:
            if self._root.kept:
                self._let_go(self._root)

    @staticmethod
    def _let_go(directory: Directory) -> None:
        directory.kept = False
        if not directory.users:
            os.close(directory.fd)

    def _open_and_keep(self, path: bytes) -> Directory:
        check_length(path)
        names = path.split(b"/")
        for name in names:
            check_name(name, path)
        while len(self._open) >= DIRECTORY_FDS - 3 and self._evict_oldest_idle():
            pass
        above = self._open.get(path[: -len(names[-1]) - 1])  # a depth-first walk almost always finds it
        start, rest = (self._root, names) if above is None else (above, names[-1:])
        directory = Directory(self, self._descend(start.fd, rest, path))
        self._open[path] = directory
        return directory

    def _evict_oldest_idle(self) -> bool:
        for key, directory in self._open.items():
            if not directory.users:
                del self._open[key]
                self._let_go(directory)
                return True
        return False  # more threads than fds: the bound gives way, the work goes on

    def _descend(self, start_fd: int, names: list[bytes], path: bytes) -> int:
        step: Callable[[int, bytes], int] = open_directory_beneath if self.in_steps else _open_one
        fd = start_fd
        try:
            for piece in _pieces(names) if self.in_steps else names:
                below = step(fd, piece)
                if fd != start_fd:
                    os.close(fd)
                fd = below
        except OSError as error:
            if fd != start_fd:
                os.close(fd)
            raise fault(error, f"directory {shown(path)}") from error
        return fd


def _open_one(dir_fd: int, name: bytes) -> int:
    return os.open(name, DIRECTORY_FLAGS, dir_fd=dir_fd)


def _pieces(names: list[bytes]) -> Iterator[bytes]:
    """Yield relative paths of whole names, each short enough for one system call."""
    piece: list[bytes] = []
    length = 0
    for name in names:
        if piece and length + len(name) + 1 > STEP_BYTES:
            yield b"/".join(piece)
            piece, length = [], 0
        piece.append(name)
        length += len(name) + 1
    yield b"/".join(piece)
