"""One maker per view: an flock on the view's lock file, which the kernel releases when its holder dies.

Exactly one process makes a view; the others wait, and when they get the lock they look at the receipt again: either
the view is ready, or its maker died and they take over. The lock is tied to an open file, so a child that was forked
without exec shares it until it exits; exec closes it. Raises `DeadlineExceeded`, `UsageError` where files can not be
locked, and what `datasync.cache.beneath` raises.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable
from typing import Self

from datasync.cache.faults import fault
from datasync.cache.layout import Cache, View
from datasync.errors import DeadlineExceeded, IntegrityError, UsageError

FIRST_WAIT_SECONDS = 0.005
LONGEST_WAIT_SECONDS = 0.25


class ViewLock:
    """The lock of one view; not shared between threads: each has its own."""

    def __init__(self, cache: Cache, view: View) -> None:
        self._cache = cache
        self._view = view
        self._fd: int | None = None

    def acquire(self, wait: Callable[[], None] | None = None, deadline: float | None = None) -> None:
        """Take the lock, calling *wait* before each sleep; *deadline* is a time of `time.monotonic`, None for ever."""
        sleep = FIRST_WAIT_SECONDS
        while not self.try_acquire():
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    f"view {self._view.path}: another process is still making it; wait longer, or look at that process"
                )
            if wait is not None:
                wait()
            time.sleep(sleep)
            sleep = min(2 * sleep, LONGEST_WAIT_SECONDS)

    def try_acquire(self) -> bool:
        """Take the lock if it is free, and tell whether it is ours now."""
        if self._fd is not None:
            return True
        fd = self._open()
        if _flock(fd, f"lock of view {self._view.path}") and self._is_current(fd):
            self._fd = fd
            return True
        os.close(fd)
        return False

    def fileno(self) -> int:
        """Return the fd of the held lock: a child process that gets it keeps the view locked until it ends, too."""
        if self._fd is None:
            raise IntegrityError(f"view {self._view.path}: its lock is not held")
        return self._fd

    def release(self) -> None:
        """Give the lock back; without one this does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _open(self) -> int:
        """Open the lock file, made when it is missing."""
        tree = self._cache.tree
        if tree.lstat(self._view.lock) is None:
            self._cache.make_folder(self._view)
            try:
                return tree.create(self._view.lock)
            except IntegrityError:
                pass  # another process made it just now; if it is anything but a file, the next line says so
        return tree.open_file(self._view.lock, os.O_RDWR)

    def _is_current(self, fd: int) -> bool:
        """Tell whether the file that we locked still has the lock's name."""
        held = os.fstat(fd)
        named = self._cache.tree.lstat(self._view.lock)
        return named is not None and (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _flock(fd: int, shown: str) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise UsageError(
                f"{shown}: this file system can not lock files; use a cache directory on a local disk"
            ) from error
        raise fault(error, shown) from error
    return True
