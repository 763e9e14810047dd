"""Set and remove tags, recorded; or say whether that would be allowed."""

from typing import Any

from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot
from datasync.repository.tags import assign, require_tagger
from datasync.service.authorize import authorize
from datasync.service.record import recorded
from datasync.service.session import Session


def set_tag(session: Session, dataset: OpenDataset, tag: str, snapshot: Snapshot | None) -> None:
    """Point *tag* at *snapshot*; None removes it."""
    fields: dict[str, Any] = {"dataset": dataset.name, "dataset_id": dataset.id, "tag": tag}
    with recorded(session, "tag.remove" if snapshot is None else "tag.set", **fields) as event:
        authorize(session, "Tag", dataset, event=event, seq=snapshot.body.seq if snapshot is not None else None)
        assign(dataset.history, tag, snapshot)
        if snapshot is not None:
            event.note(snapshot=snapshot.id, snapshot_seq=snapshot.body.seq)


def check_tag(session: Session, dataset: OpenDataset, tag: str, snapshot: Snapshot | None) -> None:
    """Raise what `set_tag` would before it writes; recorded as a look."""
    fields: dict[str, Any] = {"dataset": dataset.name, "dataset_id": dataset.id, "tag": tag}
    plan = "tag.remove" if snapshot is None else "tag.set"
    with recorded(session, "look", durable=False, plan=plan, **fields) as event:
        authorize(session, "Tag", dataset, event=event, seq=snapshot.body.seq if snapshot is not None else None)
        require_tagger(dataset.history, tag)
