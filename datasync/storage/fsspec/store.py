"""FilesystemStore: objects as files in a directory of any file system that fsspec opens.

A put writes a temporary file beneath the root and renames it; where the file system has no rename of its own (then it
is an object store) it writes in place. SFTP's and WebDAV's renames refuse a taken name; elsewhere a put replaces, so
such a store is for one writer at a time, which `probe` finds out and `init` says (docs/adr/0008). A temporary name
holds a `~`, which no object name does. Nothing is retried here, but a connection that failed is not used again.
"""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from fsspec import AbstractFileSystem

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    IntegrityError,
    NoSpace,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
    UsageError,
)
from datasync.storage.fsspec.filesystem import Opener
from datasync.storage.location import StoreUrl
from datasync.storage.names import check_directory, check_name, check_prefix, is_name
from datasync.storage.protocol import Created, ObjectStat

TEMPORARY_DIRECTORY = ".~tmp"

_TIMES = ("mtime", "modified", "last_modified", "LastModified", "updated", "created")
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


class FilesystemStore:
    """An `ObjectStore` in one directory, which the first put makes."""

    def __init__(self, where: StoreUrl, open_fresh: Opener) -> None:
        self.url = str(where)
        self._root = f"/{where.prefix}"
        self._open_fresh = open_fresh
        self._mine = threading.local()
        self._opened: list[AbstractFileSystem] = []
        self._lock = threading.Lock()
        self._made: set[str] = set()

    def get(self, name: str, *, limit: int) -> bytes:
        with self._using(name, "read") as fs:
            size = self._file(fs, name).size
            if size > limit:
                raise IntegrityError(f"{self.url}: {name} has {size} bytes, expected at most {limit}")
            data = bytes(fs.cat_file(self._path(name)))
        if len(data) != size:
            raise StorageUnavailable(f"{self.url}: {name}: {len(data)} bytes of {size} came; try again")
        return data

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        view = buffer.cast("B")
        with self._using(name, "read") as fs:
            size = self._file(fs, name).size
            if offset + len(view) > size:
                raise IntegrityError(f"{self.url}: {name} ends at {size}, expected {offset + len(view)} bytes or more")
            data = fs.cat_file(self._path(name), start=offset, end=offset + len(view)) if view else b""
        if len(data) != len(view):
            raise StorageUnavailable(f"{self.url}: {name}: {len(data)} bytes of {len(view)} came; try again")
        view[:] = data

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        target = self._path(name)
        with self._using(name, "write") as fs:
            if hasattr(fs, "rename_new") and fs.exists(target):
                raise AlreadyExists(f"{self.url}: {name} exists")  # told before 32 MiB are sent; the rename decides
            self._make(fs, target.rpartition("/")[0])
            if not _renames(fs):
                fs.pipe_file(target, bytes(data))
                return Created()
            self._make(fs, f"{self._root}/{TEMPORARY_DIRECTORY}")
            temporary = f"{self._root}/{TEMPORARY_DIRECTORY}/{os.urandom(16).hex()}"
            try:
                fs.pipe_file(temporary, bytes(data))
                self._rename(fs, name, temporary, target)
            finally:
                with suppress(FileNotFoundError, OSError):  # renamed, or the connection is gone and a later one cleans
                    fs.rm_file(temporary)
        return Created()

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        directory = check_prefix(prefix).rpartition("/")[0]
        if limit == 0:
            return
        found = self._walk(f"{directory}/" if directory else "", prefix, after, limit)
        for count, item in enumerate(found, 1):
            yield item
            if count == limit:
                return

    def list_directories(self, prefix: str) -> Iterator[str]:
        check_directory(prefix)
        for key, _ in self._entries(prefix, prefix, "", None):
            if key.endswith("/") and next(self._walk(key, key, "", 1), None):
                yield key[len(prefix) : -1]

    def stat(self, name: str) -> ObjectStat:
        with self._using(name, "read") as fs:
            return self._file(fs, name)

    def delete(self, name: str) -> None:
        with self._using(name, "delete") as fs, suppress(FileNotFoundError):
            fs.rm_file(self._path(name))

    def close(self) -> None:
        with self._lock:
            for fs in self._opened:
                if hasattr(fs, "close"):
                    fs.close()
            self._opened.clear()

    # Files

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def _file(self, fs: AbstractFileSystem, name: str) -> ObjectStat:
        info = fs.info(self._path(name))
        if info["type"] != "file":
            raise NotFound(f"{self.url}: no object {name}")
        return _stat(name, info)

    def _make(self, fs: AbstractFileSystem, directory: str) -> None:
        """Make *directory* and its parents, each once; another process or thread may make them at the same time."""
        if directory in self._made or not directory:
            return
        if not fs.isdir(directory):
            self._make(fs, directory.rpartition("/")[0])
            try:
                fs.mkdir(directory, create_parents=False)
            except OSError:
                if not fs.isdir(directory):
                    raise
        self._made.add(directory)

    def _rename(self, fs: AbstractFileSystem, name: str, source: str, target: str) -> None:
        """Give *source* its name; where the file system refuses a taken one, that is told."""
        try:
            getattr(fs, "rename_new", fs.mv)(source, target)
        except Exception as error:
            if fs.exists(target):  # file systems have errors of their own for this, or none
                raise AlreadyExists(f"{self.url}: {name} exists") from error
            self._made.clear()  # someone removed the directory: the next try makes it again
            raise

    # Listing

    def _walk(self, directory: str, prefix: str, after: str, limit: int | None) -> Iterator[ObjectStat]:
        """Yield objects beneath *directory* in byte order of full names: a directory sorts as its name with a `/`."""
        for key, info in self._entries(directory, prefix, after, limit):
            if key.endswith("/"):
                yield from self._walk(key, prefix, after, limit)
            else:
                yield _stat(key, info)

    def _entries(self, directory: str, prefix: str, after: str, limit: int | None) -> Sequence[tuple[str, Any]]:
        """Return the entries of *directory* that may lead to wanted names, in order."""
        path = f"{self._root}/{directory}".rstrip("/")
        with self._using(directory, "list") as fs:
            try:
                listed = fs.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return ()
        found = []
        for info in listed:
            key = directory + info["name"].rstrip("/").rpartition("/")[2] + ("/" if info["type"] == "directory" else "")
            if info["type"] in ("file", "directory") and _may_lead(key, prefix, after):
                found.append((key, info))
        found.sort(key=_key)
        return found

    # Connections

    @contextmanager
    def _using(self, name: str, verb: str) -> Iterator[AbstractFileSystem]:
        """Yield this thread's file system; what it raises becomes one of our errors."""
        try:
            yield self._connected()
        except DatasyncError:
            raise
        except Exception as error:  # a plug-in of another project may raise anything
            if not isinstance(error, FileNotFoundError):
                self._mine.fs = None  # after a failure a connection may be out of step
            raise self._translate(error, name, verb) from error

    def _connected(self) -> AbstractFileSystem:
        found = getattr(self._mine, "fs", None)
        if found is None:
            found = self._mine.fs = self._open_fresh()
            with self._lock:
                self._opened.append(found)
        found.invalidate_cache()  # another writer may have been there since
        return found

    def _translate(self, error: Exception, name: str, verb: str) -> DatasyncError:
        kind = type(error).__name__
        what = f"{self.url}: can not {verb} {name or 'the directory'} ({kind})"
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, TypeError):
            return UsageError(
                f"{what}: the file system refuses its options; check fsspec's configuration and variables"
            )
        if isinstance(error, FileNotFoundError | NotADirectoryError) and verb == "read":
            return NotFound(f"{self.url}: no object {name}")
        if isinstance(error, FileExistsError) and verb == "write":
            return AlreadyExists(f"{self.url}: {name} exists")
        if number in _NO_SPACE:
            return NoSpace(f"{what}; make room, then run the same line again")
        if isinstance(error, PermissionError) or number in _NOT_ALLOWED or "Authentic" in kind or _denied(error):
            return NotAuthorized(f"{what}; check the user, its key and its rights on that directory")
        if "not found in known_hosts" in str(error) or kind == "BadHostKeyException":
            return NotAuthorized(
                f"{what}; the host's key is not the one in known_hosts: check it and add it (ssh-keyscan)"
            )
        return StorageUnavailable(f"{what}; look at the connection, then run the same line again")


def _denied(error: Exception) -> bool:
    """Tell whether a file system that speaks HTTP was refused; its errors carry an answer or a status."""
    found = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return found in (401, 403)


def _renames(fs: AbstractFileSystem) -> bool:
    """Tell whether moving is an operation of the file system, rather than a copy and a delete."""
    return any(
        getattr(type(fs), name, None) is not getattr(AbstractFileSystem, name, None) for name in ("mv", "mv_file")
    )


def _stat(name: str, info: Any) -> ObjectStat:
    told = next((info[key] for key in _TIMES if info.get(key) is not None), 0.0)
    modified = told.timestamp() if isinstance(told, datetime) else float(told)
    return ObjectStat(name, int(info["size"]), modified)


def _may_lead(key: str, prefix: str, after: str) -> bool:
    if not is_name(key.removesuffix("/")):
        return False  # temporary, or not ours
    if key.endswith("/"):
        return (key.startswith(prefix) or prefix.startswith(key)) and (key > after or after.startswith(key))
    return key.startswith(prefix) and key > after


def _key(entry: tuple[str, Any]) -> str:
    return entry[0]
