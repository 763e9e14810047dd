"""Hints that a folder has changed, from watchdog; and why there are none, when there are none.

A hint says nothing but "look soon": the push scans the tree, so a lost event loses no file, only time. `why_not` tells
why events can not be relied on: a lost part of the queue, too few watches, a network file system. Raises nothing: a
folder that can not be watched is scanned.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirModifiedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver, EventEmitter
from watchdog.observers.inotify import InotifyEmitter, InotifyObserver, InotifyWatchGroup

from datasync.cache.mounts import Kind, kind_of, mount_of, read_mounts

EVENTS: list[type[FileSystemEvent]] = [
    DirCreatedEvent, DirDeletedEvent, DirModifiedEvent, DirMovedEvent, FileClosedEvent, FileCreatedEvent,
    FileDeletedEvent, FileModifiedEvent, FileMovedEvent,
]  # fmt: skip
OVERFLOW = "the kernel's queue of events overflowed, some were lost"
WATCHES = "the kernel has no watches left (fs.inotify.max_user_watches): raise it, or live with scanning"
NETWORK = "it lies on a network file system, which tells of no other machine's changes"


class Watcher:
    """Watches one folder until `stop`; `hint` and `trouble` are called from other threads."""

    def __init__(self, path: Path, hint: Callable[[], None], trouble: Callable[[str], None]) -> None:
        self._trouble = trouble
        self._observer: BaseObserver | None = None
        self.why_not: str | None = None
        self.identity = _identity(path)
        if _is_network(path):
            self._complain(NETWORK)
            return
        self._start(path, hint)

    def _start(self, path: Path, hint: Callable[[], None]) -> None:
        observer: BaseObserver | None = None
        try:
            observer = _Observer(self._complain)
            observer.schedule(_Handler(hint), str(path), recursive=True, event_filter=EVENTS)
            observer.start()
        except OSError as error:
            if observer is not None:
                observer.stop()
            limits = (errno.ENOSPC, errno.EMFILE)
            self._complain(WATCHES if error.errno in limits else f"it can not be watched: {error.strerror}")
            return
        self._observer = observer

    def _complain(self, reason: str) -> None:
        if self.why_not is None:
            self.why_not = reason
        self._trouble(reason)

    def still_there(self, path: Path) -> bool:
        """Tell whether *path* is the directory that was there when watching began, and still watched."""
        alive = self._observer is None or any(emitter.is_alive() for emitter in self._observer.emitters)
        return alive and self.identity is not None and _identity(path) == self.identity

    def stop(self) -> None:
        """Give the watches back."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(10)


class _Handler(FileSystemEventHandler):
    def __init__(self, hint: Callable[[], None]) -> None:
        self._hint = hint

    def dispatch(self, event: FileSystemEvent) -> None:
        self._hint()


class _Observer(InotifyObserver):
    """Watchdog's observer, whose groups tell what they could not see."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        super().__init__()
        self._complain = complain
        self._emitter_class = _emitter(complain)


def _emitter(complain: Callable[[str], None]) -> type[EventEmitter]:
    class Group(InotifyWatchGroup):
        def on_queue_overflow(self) -> None:
            complain(OVERFLOW)
            super().on_queue_overflow()

        def _add_callback(self, path: bytes) -> None:
            """Add a watch as watchdog does, which passes over a child without one in silence."""
            super()._add_callback(path)
            if path not in self._active_callbacks_by_path and os.path.isdir(path):
                complain(WATCHES)

    class Emitter(InotifyEmitter):
        def on_thread_start(self) -> None:
            self._inotify = Group(
                self._inotify_fd,
                os.fsencode(self.watch.path),
                is_recursive=self.watch.is_recursive,
                event_mask=self.get_event_mask_from_filter(),
                follow_symlink=self.watch.follow_symlink,
            )

    return Emitter


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_network(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return kind_of(fd, mount_of(path.resolve(), read_mounts())) is Kind.NETWORK
    finally:
        os.close(fd)
