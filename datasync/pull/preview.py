"""Plan a warm or a pull and do nothing: the steps of the real one, on trees that are only looked at.

The numbers are those that the transfer would end with, as long as nothing changes meanwhile: the files that are there,
and the ranges and bytes that `datasync.pull.plan.Plan` would ask the store for. Pages of the manifest are read, data
packs never. Raises what the transfer would raise before its first byte.
"""

from dataclasses import dataclass
from pathlib import Path

from datasync.cache.layout import Cache
from datasync.cache.look import LookedAt, Untouched
from datasync.model.entries import FILE, Entry
from datasync.pull.directory import DirectoryDestination
from datasync.pull.pipeline import Planned, plan_transfer
from datasync.pull.plan import Plan
from datasync.pull.select import Selection
from datasync.pull.target import look_at_target
from datasync.pull.view import ViewDestination
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be done, the bytes of the files that are kept, and the ids of the objects that the view shares."""

    planned: Planned
    kept_bytes: int
    shared: bytes


class _Kept:
    """Counts what the steps of a destination keep."""

    def __init__(self, destination: ViewDestination | DirectoryDestination) -> None:
        self._destination = destination
        self.bytes = 0
        self.ids = bytearray()

    def accept(self, entry: Entry, plan: Plan) -> bool:
        """Tell whether a file may have to be fetched."""
        if self._destination.accept(entry, plan):
            return True
        self.bytes += entry.size if entry.kind == FILE else 0
        return False

    def adopt(self, entry: Entry, file_id: bytes) -> bool:
        """Tell whether a file is among the objects."""
        destination = self._destination
        if not isinstance(destination, ViewDestination) or not destination.adopt(entry, file_id):
            return False
        self.bytes += entry.size
        self.ids += file_id
        return True


def preview_view(dataset: OpenDataset, snapshot: Snapshot, cache: Cache, selection: Selection) -> Preview:
    """Return what a warm into *cache*, which `look_at` opened, would do."""
    with LookedAt.look(cache) as objects:
        kept = _Kept(ViewDestination(cache.tree, objects))
        planned = plan_transfer(dataset, snapshot, kept.accept, kept.adopt, selection)
    return Preview(planned, kept.bytes, bytes(kept.ids))


def preview_directory(dataset: OpenDataset, snapshot: Snapshot, target: Path) -> Preview:
    """Return what a pull into *target* would do."""
    created = look_at_target(target)
    with Untouched.open(target if target.exists() else target.parent) as tree:
        kept = _Kept(DirectoryDestination(tree, snapshot.id, created=created))
        planned = plan_transfer(dataset, snapshot, kept.accept, kept.adopt, room=target)
    return Preview(planned, kept.bytes, b"")
