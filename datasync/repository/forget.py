"""Forget snapshots: say so first, signed, with each one's signed header; then delete their objects.

Write order: the forgotten object, then the deletions. A run that is killed between leaves snapshots that are forgotten
and still lie there: readers refuse them, and `sweep` removes them later. The snapshot of the newest head, and any above
it, is never forgotten. Packs stay; what nothing refers to any more is `prune`'s.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from datasync.errors import NotFound, UsageError
from datasync.format.control import ForgottenEntry
from datasync.repository import forgotten, numbered
from datasync.repository.ahead import ahead
from datasync.repository.numbered import NumberedObject
from datasync.repository.removal import Kept, Remove
from datasync.repository.retention import Dated
from datasync.repository.snapshots import History, Snapshot
from datasync.repository.tags import read_all

BATCH = 1_024  # snapshots of one forgotten object at most
READERS = 4


@dataclass(frozen=True, slots=True)
class Living:
    """The snapshots that are not forgotten, newest first, and the seq from which on none may be."""

    snapshots: list[Dated]
    protected: int


def living(history: History) -> Living:
    """Return every snapshot that is not forgotten, with its tags; memory is a few words for each."""
    newest = history.newest(fresh=False)
    if newest is None:
        raise NotFound(f"dataset {history.dataset.hex()[:16]}: it has no snapshot yet: push it")
    tags: dict[bytes, list[str]] = {}
    for name, item in read_all(history).items():
        tags.setdefault(item.snapshot, []).append(name)
    found = [
        Dated(snapshot.body.seq, snapshot.id, snapshot.body.created, tuple(sorted(tags.get(snapshot.id, ()))))
        for snapshot in ahead(history.read_object, history.line(), threads=READERS, window=2 * READERS)
    ]
    return Living(found, newest.body.seq)


def forget(history: History, chosen: Sequence[Dated], remove: Remove) -> list[Kept]:
    """Forget the *chosen* snapshots; return their objects that the store keeps all the same."""
    forgotten.require_owner(history)
    head = history.head()
    protected = head.head.seq if head else 0
    for item in chosen:
        if item.seq >= protected:
            raise UsageError(
                f"snapshot {item.seq}: it is the newest, or above the newest head: it is never forgotten; push first"
            )
    _refuse_newly_tagged(history, chosen)
    rest = iter(chosen)
    while batch := list(islice(rest, BATCH)):
        found = list(ahead(partial(_read, history), batch, threads=READERS, window=2 * READERS))
        entries = [ForgottenEntry(item.body.seq, item.id, item.signed) for item in found if item is not None]
        if entries:
            forgotten.declare(history, entries)
    return sweep(history, remove)


def _refuse_newly_tagged(history: History, chosen: Sequence[Dated]) -> None:
    """Refuse what was tagged since it was chosen: whoever tagged it wants it kept."""
    seen = {item.id: item for item in chosen}
    for name, tag in read_all(history).items():
        item = seen.get(tag.snapshot)
        if item is not None and name not in item.tags:
            raise UsageError(
                f"snapshot {item.seq}: the tag {name!r} was set meanwhile: nothing was forgotten; run the same line "
                "again and look at what it would forget"
            )


def _read(history: History, item: Dated) -> Snapshot | None:
    """Return the snapshot, None when another owner has forgotten it meanwhile."""
    found = history.find(item.seq, expected=item.id)
    if found is None and forgotten.refresh(history).find(item.seq, item.id) is None:
        raise history.deleted(item.seq, item.id)
    return found


def sweep(history: History, remove: Remove) -> list[Kept]:
    """Delete the objects of forgotten snapshots that are still there; return those that the store keeps."""
    table = forgotten.refresh(history)
    if not table.count():
        return []
    return remove(item.name for item in _left(history) if table.has(item.number, item.digest))


def _left(history: History) -> Iterator[NumberedObject]:
    return numbered.entries(history.store, history.prefix("snapshots"))
