"""Offline grants: an owner's signed word that a machine may do something with a dataset until a time.

A grant stands where no policy permits, it never overrules a denial, and it carries no key. A second owner's grant of
the very action counts as an approval (two-person rule).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.crypto.signatures import parse_signer, signer_text
from datasync.errors import DatasyncError, UsageError, WrongKey
from datasync.format.grant import Grant
from datasync.policy.model import ACTIONS
from datasync.repository import grants, succession
from datasync.service.authorize import authorize, in_force
from datasync.service.caller import Caller, caller_of, grant_line
from datasync.service.record import recorded
from datasync.service.session import Session

APPROVED = frozenset({"Prune", "Shred"})  # what needs a second person


@dataclass(frozen=True, slots=True)
class WantedGrant:
    """What a grant shall say: the machine's or identity's signer, actions, until when (ms), and the snapshots."""

    signer: str
    actions: tuple[str, ...]
    until: int
    first: int = 0
    last: int = 0
    region: str = ""
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class KnownGrant:
    """A grant that this machine was given; *refused* says why it does not hold, empty when it does."""

    path: Path
    grant: Grant | None
    issuer: str
    refused: str


def issue(session: Session, name: str, wanted: WantedGrant) -> str:
    """Return a grant as the line that the machine gets; recorded before it is signed."""
    unknown = [action for action in wanted.actions if action not in ACTIONS]
    if unknown or not wanted.actions:
        raise UsageError(f"action {''.join(unknown[:1])!r}: expected some of {', '.join(ACTIONS)}")
    signer = parse_signer(wanted.signer)
    dataset = session.repository.open(name)
    succession.require_owner(dataset)
    authorize(session, "ManageKeys", dataset)
    now = dataset.history.now()
    if wanted.until <= now:
        raise UsageError("until: expected a time to come")
    owners = dataset.trusted.root.threshold
    if owners > 1 and not set(wanted.actions) <= APPROVED:
        raise UsageError(
            f"dataset {name!r}: {owners} owners have to sign what changes access: one owner's grant is an approval of "
            f"{' or '.join(sorted(APPROVED))} and no more: let them grant by policy"
        )
    if session.identity is None:
        raise WrongKey("granting needs an identity: set DATASYNC_IDENTITY")
    policies = [item.engine.digest for item in in_force(session, dataset) if item.source == dataset.name]
    grant = Grant(
        dataset.id,
        now,
        wanted.until,
        signer,
        tuple(sorted(set(wanted.actions))),
        wanted.first,
        wanted.last,
        bytes.fromhex(policies[0]) if policies else b"",
        wanted.region,
        wanted.purpose,
    )
    fields: dict[str, Any] = {"dataset": name, "dataset_id": dataset.id, "target": wanted.signer}
    fields |= {"actions": " ".join(grant.actions), "until": wanted.until, "policy": policies[0] if policies else None}
    with recorded(session, "policy.grant", security=True, **fields):
        return grants.issue(grant, session.identity.signing_key)


def known(session: Session, name: str) -> tuple[Caller, list[KnownGrant]]:
    """Return who this machine is, and its grants for the dataset *name*, those that do not hold included."""
    dataset, caller = session.repository.open(name), caller_of(session)
    keys = frozenset({caller.node} | ({caller.signer} if caller.signer is not None else set()))
    found = []
    for path in session.config.grants:
        try:
            line = grant_line(path)
            grant, issuer = grants.check_grant(line, dataset.id, dataset.trusted.root, keys, dataset.history.now())
            found.append(KnownGrant(path, grant, signer_text(issuer), ""))
        except DatasyncError as error:
            found.append(KnownGrant(path, None, "", str(error)))
    return caller, found
