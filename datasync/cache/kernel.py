"""System calls that Python does not offer: openat2, syncfs, FICLONE, and the id of this boot.

Raises `OSError` only; callers turn it into errors of datasync. On a kernel without one of them the call fails with
ENOSYS or EOPNOTSUPP, and the caller takes another way.
"""

import ctypes
import errno
import fcntl
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_OPENAT2 = 437  # the same number on every architecture that datasync runs on
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_FICLONE = 0x40049409
_LINUX = sys.platform == "linux"


class _OpenHow(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _OpenHow(DIRECTORY_FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
_HOW_POINTER = ctypes.pointer(_HOW)  # the kernel only reads it, so all threads share one
_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t)
_syscall.restype = ctypes.c_long
if _LINUX:
    _libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def open_directory_beneath(dir_fd: int, path: bytes) -> int:
    """Open the directory *path* (at most PATH_MAX bytes) beneath *dir_fd*, through no symbolic link at all."""
    if not _LINUX:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    while True:
        fd = int(_syscall(_OPENAT2, dir_fd, path, _HOW_POINTER, ctypes.sizeof(_OpenHow)))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EINTR, errno.EAGAIN):  # EAGAIN: a rename elsewhere raced with the lookup
            raise OSError(number, os.strerror(number))


def names_in(fd: int) -> list[str]:
    """Return the names in an open directory as it is now: btrfs lists it as it was when it was opened, until it is
    rewound, so a lease made meanwhile would not be seen.
    """
    os.lseek(fd, 0, os.SEEK_SET)
    return os.listdir(fd)


def entries_in(fd: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """Return what `os.scandir` does, of an open directory as it is now."""
    os.lseek(fd, 0, os.SEEK_SET)
    return os.scandir(fd)


def has_openat2(dir_fd: int) -> bool:
    """Tell whether openat2 works here: old kernels lack it, and some sandboxes refuse it."""
    try:
        os.close(open_directory_beneath(dir_fd, b"."))
    except OSError:
        return False
    return True


def sync_filesystem(fd: int) -> None:
    """Write everything of the file system that holds *fd* to the disk; raise when some of it could not be written."""
    if not _LINUX:
        os.sync()
        return
    if _libc.syncfs(ctypes.c_int(fd)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def clone_file(source_fd: int, target_fd: int) -> None:
    """Make the empty file *target_fd* share all blocks of *source_fd* (copy on write)."""
    if not _LINUX:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    fcntl.ioctl(target_fd, _FICLONE, source_fd)


def allocate(fd: int, size: int) -> None:
    """Reserve the blocks of a file's first *size* bytes, which also sets its size; nothing where that is not offered.

    fallocate(2) itself: the C library's posix_fallocate would write to every block instead.
    """
    if not _LINUX or _libc.fallocate(fd, 0, 0, size) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        raise OSError(number, os.strerror(number))


def current_boot_id() -> str:
    """Return the kernel's id of this boot; where there is none, one that is never met again (less is trusted)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return f"unknown-{uuid.uuid4()}"
