"""LocalStore: objects as files beneath one directory, on any POSIX file system with hard links.

Write order of `put_if_absent`: bytes into a hidden temporary file beneath the root, fsync, link() to the final name,
fsync of the directory. link() refuses a taken name, so creation is atomic and put-if-absent, between hosts too where
the file system is shared. A temporary name holds a `~`, which no object name does: it is never listed. What a
crash leaves of them is removed a day later.
"""

import errno
import os
import stat as modes
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import nsmallest
from pathlib import Path

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    IntegrityError,
    NoSpace,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
)
from datasync.storage.names import check_directory, check_name, check_prefix, is_name
from datasync.storage.protocol import Created, ObjectStat

TEMPORARY_DIRECTORY = ".~tmp"
LEFTOVER_SECONDS = 24 * 3600  # no single put takes this long

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


class LocalStore:
    """An `ObjectStore` in the directory *root*, which the first put makes."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(root))
        self._settled: set[Path] = set()
        self.url = self._root.as_uri()

    def get(self, name: str, *, limit: int) -> bytes:
        with self._open(name) as fd:
            size = os.fstat(fd).st_size
            if size > limit:
                raise IntegrityError(f"{self.url}: {name} has {size} bytes, expected at most {limit}")
            data = bytearray(size)
            self._fill(fd, name, 0, memoryview(data))
        return bytes(data)

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        with self._open(name) as fd:
            size = os.fstat(fd).st_size
            if offset + buffer.nbytes > size:
                raise IntegrityError(
                    f"{self.url}: {name} ends at {size}, expected {offset + buffer.nbytes} bytes or more"
                )
            self._fill(fd, name, offset, buffer.cast("B"))

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        target = self._path(name)
        with self._translated(name, "write"):
            self._settle(target.parent)
            if target.exists():
                raise self._taken(name, target)
            temporary = self._write_temporary(memoryview(data).cast("B"))
            try:
                os.link(temporary, target)
            except FileExistsError:
                raise self._taken(name, target) from None
            except FileNotFoundError:
                self._settled.clear()  # someone removed the directory: the next try makes it again
                raise
            finally:
                temporary.unlink(missing_ok=True)
            _sync_directory(target.parent)  # the name must survive power loss too
        return Created()

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        directory = check_prefix(prefix).rpartition("/")[0]
        with self._translated(prefix, "list"):
            found = self._walk(f"{directory}/" if directory else "", prefix, after, limit)
            for count, item in enumerate(found, 1):
                if limit is not None and count > limit:
                    return
                yield item
                if count == limit:
                    return

    def list_directories(self, prefix: str) -> Iterator[str]:
        check_directory(prefix)
        with self._translated(prefix, "list"):
            for key in self._batch(prefix, prefix, "", None):
                if key.endswith("/") and next(self._walk(key, key, "", 1), None):
                    yield key[len(prefix) : -1]

    def stat(self, name: str) -> ObjectStat:
        with self._open(name) as fd:
            found = os.fstat(fd)
        return ObjectStat(name, found.st_size, found.st_mtime)

    def delete(self, name: str) -> None:
        with self._translated(name, "delete"), suppress(FileNotFoundError, NotADirectoryError):
            target = self._path(name)
            if not target.is_dir():
                target.unlink()

    def close(self) -> None:
        """Nothing is kept open."""

    # Reading

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        with self._translated(name, "read"):
            fd = os.open(self._path(name), os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not block us
            try:
                if not modes.S_ISREG(os.fstat(fd).st_mode):
                    raise NotFound(f"{self.url}: no object {name}")
                yield fd
            finally:
                os.close(fd)

    def _fill(self, fd: int, name: str, offset: int, view: memoryview) -> None:
        done = 0
        while done < len(view):
            count = os.preadv(fd, [view[done:]], offset + done)
            if not count:
                raise StorageUnavailable(f"{self.url}: {name} was cut off at {offset + done} while it was read")
            done += count

    # Writing

    def _settle(self, directory: Path) -> None:
        """Make *directory* and flush its name and those of its parents, once for each."""
        if directory in self._settled:
            return
        if directory != self._root:
            self._settle(directory.parent)
            directory.mkdir(exist_ok=True)
            _sync_directory(directory.parent)  # even if another process made it: it may not have flushed yet
        elif not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            _sync_directory(directory.parent)
        self._settled.add(directory)

    def _write_temporary(self, view: memoryview) -> Path:
        """Return a flushed file of its own that holds *view*."""
        directory = self._root / TEMPORARY_DIRECTORY
        if directory not in self._settled:
            self._settle(directory)
            _remove_leftovers(directory)
        path = directory / os.urandom(16).hex()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)  # read-only: objects never change
        try:
            _write_all(fd, view)
            os.fsync(fd)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        return path

    def _taken(self, name: str, target: Path) -> AlreadyExists:
        _sync_directory(target.parent)  # who finds its own bytes there may rely on them from now on
        return AlreadyExists(f"{self.url}: {name} exists")

    # Listing

    def _walk(self, directory: str, prefix: str, after: str, limit: int | None) -> Iterator[ObjectStat]:
        """Yield objects beneath *directory* in byte order of full names.

        With a *limit* no more than that many entries of a directory are kept in memory. The order is right because a
        directory sorts as its name with the `/` that all names beneath it have.
        """
        batch = self._batch(directory, prefix, after, limit)
        while batch:
            for key in batch:
                if key.endswith("/"):
                    yield from self._walk(key, prefix, after, limit)
                elif (found := self._listed(key)) is not None:
                    yield found
            last = batch[-1]
            batch = () if limit is None else self._batch(directory, prefix, after, limit, beyond=last)

    def _batch(self, directory: str, prefix: str, after: str, limit: int | None, beyond: str = "") -> Sequence[str]:
        """Return the next entries of *directory* that may lead to wanted names; directories end with `/`."""
        try:
            with os.scandir(self._root / directory) as entries:
                keys = (directory + entry.name + ("/" if entry.is_dir() else "") for entry in entries)
                wanted = (key for key in keys if key > beyond and _may_lead(key, prefix, after))
                return sorted(wanted) if limit is None else nsmallest(max(limit, 1), wanted)
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def _listed(self, name: str) -> ObjectStat | None:
        try:
            found = os.stat(self._root / name)
        except FileNotFoundError:
            return None  # deleted since
        return ObjectStat(name, found.st_size, found.st_mtime) if modes.S_ISREG(found.st_mode) else None

    @contextmanager
    def _translated(self, name: str, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._translate(error, name, verb) from error

    def _translate(self, error: OSError, name: str, verb: str) -> DatasyncError:
        what = f"{self.url}: can not {verb} {name or 'the directory'}: {error.strerror or type(error).__name__}"
        if error.errno in _NO_SPACE:
            return NoSpace(f"{what}; make room, then run the same line again")
        if error.errno in _NOT_ALLOWED:
            return NotAuthorized(f"{what}; the user needs write access here, on a file system that has hard links")
        if error.errno in _NOT_THERE and verb == "read":
            return NotFound(f"{self.url}: no object {name}")
        return StorageUnavailable(f"{what}; look at the disk or mount, then run the same line again")


def _may_lead(key: str, prefix: str, after: str) -> bool:
    if not is_name(key.removesuffix("/")):
        return False  # temporary, or not ours
    if key.endswith("/"):
        return (key.startswith(prefix) or prefix.startswith(key)) and (key > after or after.startswith(key))
    return key.startswith(prefix) and key > after


def _write_all(fd: int, view: memoryview) -> None:
    while view:
        view = view[os.write(fd, view) :]


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems have no such operation on directories
            raise
    finally:
        os.close(fd)


def _remove_leftovers(directory: Path) -> None:
    """Remove temporary files that a crash left a day ago or earlier."""
    oldest = time.time() - LEFTOVER_SECONDS
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another process removes them too
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)
