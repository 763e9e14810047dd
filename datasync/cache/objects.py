"""Verified file contents, shared by all views of one cache directory: `objects/<2 hex>/<file id, hex>`.

An object is a regular file without write bits, with mode, mtime and `user.` attributes of its entry; the file id
covers them all. `publish` gives a finished, verified file of a staging view its name here; `adopt` places an object
in a staging view. Both share blocks by reflink where the file system has it (each view then has inodes of its own),
else by hard link; where no (further) link can be made, `adopt` copies and keeps holes. Nothing is flushed until
`flush`; what that means after a power loss is in `datasync.cache.dirty`. Thread-safe; any number of processes may use
one cache at once.

Raises what `datasync.cache.beneath` raises.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Self

from datasync.cache.beneath import XATTR_PREFIX, Tree, set_xattrs
from datasync.cache.dirty import Markers
from datasync.cache.faults import fault, shown
from datasync.cache.kernel import clone_file, current_boot_id, names_in, sync_filesystem
from datasync.cache.layout import OBJECTS, OBJECTS_MODE, Cache
from datasync.errors import IntegrityError, NotFound
from datasync.model.ids import FileId

READ_ONLY = 0o555  # the permission bits that a file or directory of a view may have
COPY_BYTES = 8 * 1024 * 1024  # asked of one sendfile
_HEX = frozenset("0123456789abcdef")


def read_only(mode: int) -> int:
    """Return *mode* as a view has it: without write, set-id and sticky bits."""
    return mode & READ_ONLY


class Objects:
    """The objects of one cache directory."""

    def __init__(self, fd: int, markers: Markers, *, reflinks: bool) -> None:
        """Use `Objects.open`."""
        self._fd = fd
        self._markers = markers
        self.reflinks = reflinks
        self.distrusted = 0
        self._empty: dict[bytes, bool] = {}

    @classmethod
    def open(cls, cache: Cache, *, boot_id: str | None = None) -> Self:
        """Open the objects of *cache*; first remove what a power loss may have damaged (`distrusted` counts them)."""
        with cache.tree.subtree(OBJECTS) as tree:
            fd = os.dup(tree.root_fd)
        try:
            markers = Markers(fd, boot_id or current_boot_id())
            objects = cls(fd, markers, reflinks=_has_reflinks(fd))
            objects.distrusted = markers.recover(objects._remove_since, lambda: _sync(fd))
        except OSError as error:
            os.close(fd)
            raise fault(error, f"objects of cache {cache.path}") from error
        except BaseException:
            os.close(fd)
            raise
        return objects

    @classmethod
    def share(cls, fd: int, *, reflinks: bool) -> Self:
        """Take over the open directory *fd* of objects that another process of ours opened and checked."""
        return cls(fd, Markers(fd, current_boot_id()), reflinks=reflinks)

    @property
    def fd(self) -> int:
        """The directory of the objects, for `share` in another process; valid until `close`."""
        return self._fd

    def write_back(self) -> None:
        """Write out what is there so far, so that `flush` has less to do; it promises nothing."""
        try:
            _sync(self._fd)
        except OSError as error:
            raise fault(error, "flush the cache's file system") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close; what was published and not flushed stays under its marker."""
        self._markers.close()
        os.close(self._fd)

    def may_have(self, file_id: FileId) -> bool:
        """Tell without a system call for most ids; False when no object with the first byte of *file_id* was here yet.

        What others publish meanwhile may be missed: it is then fetched once more, and one copy stays.
        """
        first = file_id[:1]
        if first not in self._empty:
            self._empty[first] = not self._has_fan_out(first)
        return not self._empty[first]

    def _has_fan_out(self, first: bytes) -> bool:
        try:
            os.stat(first.hex(), dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise fault(error, f"objects {first.hex()}") from error
        return True

    def has(self, file_id: FileId, size: int) -> bool:
        """Tell whether the object is there with *size* bytes."""
        try:
            status = os.stat(_name(file_id), dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise fault(error, f"object {file_id.hex()}") from error
        return status.st_size == size and stat.S_ISREG(status.st_mode)

    def changed_ns(self, file_id: FileId) -> int:
        """Return the object's ctime."""
        try:
            return os.stat(_name(file_id), dir_fd=self._fd, follow_symlinks=False).st_ctime_ns
        except OSError as error:
            raise fault(error, f"object {file_id.hex()}") from error

    def adopt(self, file_id: FileId, tree: Tree, path: bytes) -> bool:
        """Place the object at *path* in a staging view; False when there is no such object."""
        name = _name(file_id)
        try:
            if not self.reflinks and tree.link(self._fd, name, path):
                return True
            return self._copy_out(name, tree, path)
        except NotFound:
            return False

    def publish(self, tree: Tree, path: bytes, file_id: FileId, made: tuple[int, int] | None = None) -> bool:
        """Make the finished, verified file *path* of a staging view an object; it loses its write bits.

        *made* is (size, mode without write bits) of a file that the caller itself created: it is not looked at again.
        False when this file system can share neither by reflink nor by link: the view keeps the only copy.
        """
        try:
            run = self._markers.begin()
            try:
                directory, name = tree.locate(path)
                with directory as fd:
                    return self._share(fd, name, _name(file_id), path, made or _look(fd, name, path))
            finally:
                self._markers.end(run)
        except OSError as error:
            raise fault(error, f"publish {shown(path)} as object {file_id.hex()}") from error

    def remove(self, file_id: FileId) -> None:
        """Remove the object; views that have it keep their file. Nothing there is no error."""
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_name(file_id), dir_fd=self._fd)
        except OSError as error:
            raise fault(error, f"remove object {file_id.hex()}") from error

    def flush(self) -> None:
        """Make durable everything written to this file system so far, objects and staging views."""
        try:
            self._markers.flush(lambda: _sync(self._fd))
        except OSError as error:
            raise fault(error, "flush the cache's file system") from error

    def _share(self, dir_fd: int, name: bytes, object_name: bytes, path: bytes, made: tuple[int, int]) -> bool:
        size, mode = made
        for _ in range(3):
            try:
                if self.reflinks and mode & stat.S_IRUSR:
                    self._clone_in(dir_fd, name, object_name)
                else:
                    os.link(name, object_name, src_dir_fd=dir_fd, dst_dir_fd=self._fd, follow_symlinks=False)
                return True
            except FileNotFoundError:
                self._make_fan_out(object_name)
            except FileExistsError:
                if self._same_size(object_name, size):
                    return True
                os.unlink(object_name, dir_fd=self._fd)  # a truncated object: the verified file takes its place
            except OSError as error:
                if error.errno in (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP):
                    return False
                raise
        raise IntegrityError(f"publish {shown(path)}: its object keeps changing; find the program that does it")

    def _same_size(self, object_name: bytes, size: int) -> bool:
        status = os.stat(object_name, dir_fd=self._fd, follow_symlinks=False)
        return stat.S_ISREG(status.st_mode) and status.st_size == size

    def _make_fan_out(self, object_name: bytes) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(object_name[:2], OBJECTS_MODE, dir_fd=self._fd)

    def _clone_in(self, dir_fd: int, name: bytes, object_name: bytes) -> None:
        """Give a copy-on-write twin of the file its object name: unnamed until it is complete."""
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            twin = os.open(object_name[:2], os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
            try:
                clone_file(source, twin)
                _copy_attributes(source, twin)
                os.link(f"/proc/self/fd/{twin}", object_name, dst_dir_fd=self._fd, follow_symlinks=True)
            finally:
                os.close(twin)
        finally:
            os.close(source)

    def _copy_out(self, object_name: bytes, tree: Tree, path: bytes) -> bool:
        try:
            source = os.open(object_name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            return False
        except OSError as error:
            if isinstance(error, PermissionError) and tree.link(self._fd, object_name, path):
                return True  # a file that its owner may not read is shared unread
            raise fault(error, f"open object of {shown(path)}") from error
        try:
            target = tree.create(path)
            try:
                self._fill(source, target)
                _copy_attributes(source, target)
            except BaseException as error:
                tree.remove(path)
                if isinstance(error, OSError):
                    raise fault(error, f"copy an object to {shown(path)}") from error
                raise
            finally:
                os.close(target)
        finally:
            os.close(source)
        return True

    def _fill(self, source: int, target: int) -> None:
        if self.reflinks:
            try:
                clone_file(source, target)
                return
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                    raise  # anything else: this file can not be cloned, its bytes can still be copied
        copy_extents(source, target)

    def _remove_since(self, start_ns: int) -> int:
        """Remove the objects whose ctime is *start_ns* or later, and return their number."""
        removed = 0
        for folder in names_in(self._fd):
            if len(folder) != 2 or not _HEX.issuperset(folder):
                continue
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                for name in names_in(fd):
                    if os.stat(name, dir_fd=fd, follow_symlinks=False).st_ctime_ns >= start_ns:
                        os.unlink(name, dir_fd=fd)
                        removed += 1
            finally:
                os.close(fd)
        return removed


def copy_extents(source: int, target: int) -> None:
    """Copy all bytes of *source* to the empty file *target*; holes stay holes."""
    size = os.fstat(source).st_size
    os.truncate(target, size)
    offset = 0
    while offset < size:
        try:
            offset = os.lseek(source, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # the rest is a hole
            raise
        end = os.lseek(source, offset, os.SEEK_HOLE)
        os.lseek(target, offset, os.SEEK_SET)
        while offset < end:
            sent = os.sendfile(target, source, offset, min(end - offset, COPY_BYTES))
            if not sent:
                raise OSError(errno.EIO, "the source became shorter while it was copied")
            offset += sent


def _copy_attributes(source: int, target: int) -> None:
    """Copy `user.` attributes, mode without write bits, and last the times."""
    status = os.fstat(source)
    set_xattrs(target, [(name, os.getxattr(source, name)) for name in _user_attributes(source)])
    os.fchmod(target, read_only(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _user_attributes(fd: int) -> list[bytes]:
    try:
        names = [os.fsencode(name) for name in os.listxattr(fd)]
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return []
        raise
    return [name for name in names if name.startswith(XATTR_PREFIX)]


def _look(dir_fd: int, name: bytes, path: bytes) -> tuple[int, int]:
    """Return size and mode of a file of a staging view, without write bits from now on."""
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise IntegrityError(f"publish {shown(path)}: expected a regular file, found something else; warm again")
    if stat.S_IMODE(status.st_mode) != read_only(status.st_mode):
        _make_read_only(name, dir_fd)
    return status.st_size, read_only(status.st_mode)


def _make_read_only(name: bytes, dir_fd: int) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fchmod(fd, read_only(os.fstat(fd).st_mode))
    finally:
        os.close(fd)


def _has_reflinks(objects_fd: int) -> bool:
    """Try one clone between two unnamed files; without O_TMPFILE there is no reflink worth having."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    fds: list[int] = []
    try:
        fds += [os.open(".", flags, 0o600, dir_fd=objects_fd) for _ in range(2)]
        os.write(fds[0], bytes(4096))
        clone_file(fds[0], fds[1])
    except OSError:
        return False  # a full disk included: hard links need no space, and what must write will say so
    finally:
        for fd in fds:
            os.close(fd)
    return Path(f"/proc/self/fd/{objects_fd}").exists()  # what names an unnamed file


def _sync(fd: int) -> None:
    sync_filesystem(fd)


def _name(file_id: FileId) -> bytes:
    digits = file_id.hex().encode()
    return digits[:2] + b"/" + digits
