"""Pull a snapshot into a directory, or warm it into the node's cache:
one transfer per node, the others wait and share.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datasync.cache.layout import Cache, View
from datasync.cache.leases import Lease, note_use, take_lease
from datasync.cache.locks import ViewLock
from datasync.cache.space import Limits
from datasync.errors import NotFound, UsageError
from datasync.pull.pipeline import Progress, PullResult, pull_to_directory, warm_view
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot
from datasync.service.caches import choose, find_ready, open_caches
from datasync.service.node import receipt
from datasync.service.references import parse_reference, resolve
from datasync.service.session import TOOL, Session

Report = Callable[[Progress], None]


class HeldLease:
    """A lease with the cache that it belongs to."""

    def __init__(self, cache: Cache, lease: Lease) -> None:
        self._cache = cache
        self._lease = lease

    def beat(self) -> None:
        """Show that the job is alive."""
        self._lease.beat()

    def release(self) -> None:
        """End the lease."""
        self._lease.release()
        self._cache.close()


def hold(root: Path, view: View) -> HeldLease:
    """Lease *view* of the cache at *root*; the lease keeps the cache open."""
    cache = Cache.open(root)
    try:
        return HeldLease(cache, take_lease(cache, view))
    except BaseException:
        cache.close()
        raise


@dataclass(frozen=True, slots=True)
class Pulled:
    """A snapshot that was pulled."""

    dataset: str
    snapshot: Snapshot
    path: Path
    result: PullResult


@dataclass(frozen=True, slots=True)
class Warmed:
    """A view that is ready; `result` is None when it was ready before."""

    dataset: str
    snapshot: Snapshot
    path: Path
    result: PullResult | None
    lease: HeldLease | None = None


def pull(session: Session, reference: str, target: Path, report: Report) -> Pulled:
    """Make the directory *target* hold the snapshot that *reference* means."""
    dataset, snapshot = _find(session, reference)
    return Pulled(dataset.name, snapshot, target, pull_to_directory(dataset, snapshot, target, report))


def warm(
    session: Session, reference: str, report: Report, waiting: Callable[[], None] | None = None, *, lease: bool = False
) -> Warmed:
    """Return a ready view of what *reference* means; *waiting* is called while another process makes it, or room.

    With *lease* the view is held until `Warmed.lease` is released: a job reads it.
    """
    dataset, snapshot = _find(session, reference)
    config = session.config
    with open_caches(config.caches, session.warn) as caches:
        result, place = None, find_ready(caches, dataset, snapshot, session.warn)
        while True:
            if place is None:
                result, place = _make(session, caches, dataset, snapshot, report, waiting)
            cache, view = place
            note_use(cache, view)
            try:
                held = hold(view.path.parents[2], view) if lease else None
            except NotFound:  # evicted between the look and the lease
                place = None
                continue
            return Warmed(dataset.name, snapshot, view.path, result, held)


def _make(
    session: Session,
    caches: list[Cache],
    dataset: OpenDataset,
    snapshot: Snapshot,
    report: Report,
    waiting: Callable[[], None] | None,
) -> tuple[PullResult | None, tuple[Cache, View]]:
    cache, view = choose(caches, dataset, snapshot)
    limits = Limits(session.config.cache_max, session.config.cache_reserve)
    lock = ViewLock(cache, view)
    lock.acquire(waiting)
    try:
        place = find_ready(caches, dataset, snapshot, session.warn)
        if place is not None:
            return None, place
        signed = receipt(session.config.evidence.parent, session.repository.marker.repository, TOOL)
        return warm_view(dataset, snapshot, cache, view, limits, signed, report, waiting), (cache, view)
    finally:
        lock.release()


def _find(session: Session, reference: str) -> tuple[OpenDataset, Snapshot]:
    parsed = parse_reference(reference)
    dataset = session.repository.open(parsed.name)
    return dataset, resolve(dataset, parsed)


def variables(dataset: str) -> tuple[str, str]:
    """Return the names of the variables that tell a job the path and the snapshot (design §5)."""
    suffix = re.sub(r"[^A-Z0-9]", "_", dataset.upper())
    return f"DATASYNC_DATASET_{suffix}", f"DATASYNC_SNAPSHOT_{suffix}"


def environment_of(warmed: list[Warmed]) -> dict[str, str]:
    """Return the variables for a job that reads *warmed*; two datasets that would share a name are refused."""
    found: dict[str, str] = {}
    for item in warmed:
        path, snapshot = variables(item.dataset)
        if path in found:
            raise UsageError(f"{path}: two datasets would set this variable: run them with different names")
        found[path] = str(item.path)
        found[snapshot] = item.snapshot.id.hex()
    return found
