"""An unmounted, emptied or vanished source must not become a mass deletion
(the rule is pure but for the source's stat).
"""

from datasync.errors import UsageError
from datasync.push.detect import Changes
from datasync.push.record import SourceMark
from datasync.push.scan import Skipped
from datasync.push.source import SourceTree
from datasync.push.sync import Baseline

LARGE_LOSS = 0.5  # of the entries known from the last push of this source
OTHER_DEVICE_LOSS = 0.1  # the same, when the root directory lies on another device now
FEW_ENTRIES = 16  # losses up to this are a person's own doing


def check_loss(
    baseline: Baseline, mark: SourceMark | None, changes: Changes, tree: SourceTree, skipped: list[Skipped]
) -> None:
    """Raise `UsageError` when this push would lose more than a person would delete between two pushes."""
    known = max(changes.known, mark.entries if mark else 0, baseline.entries_of_source)
    if not known:
        return
    if not changes.found:
        why = f"{len(skipped)} entries could not be read" if skipped else "is it mounted?"
        raise UsageError(
            f"{tree.root}: it is empty now, the last push of it had {known} entries ({why}): nothing was pushed; "
            "pass --allow-empty if it is meant to be"
        )
    lost = max(changes.removed, known - changes.found)
    moved = mark is not None and mark.device != tree.root_stat.st_dev
    share = OTHER_DEVICE_LOSS if moved else LARGE_LOSS
    if lost > FEW_ENTRIES and lost > share * known:
        where = " and its root lies on another device" if moved else ""
        raise UsageError(
            f"{tree.root}: {lost} of the {known} entries of its last push are gone{where}: nothing was pushed; "
            "pass --allow-empty if that is meant"
        )
