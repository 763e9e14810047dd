"""Who says that a view is ready: one rule for all commands. A view counts only with a receipt that this node signed.

`path`, `ready` and the stale fallback of `run` refuse any other (a cloned image, a disk from another machine, an edited
file). `warm` and `run` do not fetch again what such a view holds: every byte is compared with the signed snapshot, and
this node signs. Where something differs the damaged objects go to quarantine and the view is made anew. Raises
`Locked` when that view is in use by a job.
"""

from datetime import UTC, datetime
from pathlib import Path

from datasync.cache.layout import Cache, View
from datasync.cache.leases import require_unleased
from datasync.cache.ready import Ready, discard_view, read_ready, signed_text, write_ready
from datasync.errors import IntegrityError
from datasync.model.entries import FILE
from datasync.model.ids import DatasetId, SnapshotId
from datasync.pull.pipeline import Receipt
from datasync.pull.recheck import recheck
from datasync.pull.select import Selection
from datasync.repository.manifest import ManifestReader
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot
from datasync.service.node_key import check_receipt
from datasync.service.quarantine import quarantine


def check_own(directory: Path, view: View, ready: Ready) -> None:
    """Refuse a receipt that the node whose key lies in *directory* did not sign."""
    check_receipt(directory, ready.node, signed_text(ready), ready.signature, str(view.ready_path))


def is_own(directory: Path, view: View, ready: Ready) -> bool:
    """Tell whether this node signed the receipt."""
    try:
        check_own(directory, view, ready)
    except IntegrityError:
        return False
    return True


def sign_after_check(dataset: OpenDataset, snapshot: Snapshot, cache: Cache, view: View, receipt: Receipt) -> bool:
    """Make a view with another node's receipt ready here, if every byte of it is the snapshot's; else take it away.

    The caller holds the view's lock. False when there is no such view (any more).
    """
    ready = read_ready(cache, view)
    if ready is None:
        return False
    with cache.tree.subtree(view.place) as tree:
        damages = list(recheck(dataset, snapshot, tree, subset=ready.subset))
    if damages:
        for damage in damages:
            if damage.object:
                quarantine(cache, damage.object)
        require_unleased(cache, view)
        discard_view(cache, view)
        return False
    write_ready(cache, view, _ready(dataset, snapshot, ready.subset, receipt))
    return True


def _ready(dataset: OpenDataset, snapshot: Snapshot, subset: tuple[str, ...], receipt: Receipt) -> Ready:
    """Return a new receipt; nothing in it comes from the other node's."""
    selection, entries, files, size = Selection(subset), 0, 0, 0
    for listed, _ in ManifestReader(dataset.history, snapshot).entries():
        for entry in selection.chosen(listed):
            entries, files, size = entries + 1, files + (entry.kind == FILE), size + entry.size
    body = snapshot.body
    made = Ready(
        dataset=dataset.name,
        dataset_id=DatasetId(dataset.id),
        repository=receipt.repository,
        seq=body.seq,
        snapshot=SnapshotId(snapshot.id),
        root=body.manifest,
        entries=entries,
        files=files,
        bytes=size,
        completed=datetime.now(UTC).replace(microsecond=0),
        tool=receipt.tool,
        subset=subset,
        node=receipt.node,
    )
    return made.signed(receipt.sign)
