"""What removed signers left behind and nobody accepts: shown, accepted, or removed (an owner's decision).

Each is asked of the policy and recorded before it is done. Raises `NotAuthorized` for who does not own the dataset,
`NotFound` when there is nothing to settle.
"""

from dataclasses import dataclass

from datasync.crypto.signatures import signer_text
from datasync.errors import NotFound, UsageError
from datasync.repository import amend, settle, succession
from datasync.repository.repository import OpenDataset
from datasync.repository.settle import Refused
from datasync.repository.succession import Change, Mark
from datasync.service.access import Changed, signer_of, store
from datasync.service.authorize import authorize
from datasync.service.record import recorded, refusals
from datasync.service.session import Session


@dataclass(frozen=True, slots=True)
class Unsettled:
    """What is refused: objects that can be removed, and snapshots, by signer, that can be accepted instead."""

    dataset: OpenDataset
    refused: list[Refused]
    late: dict[bytes, Mark]

    @property
    def lines(self) -> list[str]:
        """What a person reads."""
        accept = [
            f"snapshot {seq} ({digest.hex()[:16]}) of {_who(self.dataset, signer)} was made after its removal"
            for signer, (seq, digest) in self.late.items()
        ]
        return [*accept, *(item.why for item in self.refused)]


def look(session: Session, name: str) -> Unsettled:
    """Return what is refused of the dataset for its signer alone."""
    with refusals(session, "key.settle", dataset=name):
        dataset = session.repository.open(name)
        succession.require_owner(dataset)
    return Unsettled(dataset, settle.refused(dataset.history), settle.late(dataset))


def accept(session: Session, name: str) -> Changed:
    """Accept what removed signers made, up to their newest snapshots."""
    found = look(session, name)
    dataset = found.dataset
    if not found.late:
        raise NotFound(f"dataset {name!r}: no snapshot of a removed signer waits to be accepted")
    authorize(session, "ManageKeys", dataset)
    signer = signer_of(session)
    proposal = amend.propose(dataset, Change(None, succession.mark_removed(dataset, found.late)), signer)
    missing = proposal.missing(dataset)
    if missing > 0:
        return Changed(dataset, proposal, missing)
    with recorded(session, "key.settle", security=True, dataset=name, accepted=len(found.late)):
        return store(session, dataset, proposal, signer)


def remove(session: Session, name: str) -> list[Refused]:
    """Delete the newest objects of who may not sign them; a copy of each stays on this machine."""
    found = look(session, name)
    if not found.refused and found.late:
        raise UsageError(f"dataset {name!r}: snapshots of others follow the refused ones: they can only be accepted")
    if not found.refused:
        raise NotFound(f"dataset {name!r}: nothing is refused")
    authorize(session, "ManageKeys", found.dataset)
    with recorded(session, "key.settle", security=True, dataset=name, objects=len(found.refused)):
        settle.remove(found.dataset.history, found.refused)
    return found.refused


def _who(dataset: OpenDataset, signer: bytes) -> str:
    """Return the name of a principal, removed or not, and its signer."""
    item = next(item for item in dataset.trusted.root.principals if item.signer == signer)
    name = dataset.keyring.open_label("principal", signer, item.label).name
    short = f"{signer_text(signer)[:16]}…"
    return f"{name} ({short})" if name else short
