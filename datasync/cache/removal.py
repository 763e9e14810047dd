"""Empty a directory: iterative, any depth, following no symbolic link, holding at most `HELD_LEVELS` directories.

Directories that this user owns are made writable on the way. A tree that is deeper than the held levels is folded:
the directory at the last level is renamed up into the top directory and emptied from there, so no path is ever walked
again and `..` is never used. Interrupted, it may leave such a renamed directory inside the tree that was to go anyway.
Raises `OSError`.
"""

import contextlib
import errno
import os
import stat

from datasync.cache.kernel import DIRECTORY_FLAGS, entries_in

HELD_LEVELS = 24
SCANS = 100  # of one directory, before somebody who keeps filling it is reported


class _Level:
    """One directory on the way down: its fd, its name in the level above, what is left beneath it."""

    __slots__ = ("below", "fd", "name", "scans")

    def __init__(self, fd: int, name: bytes) -> None:
        self.fd = fd
        self.name = name
        self.below: list[bytes] = []
        self.scans = 0

    def scan(self) -> bool:
        """Remove what is no directory, list the directories; tell whether anything was found."""
        self.scans += 1
        found = False
        with entries_in(self.fd) as entries:
            for entry in entries:
                found = True
                if entry.is_dir(follow_symlinks=False):
                    self.below.append(os.fsencode(entry.name))
                else:
                    _ignore_absent_unlink(self.fd, entry.name)
        return found


def empty_directory(top_fd: int) -> None:
    """Remove everything beneath *top_fd*, which stays open and stays."""
    make_workable(top_fd)
    levels = [_Level(top_fd, b"")]
    try:
        while levels:
            level = levels[-1]
            if level.below:
                _go_down(levels, level.below.pop())
            elif _is_done(levels):
                levels.pop()
    finally:
        for level in levels[1:]:
            os.close(level.fd)


def make_workable(fd: int) -> None:
    """Give the owner all rights on the directory *fd*."""
    if stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
        os.fchmod(fd, 0o700)


def open_workable(parent_fd: int, name: bytes) -> int:
    """Open the real directory *name* and give its owner all rights, one without read permission included."""
    try:
        fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    except PermissionError:
        _unlock(parent_fd, name)
        fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    try:
        make_workable(fd)
    except OSError:
        os.close(fd)
        raise
    return fd


def _unlock(parent_fd: int, name: bytes) -> None:
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    try:
        os.chmod(f"/proc/self/fd/{held}", 0o700)  # fchmod refuses an O_PATH fd; this names the held inode itself
    finally:
        os.close(held)


def _go_down(levels: list[_Level], name: bytes) -> None:
    try:
        fd = open_workable(levels[-1].fd, name)
    except FileNotFoundError:
        return
    if len(levels) < HELD_LEVELS:
        levels.append(_Level(fd, name))
        return
    os.close(fd)
    folded = b".removing-" + os.urandom(12).hex().encode()
    os.rename(name, folded, src_dir_fd=levels[-1].fd, dst_dir_fd=levels[0].fd)
    levels[0].below.append(folded)


def _is_done(levels: list[_Level]) -> bool:
    """Tell whether the last level is empty (and removed, unless it is the top); scan it otherwise."""
    level = levels[-1]
    if level.scans and len(levels) > 1:
        try:
            os.rmdir(level.name, dir_fd=levels[-2].fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or level.scans >= SCANS:
                raise
            level.scan()  # a file system may skip entries while others are removed
            return False
        os.close(level.fd)
        return True
    if level.scans >= SCANS:
        raise OSError(errno.EBUSY, "the directory is being filled while it is emptied")
    found = level.scan()
    return len(levels) == 1 and not found


def _ignore_absent_unlink(dir_fd: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dir_fd)
