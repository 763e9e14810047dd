"""What a reservation of cache space would do: the rule of `datasync.cache.space`, acted out on a model of the cache.

`Forecast` is a `Space` whose removals are only remembered: which views would go, the least recently used first, and
which objects with them. It takes no view's lock for longer than a look and changes nothing on the disk. Space that
directories take is not counted as freed. Raises `NoSpace` in the words of `Space.reserve`.
"""

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from datasync.cache.kernel import entries_in, names_in
from datasync.cache.layout import Cache, View
from datasync.cache.leases import living_leases
from datasync.cache.pins import pinned_until
from datasync.cache.ready import Ready, read_ready
from datasync.cache.space import BLOCK_BYTES, LOCK, RESERVATION, Limits, Space
from datasync.errors import DatasyncError, NoSpace, NotFound
from datasync.model.ids import ID_BYTES


@dataclass(frozen=True, slots=True)
class Evicted:
    """A view that would make room: its last use in seconds since 1970, its receipt where that can be read."""

    view: View
    used: float
    ready: Ready | None


@dataclass(frozen=True, slots=True)
class Room:
    """Space in bytes: needed, used and free before anything is evicted; `waits` for transfers that run now, of this
    view or of others.
    """

    needed: int
    used: int
    free: int
    limit: int
    reserve: int
    waits: bool
    evicted: tuple[Evicted, ...]


class Forecast(Space):
    """The space of one cache directory, and what would become of it. Used once."""

    def __init__(self, cache: Cache, limits: Limits, adopted: bytes | bytearray = b"") -> None:
        """*adopted*: the ids of the objects that the view to be made shares."""
        self._cache = cache
        super().__init__(cache, limits, reflinks=any(name.startswith(b".objects-") for _, name in self._folder_names()))
        self._adopted_ids = adopted
        self._adopted: frozenset[str] | None = None
        self._keep: View | None = None
        self._gone: list[Evicted] = []
        self._gone_objects: set[str] = set()
        self._dropped = Counter[int]()  # links that went with views
        self._freed = 0

    def room(self, need: int, keep: View) -> Room:
        """Return how *need* bytes for the view *keep* would be found."""
        self._keep = keep
        used, free = self.used(), self.free()
        self._require_below_limit(need)
        promised = self._promised()
        fits = self._make_room(need, promised, keep)
        if not fits and not promised:
            raise NoSpace(self._refusal(need))
        waits = not fits or self._is_locked(keep)
        return Room(need, used, free, self.limit, self.reserve_bytes, waits, tuple(self._gone))

    def free(self) -> int:
        """Return the bytes that would be free on the disk by now."""
        return super().free() + self._freed

    # what would be removed

    def remove_orphans(self) -> int:
        """Take away the objects that no view would share by now; return how many."""
        if self._adopted is None:
            self._begin()
        shared = self._listed(self._lists()) if self._reflinks else frozenset()
        orphans = [
            (name, status)
            for _, name, status in self._objects()
            if (name not in shared if self._reflinks else self._is_orphan(name, status))
        ]
        for name, status in orphans:
            self._gone_objects.add(name)
            self._freed += status.st_blocks * BLOCK_BYTES
        return len(orphans)

    def _begin(self) -> None:
        """Take away what dead transfers left, and this view's own first try; share what the view adopts."""
        ids = self._adopted_ids
        self._adopted = frozenset(bytes(ids[at : at + ID_BYTES]).hex() for at in range(0, len(ids), ID_BYTES))
        living = {*self.unfinished()}
        for view in super().unfinished():
            if view not in living:
                self._drop(view.staging)
                self._drop(view.place)

    def _is_orphan(self, name: str, status: os.stat_result) -> bool:
        return status.st_nlink - self._dropped[status.st_ino] <= 1 and name not in (self._adopted or ())

    def _lists(self) -> frozenset[bytes]:
        living = [view for _, view in self.views()] + self.unfinished()
        return frozenset(view.objects for view in living)

    def _evict_one(self, keep: View) -> bool:
        for used, view in self.views():
            if view != keep and not self._is_kept(view):
                self._drop(view.place)
                self._gone.append(Evicted(view, used, self._receipt(view)))
                return True
        return False

    def _drop(self, path: bytes) -> None:
        """Count the links beneath *path* as gone; a file's blocks are free when its last name is."""
        pending = [path]
        while pending:
            above = pending.pop()
            with (
                contextlib.suppress(NotFound),
                self._cache.tree.subtree(above) as tree,
                entries_in(tree.root_fd) as all_,
            ):
                for item in all_:
                    if item.is_dir(follow_symlinks=False):
                        pending.append(above + b"/" + os.fsencode(item.name))
                    else:
                        self._drop_link(item.stat(follow_symlinks=False))

    def _drop_link(self, status: os.stat_result) -> None:
        self._dropped[status.st_ino] += 1
        if not self._reflinks and self._dropped[status.st_ino] == status.st_nlink:
            self._freed += status.st_blocks * BLOCK_BYTES

    def _receipt(self, view: View) -> Ready | None:
        try:
            return read_ready(self._cache, view)
        except DatasyncError:
            return None  # damaged: the view goes all the same

    # what is there

    def _is_kept(self, view: View) -> bool:
        pinned = pinned_until(self._cache, view) is not None
        return pinned or bool(living_leases(self._cache, view, remove_dead=False))

    def _staged(self) -> set[int]:
        inodes = super()._staged()
        return inodes.union(s.st_ino for _, name, s in self._objects() if name in (self._adopted or ()))

    def _objects(self) -> Iterator[tuple[int, str, os.stat_result]]:
        with contextlib.suppress(NotFound):
            for item in super()._objects():
                if item[1] not in self._gone_objects:
                    yield item

    def _folder_names(self) -> Iterator[tuple[bytes, bytes]]:
        with contextlib.suppress(NotFound):
            yield from super()._folder_names()

    def views(self) -> list[tuple[float, View]]:
        """Return the ready views that would be left by now, the least recently used first."""
        gone = {item.view for item in self._gone}
        try:
            return [item for item in super().views() if item[1] not in gone]
        except NotFound:
            return []

    def unfinished(self) -> list[View]:
        """Return the views that other processes are making now."""
        return [view for view in super().unfinished() if view != self._keep and self._is_locked(view)]

    def _is_locked(self, view: View) -> bool:
        return self._held(view.lock) is not None

    def _held(self, name: bytes) -> bytes | None:
        """Return the first bytes of the file *name* while another process holds its flock, else None."""
        try:
            fd = self._cache.tree.open_file(name)
        except NotFound:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.pread(fd, 16, 0)
        finally:
            os.close(fd)
        return None

    def _promised(self) -> int:
        """Return what running transfers have still to write. Reservations are made and looked at under one lock."""
        try:
            fd = self._cache.tree.open_file(LOCK)
        except NotFound:
            return 0  # none was ever made
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            names = [os.fsencode(name) for name in names_in(self._cache.tree.root_fd)]
            held = [self._held(name) for name in names if name.startswith(RESERVATION)]
        finally:
            os.close(fd)
        sizes = ((int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")) for data in held if data)
        return sum(max(0, whole - written) for whole, written in sizes)
