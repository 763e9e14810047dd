"""Proofs for somebody who has no log: one event is in it, or a later log continues an earlier one.

A proof is JSON that docs/verify_proof.py checks with the log's public key alone. Making one verifies the whole log.
Raises `NotFound` for an event that is not there.
"""

import base64
from typing import Any

from datasync.audit.checkpoint import Checkpoint, parse_note, verifier_key
from datasync.audit.event import Event, encode
from datasync.audit.merkle import Leaves, consistency_proof, inclusion_proof
from datasync.audit.primitives import Primitives
from datasync.audit.segments import LogFiles
from datasync.audit.verify import verify_log
from datasync.errors import NotFound

KIND = "datasync audit proof"


def prove_event(p: Primitives, files: LogFiles, seq: int) -> dict[str, Any]:
    """Return the proof that event *seq* is in the log."""
    leaves = Leaves(p.sha256, files.frontier(p))
    kept: list[Event] = []

    def each(number: int, event: Event, leaf: bytes) -> None:
        leaves.append(leaf)
        if number == seq:
            kept.append(event)

    done = verify_log(p, files, each=each)
    if not kept:
        raise NotFound(f"log {done.log}: no event {seq}: it has {done.begins} … {done.size - 1}")
    return _proof(
        p,
        files,
        done.note,
        "inclusion",
        seq=seq,
        event=encode(kept[0]).decode(),
        path=_text(inclusion_proof(leaves, seq)),
    )


def prove_growth(p: Primitives, files: LogFiles, old: Checkpoint) -> dict[str, Any]:
    """Return the proof that the log continues the one that *old* is the checkpoint of."""
    leaves = Leaves(p.sha256, files.frontier(p))
    done = verify_log(p, files, kept=[old], each=lambda _, __, leaf: leaves.append(leaf))
    path = _text(consistency_proof(leaves, old.size)) if old.size else []
    return _proof(p, files, done.note, "consistency", old=old.text, path=path)


def _proof(p: Primitives, files: LogFiles, note: str, what: str, **fields: Any) -> dict[str, Any]:
    checkpoint, _ = parse_note(note)
    return {
        "kind": KIND,
        "proves": what,
        "log": checkpoint.log,
        "size": checkpoint.size,
        **fields,
        "checkpoint": note,
        "key": verifier_key(p, files.public),
    }


def _text(hashes: list[bytes]) -> list[str]:
    return [base64.b64encode(item).decode() for item in hashes]
