"""An unmounted, emptied or vanished source must not become a mass deletion, and two different trees must not hide each
other in one dataset (the rules are pure but for the source's stat and the history that is read).
"""

from datasync.errors import UsageError
from datasync.format.snapshot import Source
from datasync.push.detect import Changes
from datasync.push.record import SourceMark
from datasync.push.scan import Skipped
from datasync.push.source import SourceTree, shown
from datasync.push.sync import Baseline
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot

LARGE_LOSS = 0.5  # of the entries known from the last push of this source
OTHER_DEVICE_LOSS = 0.1  # the same, when the root directory lies on another device now
FEW_ENTRIES = 16  # losses up to this are a person's own doing
SOURCES_LOOKED_AT = 100  # newest snapshots that are asked whether this source made one


class SourceLost(UsageError):
    """Most of the source is gone: a person has to say that it is meant."""


class SourceChanged(UsageError):
    """The newest snapshot was made from another source, and this one has never been pushed into the dataset."""


def check_source(dataset: OpenDataset, newest: Snapshot | None, source: Source) -> None:
    """Raise `SourceChanged` unless *source* made the newest snapshot or an earlier one of the dataset.

    Two sources that both have pushed are copies of one tree by their owner's word, and push in turns.
    """
    history = dataset.history
    if newest is None or not history.reads or newest.body.source.id == source.id:
        return
    for _, item in zip(range(SOURCES_LOOKED_AT), history.line(), strict=False):
        if history.read_object(item).body.source.id == source.id:
            return
    other = newest.body.source
    raise SourceChanged(
        f"dataset {dataset.name!r}: its snapshot {newest.body.seq} came from {shown(other.path)} on {other.host}: "
        f"{shown(source.path)} on {source.host} was never pushed into it: nothing was pushed; pass --source-change if "
        "it is a copy of the same tree, or another --dataset"
    )


def check_loss(
    baseline: Baseline,
    mark: SourceMark | None,
    changes: Changes,
    tree: SourceTree,
    skipped: list[Skipped],
    max_loss: float = LARGE_LOSS,
) -> None:
    """Raise `SourceLost` when this push would lose more than a person would delete between two pushes."""
    known = max(changes.known, mark.entries if mark else 0, baseline.entries_of_source)
    if not known:
        return
    if not changes.found:
        why = f"{len(skipped)} entries could not be read" if skipped else "is it mounted?"
        raise SourceLost(
            f"{tree.root}: it is empty now, the last push of it had {known} entries ({why}): nothing was pushed; "
            "pass --allow-empty if it is meant to be"
        )
    lost = max(changes.removed, known - changes.found)
    if lost > FEW_ENTRIES and changes.removed:
        lost = max(changes.removed - changes.moves.count(), known - changes.found)
    moved = mark is not None and mark.device != tree.root_stat.st_dev
    share = min(OTHER_DEVICE_LOSS, max_loss) if moved else max_loss
    if lost > FEW_ENTRIES and lost > share * known:
        where = " and its root lies on another device" if moved else ""
        raise SourceLost(
            f"{tree.root}: {lost} of the {known} entries of its last push are gone{where}: nothing was pushed; "
            "pass --allow-empty if that is meant"
        )
