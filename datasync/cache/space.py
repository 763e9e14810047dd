"""The cache's size limit: space is reserved before it is written, least-recently-used views make room.

A transfer reserves all that it needs at once, before its first byte: nobody holds a part while waiting for the rest,
so nothing can deadlock. A reservation is a file held by an flock, with 8 bytes that say how much of it is written; it
ends with its process. Pinned and leased views are never evicted; a request that can not fit even alone fails at once,
one that running transfers keep out waits for them to end. Nothing is evicted for a request that would not fit even if
everything evictable were gone.

`used` counts allocated blocks of objects and of what lies in quarantine. What a dead transfer left in its staging
directory is removed before anything is counted. Raises `NoSpace`.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from datasync.cache.beneath import Tree
from datasync.cache.faults import fault
from datasync.cache.kernel import entries_in, names_in
from datasync.cache.layout import OBJECTS, QUARANTINE, VIEWS, Cache, View, is_stem
from datasync.cache.leases import living_leases
from datasync.cache.locks import ViewLock
from datasync.cache.pins import pinned_until, unpin
from datasync.cache.ready import Ready, discard_view, read_ready
from datasync.cache.sizes import parse_size
from datasync.errors import DatasyncError, IntegrityError, NoSpace, NotFound
from datasync.model.ids import ID_BYTES

BLOCK_BYTES = 512
WAIT_SECONDS = 0.25
LOCK = b".space.lock"
RESERVATION = b".reserved-"


def _untold(_: View, __: Ready | None) -> None:
    return


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of its file system the cache may use, and how much stays free whatever happens; who is told of each view
    that had to make room.
    """

    maximum: str = "100%"
    reserve: str = "0"
    evicted: Callable[[View, Ready | None], None] = _untold

    def resolve(self, cache: Cache) -> tuple[int, int]:
        """Return (limit, reserve) in bytes for the file system of *cache*."""
        status = os.statvfs(cache.tree.root_fd)
        total = status.f_blocks * status.f_frsize
        found = []
        for text, what in ((self.maximum, "cache.max"), (self.reserve, "cache.reserve")):
            number, share = parse_size(text, what)
            found.append(int(number * total) if share else int(number))
        return found[0], found[1]


class Reservation:
    """Space that a running transfer will write."""

    def __init__(self, tree: Tree, name: bytes, fd: int) -> None:
        """Use `Space.reserve`."""
        self._tree = tree
        self._name = name
        self._fd = fd

    def written(self, count: int) -> None:
        """Say that *count* bytes of it are objects by now."""
        try:
            os.pwrite(self._fd, count.to_bytes(8, "little"), 8)
        except OSError as error:
            raise fault(error, "reservation of cache space") from error

    def release(self) -> None:
        """Give back what is left."""
        if self._fd >= 0:
            self._tree.remove(self._name)
            os.close(self._fd)
            self._fd = -1


