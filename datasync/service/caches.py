"""The node's cache directories, used together: each view lies on one disk, views are spread over disks (design §5).

A directory that can not be used (a disk that died, a lost mount) is dropped with a word; what it held is fetched
again elsewhere.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from datasync.cache.layout import Cache, View
from datasync.cache.ready import Ready, read_ready
from datasync.crypto.hashing import hash_bytes
from datasync.errors import DatasyncError, NoSpace, NotFound
from datasync.model.ids import DatasetId, SnapshotId
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot

Place = tuple[Cache, View]
PROBE_BYTES = 4096


@contextlib.contextmanager
def open_caches(
    paths: tuple[Path, ...], warn: Callable[[str], None], how: Callable[[Path], Cache] = Cache.open
) -> Iterator[list[Cache]]:
    """Yield the directories that work, opened by *how*; raise what the only one, or the last one, says."""
    with contextlib.ExitStack() as stack:
        found: list[Cache] = []
        failure: DatasyncError | None = None
        for path in paths:
            try:
                found.append(stack.enter_context(how(path)))
            except DatasyncError as error:
                failure = error
                if len(paths) > 1:
                    warn(f"cache directory {path} is left out: {error}")
        if not found:
            raise failure or NotFound("no cache directory is configured")
        yield found


def drop_dead(caches: list[Cache], warn: Callable[[str], None], error: Exception) -> bool:
    """Drop the directories whose disk takes no write any more, if others are left; tell whether *error* is theirs."""
    dead = [cache for cache in caches if not _takes_writes(cache)]
    if not dead or len(dead) == len(caches):
        return False
    for cache in dead:
        warn(f"cache directory {cache.path} is left out: it can not be written any more: {error}")
        caches.remove(cache)
    return True


def _takes_writes(cache: Cache) -> bool:
    """Try a short write; a full disk is not a dead one."""
    name = b".probe-" + os.urandom(8).hex().encode()
    try:
        fd = cache.tree.create(name, 0o600)
        try:
            os.write(fd, bytes(PROBE_BYTES))
            os.fsync(fd)
        finally:
            os.close(fd)
            cache.tree.remove(name)
    except NoSpace:
        return True
    except DatasyncError:
        return False
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return True


def view_in(cache: Cache, dataset: OpenDataset, snapshot: Snapshot, part: str = "") -> View:
    """Return the places of the snapshot's view in *cache*."""
    return cache.view(dataset.name, snapshot.body.seq, SnapshotId(snapshot.id), part)


def part_name(subset: tuple[str, ...]) -> str:
    """Return the name of the part of a snapshot that *subset* chooses: 8 hex digits, empty for the whole."""
    return hash_bytes("\0".join(subset).encode("utf-8", "surrogateescape")).hex()[:8] if subset else ""


def find_ready(
    caches: list[Cache],
    dataset: OpenDataset,
    snapshot: Snapshot,
    warn: Callable[[str], None],
    part: str,
    counts: Callable[[View, Ready], bool],
) -> Place | None:
    """Return where the snapshot is ready, checked against what was asked for, with a receipt that *counts*."""
    for cache in caches:
        view = view_in(cache, dataset, snapshot, part)
        try:
            ready = read_ready(cache, view)
        except DatasyncError as error:
            if len(caches) == 1:
                raise
            warn(f"cache directory {cache.path}: {error}")
            continue
        if ready is not None:
            ready.check(DatasetId(dataset.id), SnapshotId(snapshot.id))
            if counts(view, ready):
                return cache, view
    return None


def choose(caches: list[Cache], dataset: OpenDataset, snapshot: Snapshot, part: str = "") -> Place:
    """Return where to make the view: where a dead transfer began it, else beside another of the dataset, to share
    files, else where most is free.
    """

    def merit(cache: Cache) -> tuple[bool, int, int]:
        status = os.statvfs(cache.tree.root_fd)
        begun = cache.tree.lstat(view_in(cache, dataset, snapshot, part).staging) is not None
        shares = sum(1 for _ in cache.views(dataset.name))
        return begun, shares, status.f_bavail * status.f_frsize

    best = max(caches, key=merit)
    return best, view_in(best, dataset, snapshot, part)


def newest_local(
    caches: list[Cache], name: str, counts: Callable[[View, Ready], bool]
) -> tuple[Cache, View, Ready] | None:
    """Return the newest complete view of the dataset called *name* on this node whose receipt *counts*, whatever the
    repository has.
    """
    found = []
    for cache in caches:
        for view in _views(cache, name):
            ready = _receipt(cache, view)
            if ready is not None and ready.dataset == name and not ready.subset and counts(view, ready):
                found.append((cache, view, ready))
    return max(found, key=lambda item: item[2].seq, default=None)


def _views(cache: Cache, name: str) -> list[View]:
    try:
        return list(cache.views(name))
    except DatasyncError:
        return []  # a disk that died: what another one has counts


def _receipt(cache: Cache, view: View) -> Ready | None:
    try:
        return read_ready(cache, view)
    except DatasyncError:
        return None  # a damaged view is none to fall back to; an older one may be whole
