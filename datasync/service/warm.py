"""Pull a snapshot into a directory, or warm it into the node's cache:
one transfer per node, the others wait and share.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datasync.cache.layout import Cache
from datasync.cache.locks import ViewLock
from datasync.cache.ready import Ready, read_ready
from datasync.errors import UsageError
from datasync.model.ids import DatasetId, SnapshotId
from datasync.pull.pipeline import Progress, PullResult, pull_to_directory, warm_view
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot
from datasync.service.references import parse_reference, resolve
from datasync.service.session import TOOL, Session

Report = Callable[[Progress], None]


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


def pull(session: Session, reference: str, target: Path, report: Report) -> Pulled:
    """Make the directory *target* hold the snapshot that *reference* means."""
    dataset, snapshot = _find(session, reference)
    return Pulled(dataset.name, snapshot, target, pull_to_directory(dataset, snapshot, target, report))


def warm(session: Session, reference: str, report: Report, waiting: Callable[[], None] | None = None) -> Warmed:
    """Return a ready view of what *reference* means; *waiting* is called while another process makes it."""
    dataset, snapshot = _find(session, reference)
    with Cache.open(session.config.cache) as cache:
        view = cache.view(dataset.name, snapshot.body.seq, SnapshotId(snapshot.id))
        ready = _ready(read_ready(cache, view), dataset, snapshot)
        if ready:
            return Warmed(dataset.name, snapshot, view.path, None)
        cache.make_folder(view)
        lock = ViewLock(cache, view)
        lock.acquire(waiting)
        try:
            if _ready(read_ready(cache, view), dataset, snapshot):
                return Warmed(dataset.name, snapshot, view.path, None)
            repository = bytes.fromhex(session.repository.marker.repository)
            result = warm_view(dataset, snapshot, cache, view, repository, TOOL, report)
        finally:
            lock.release()
        return Warmed(dataset.name, snapshot, view.path, result)


def _find(session: Session, reference: str) -> tuple[OpenDataset, Snapshot]:
    parsed = parse_reference(reference)
    dataset = session.repository.open(parsed.name)
    return dataset, resolve(dataset, parsed)


def _ready(ready: Ready | None, dataset: OpenDataset, snapshot: Snapshot) -> bool:
    if ready is not None:
        ready.check(DatasetId(dataset.id), SnapshotId(snapshot.id))
    return ready is not None


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
