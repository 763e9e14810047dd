"""Prune datasets: what no snapshot needs is condemned, and deleted after the grace time.

Recorded as a security event, with its intent, before anything is condemned or deleted; a dry run is only noted. The
policy decides (`Prune`; where it asks for two people, with a second owner's grant); keys enforce that an owner or
writer signs the list.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from datasync.errors import UsageError
from datasync.format.trust import OWNER, WRITER
from datasync.repository.condemned import GRACE_MS
from datasync.repository.prune import Pruned, PruneOptions
from datasync.repository.prune import prune as prune_dataset
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import DAY_MS
from datasync.service.authorize import authorize
from datasync.service.record import recorded
from datasync.service.removal import remover
from datasync.service.session import Session


def prune(
    session: Session, names: Iterable[str], options: PruneOptions, report: Callable[[Pruned], None]
) -> Iterator[tuple[str, Pruned]]:
    """Yield each dataset's name (by default of all that open and that this identity writes) and what was done."""
    check(options)
    for dataset in _datasets(session, list(names)):
        fields: dict[str, Any] = {"dataset": dataset.name, "dataset_id": dataset.id, "dry_run": options.dry_run or None}
        with recorded(session, "prune", security=not options.dry_run, **fields) as event:
            authorize(session, "Prune", dataset, event=event)
            done = prune_dataset(dataset.history, options, remover(session), report)
            event.note(condemned=done.condemned, deleted=done.deleted, repacked=done.repacked)
            event.note(bytes=done.deleted_bytes, kept=len(done.kept) or None)
        yield dataset.name, done


def check(options: PruneOptions) -> None:
    """Refuse options under which a push could lose what it relies on, or that mean nothing."""
    if options.grace < GRACE_MS:
        raise UsageError(
            f"--grace: expected {GRACE_MS // DAY_MS}d or more: for so long a push on any machine may rely on packs "
            "that it saw before they were condemned"
        )
    if not 0 <= options.max_unused <= 1:
        raise UsageError(f"--max-unused: expected 0% to 100%, found {options.max_unused:.0%}")


def _datasets(session: Session, names: list[str]) -> list[OpenDataset]:
    if names:
        return [session.repository.open(name) for name in dict.fromkeys(names)]
    return [dataset for dataset in session.repository.open_all()[0] if _writes(dataset)]


def _writes(dataset: OpenDataset) -> bool:
    signer = dataset.history.signer
    return signer is not None and signer.public in dataset.trusted.root.with_role(
        OWNER | WRITER, at=dataset.history.now()
    )
