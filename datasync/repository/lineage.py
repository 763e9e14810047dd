"""The line of snapshots: each names the one before it by hash, through those that were forgotten
(docs/format.md, sections 11 to 13).

Decides whether a snapshot may be believed beside what is known: the high-water mark of this machine, and the last one
that was accepted of a removed writer. Raises `RollbackError` for a fork, `IntegrityError` for what was replaced.
"""

from typing import TYPE_CHECKING

from datasync.errors import IntegrityError
from datasync.repository import forgotten
from datasync.repository.trust import WRITERS

if TYPE_CHECKING:
    from datasync.repository.snapshots import History, Snapshot


def previous_of(history: "History", seq: int, digest: bytes) -> bytes:
    """Return the id that snapshot *seq* of id *digest* follows, whether it is there or was forgotten."""
    gone = history.forgotten.find(seq, digest)
    if gone is None:
        found = history.find(seq, expected=digest)
        if found is not None:
            return found.body.previous
        gone = forgotten.refresh(history).find(seq, digest)
    if gone is None:
        raise history.deleted(seq, digest)
    return gone.previous


def check_removed(history: "History", snapshot: "Snapshot") -> None:
    """Refuse a snapshot of a removed writer that the last one accepted from it does not descend from: its key can
    still sign another object for an old number.
    """
    mark = history.trusted.root.with_role(WRITERS, removed=True)[snapshot.signer].removed
    if mark is None:
        return
    seq, known = mark
    while seq > snapshot.body.seq:
        if known not in history.ancestors:
            history.ancestors[known] = previous_of(history, seq, known)
        seq, known = seq - 1, history.ancestors[known]
    if known != snapshot.id:
        raise IntegrityError(
            f"{snapshot.name}: expected {known.hex()[:16]}, found another one of a removed writer: it was replaced"
        )


def note(history: "History", snapshot: "Snapshot") -> None:
    """Advance the high-water mark to *snapshot*; refuse unless it and the mark are of one line.

    A head may name a snapshot below the mark: the writer of the marked one died before its head, or is about to
    write it. Then the marked one must still be there.
    """
    seq, digest = history.evidence.known.snapshot
    if snapshot.body.seq < seq:
        _check_descends(history, _marked(history, seq, digest), snapshot.body.seq, snapshot.id)
        return
    if seq and snapshot.body.seq > seq:
        _check_descends(history, snapshot, seq, bytes.fromhex(digest))
    history.evidence.note_snapshot(snapshot.body.seq, snapshot.id, snapshot.signed)
    history.evidence.note_time(snapshot.body.created)


def _marked(history: "History", seq: int, digest: str) -> "Snapshot":
    """Return the marked snapshot; it is above the newest head's, so it was not forgotten."""
    try:
        found = history.find(seq, expected=bytes.fromhex(digest))
    except IntegrityError as error:
        raise history.evidence.refusal(f"snapshot {seq}: this machine has seen it: {error}", {}) from None
    if found is None:
        why = history.deleted(seq, bytes.fromhex(digest))
        raise history.evidence.refusal(f"snapshot {seq}: this machine has seen it: {why}", {})
    return found


def _check_descends(history: "History", newer: "Snapshot", seq: int, digest: bytes) -> None:
    at, previous = newer.body.seq, newer.body.previous
    while at > seq + 1:
        at, previous = at - 1, previous_of(history, at - 1, previous)
    if previous != digest:
        raise history.evidence.refusal(
            f"snapshot {seq}: expected {digest.hex()[:16]}…, "
            f"snapshot {seq + 1} of the line to {newer.name} follows {previous.hex()[:16]}…: history was forked",
            {newer.name: newer.signed},
        )