class Space:
    """The space of one cache directory."""

    def __init__(self, cache: Cache, limits: Limits, *, reflinks: bool) -> None:
        self._cache = cache
        self._reflinks = reflinks
        self._evicted = limits.evicted
        self._crossed = False
        self.limit, self.reserve_bytes = limits.resolve(cache)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        tree = self._cache.tree
        fd = -1
        while fd < 0:
            try:
                fd = tree.open_file(LOCK, os.O_RDWR)
            except NotFound:
                with contextlib.suppress(IntegrityError):  # another process made it just now
                    os.close(tree.create(LOCK, 0o600))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def reserve(self, need: int, keep: View, waiting: Callable[[], None] | None = None) -> Reservation:
        """Reserve *need* bytes for making the view *keep*, evicting what nobody uses, or waiting for others."""
        self._require_below_limit(need)
        while True:
            with self._alone():
                self._crossed = False
                self.remove_dead_transfers(keep)
                promised = self._promised()
                if self._make_room(need, promised, keep):
                    return self._enter(need)
            if not promised and not self._crossed:
                raise NoSpace(self._refusal(need))
            if waiting is not None:
                waiting()
            time.sleep(WAIT_SECONDS)

    def _require_below_limit(self, need: int) -> None:
        if need > self.limit:
            raise NoSpace(
                f"{self._cache.path}: the snapshot needs {need} bytes here, the cache's limit is {self.limit}: "
                "raise cache.max, or use a larger disk"
            )

    def free(self) -> int:
        """Return the bytes that are free on the disk."""
        status = os.statvfs(self._cache.tree.root_fd)
        return status.f_bavail * status.f_frsize

    def _refusal(self, need: int) -> str:
        return (
            f"{self._cache.path}: {need} bytes are needed, {self.used()} of {self.limit} are used and "
            f"{self.free()} are free on the disk; what is left is pinned or leased, or in quarantine: "
            "unpin, end jobs, or use a larger disk"
        )

    def _make_room(self, need: int, promised: int, keep: View) -> bool:
        if self._fits(need, promised, self.used()):
            return True
        self.remove_orphans()
        used = self.used()
        if not self._fits(need, promised, used) and not self._fits(need, promised, used, self._evictable()):
            return False
        while not self._fits(need, promised, self.used()):
            if not self._evict_one(keep):
                return False
            self.remove_orphans()
        return True

    def _fits(self, need: int, promised: int, used: int, freed: int = 0) -> bool:
        free = self.free() + freed
        return used - freed + promised + need <= self.limit and promised + need + self.reserve_bytes <= free

    def _evictable(self) -> int:
        """Return the bytes of the objects that no pinned, leased or unfinished view has."""
        kept = [view for _, view in self.views() if self._is_kept(view)]
        if self._reflinks:
            names = self._listed(frozenset(view.objects for view in kept))
            return sum(status.st_blocks * BLOCK_BYTES for _, name, status in self._objects() if name not in names)
        inodes = self._staged()
        for view in kept:
            with contextlib.suppress(NotFound):  # evicted by hand just now
                inodes.update(self._inodes(view.place))
        return sum(status.st_blocks * BLOCK_BYTES for _, _, status in self._objects() if status.st_ino not in inodes)

    def _staged(self) -> set[int]:
        """Return the inodes of the views that are being made."""
        inodes: set[int] = set()
        for view in self.unfinished():
            with contextlib.suppress(NotFound):  # finished just now
                inodes.update(self._inodes(view.staging))
        return inodes

    def _is_kept(self, view: View) -> bool:
        return pinned_until(self._cache, view) is not None or bool(living_leases(self._cache, view))

    def _inodes(self, path: bytes) -> Iterator[int]:
        """Yield the inode of everything beneath *path*; links are not followed."""
        pending = [path]
        while pending:
            above = pending.pop()
            with self._cache.tree.subtree(above) as tree, entries_in(tree.root_fd) as found:
                for item in found:
                    yield item.inode()
                    if item.is_dir(follow_symlinks=False):
                        pending.append(above + b"/" + os.fsencode(item.name))

    def _enter(self, need: int) -> Reservation:
        name = RESERVATION + os.urandom(8).hex().encode()
        fd = self._cache.tree.create(name, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(fd, need.to_bytes(8, "little") + bytes(8), 0)
        except OSError as error:
            self._cache.tree.remove(name)
            os.close(fd)
            raise fault(error, f"{self._cache.path}: reserve {need} bytes") from error
        return Reservation(self._cache.tree, name, fd)

    def _promised(self) -> int:
        """Return what running transfers have still to write; reservations of the dead are removed."""
        total = 0
        for text in names_in(self._cache.tree.root_fd):
            name = os.fsencode(text)
            if not name.startswith(RESERVATION):
                continue
            try:
                fd = self._cache.tree.open_file(name, os.O_RDWR)
            except NotFound:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._cache.tree.remove(name)
            except BlockingIOError:
                data = os.pread(fd, 16, 0)
                total += max(0, int.from_bytes(data[:8], "little") - int.from_bytes(data[8:], "little"))
            finally:
                os.close(fd)
        return total

    # what is there

    def used(self) -> int:
        """Return the bytes that objects and what is in quarantine take on the disk."""
        return self._quarantined() + sum(status.st_blocks * BLOCK_BYTES for _, _, status in self._objects())

    def _quarantined(self) -> int:
        try:
            with self._cache.tree.subtree(QUARANTINE) as tree, entries_in(tree.root_fd) as found:
                return sum(item.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES for item in found)
        except NotFound:
            return 0

    def _objects(self) -> Iterator[tuple[int, str, os.stat_result]]:
        with self._cache.tree.subtree(OBJECTS) as tree:
            for directory in names_in(tree.root_fd):
                if len(directory) != 2:
                    continue
                fd = os.open(
                    directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=tree.root_fd
                )
                try:
                    with entries_in(fd) as found:
                        for item in found:
                            with contextlib.suppress(FileNotFoundError):
                                yield fd, item.name, item.stat(follow_symlinks=False)
                finally:
                    os.close(fd)

    def remove_orphans(self) -> int:
        """Remove objects that no view shares (of evicted views, and of transfers that died); return how many."""
        count = 0
        shared = self._listed() if self._reflinks else frozenset()
        for fd, name, status in self._objects():
            if status.st_nlink == 1 and name not in shared:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=fd)
                    count += 1
        return count

    def _listed(self, lists: frozenset[bytes] | None = None) -> frozenset[str]:
        """Return the ids of all objects that views list (in *lists* alone, if given): with reflinks the link count does
        not tell.
        """
        found: set[str] = set()
        for folder, name in self._folder_names():
            if name.startswith(b".objects-") and (lists is None or folder + b"/" + name in lists):
                fd = self._cache.tree.open_file(folder + b"/" + name)
                with os.fdopen(fd, "rb") as file:
                    while digest := file.read(ID_BYTES):
                        found.add(digest.hex())
        return frozenset(found)

    def _folder_names(self) -> Iterator[tuple[bytes, bytes]]:
        with self._cache.tree.subtree(VIEWS) as views:
            for folder in names_in(views.root_fd):
                path = VIEWS + b"/" + os.fsencode(folder)
                with self._cache.tree.subtree(path) as tree:
                    names = names_in(tree.root_fd)
                for name in names:
                    yield path, os.fsencode(name)

    def unfinished(self) -> list[View]:
        """Return the views that have no receipt: being made, or left by a transfer or an eviction that died."""
        found = []
        for folder, name in self._folder_names():
            view = View(self._cache.path, folder, name.removeprefix(b".staging-"))
            if is_stem(view.stem) and self._cache.tree.lstat(view.ready) is None:
                found.append(view)
        return found

    def remove_dead_transfers(self, keep: View | None) -> int:
        """Remove what killed transfers left of views that have no receipt; return how many."""
        count = 0
        for view in self.unfinished():
            lock = ViewLock(self._cache, view)
            if view == keep or not lock.try_acquire():
                continue
            try:
                if self._cache.tree.lstat(view.ready) is None:
                    discard_view(self._cache, view)
                    count += 1
            finally:
                lock.release()
        return count

    def views(self) -> list[tuple[float, View]]:
        """Return every ready view with its last use, the least recently used first."""
        found = []
        with self._cache.tree.subtree(VIEWS) as tree:
            folders = [os.fsencode(name) for name in names_in(tree.root_fd)]
        for folder in folders:
            for view in self._cache.views_in(VIEWS + b"/" + folder):
                status = self._cache.tree.lstat(view.ready)
                if status is not None:
                    found.append((status.st_mtime, view))
        return sorted(found, key=lambda item: item[0])

    def _evict_one(self, keep: View) -> bool:
        for _, view in self.views():
            ready = self._receipt(view)
            if view != keep and self.evict(view):
                self._evicted(view, ready)
                return True
        return False

    def _receipt(self, view: View) -> Ready | None:
        try:
            return read_ready(self._cache, view)
        except DatasyncError:
            return None  # damaged: the view goes all the same

    def evict(self, view: View) -> bool:
        """Remove the view unless it is pinned, leased or being made; its objects go with `remove_orphans`."""
        lock = ViewLock(self._cache, view)
        if not lock.try_acquire():
            self._crossed = True  # it is being leased, or was finished just now: soon it can be told
            return False
        try:
            if self._is_kept(view):
                return False
            discard_view(self._cache, view)
            unpin(self._cache, view)
            return True
        finally:
            lock.release()
