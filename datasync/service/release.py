"""Releases a dataset's key to a node: after the rights, the policy and the log have said yes, in that order.

The key goes out as a slot wrapped to the public key that the node shows (docs/format.md, section 7), with the exact
snapshot, the range that is meant, and an end. What holds by keys is the dataset and its epoch: who has the slot can
open all snapshots up to that epoch; range and end are obeyed by datasync itself and ended for good by a rotation.
Raises `NotAuthorized`, `NotFound`, `UsageError`, and as opening a dataset does.
"""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from datasync.crypto.recipients import Recipient
from datasync.errors import NotAuthorized, UsageError, WrongKey
from datasync.format.encoding import encode
from datasync.format.names import MARKER, dataset_prefix
from datasync.repository.holders import Grantee, make_slot
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot
from datasync.service.authorize import authorize
from datasync.service.borrow import Answer
from datasync.service.caller import Claims
from datasync.service.credentials import allowed_until, broker_of
from datasync.service.policy_force import decision_time
from datasync.service.principal import Principal
from datasync.service.record import Recording, recorded
from datasync.service.references import parse_reference, resolve
from datasync.service.session import Session
from datasync.storage.brokers import LONGEST_SECONDS, Credential, Scope

LONGEST_MS = LONGEST_SECONDS * 1000  # a lent key and its storage credential end together; the node asks again
ACTION = "Warm"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a node asks for: a reference, its public key, what it calls itself; where the request came from."""

    reference: str
    recipient: str
    node: str
    request: str = ""
    address: str = ""


Decide = Callable[[Session, Principal, OpenDataset, Snapshot, Recording], None]
"""Raises `NotAuthorized` unless the policy in force allows this release."""
Storage = Callable[[Session, OpenDataset, int], Credential | None]
"""Returns a credential for reading the dataset's objects until a time in ms; None where the node has its own."""


def decide(session: Session, principal: Principal, dataset: OpenDataset, snapshot: Snapshot, event: Recording) -> None:
    """Ask every policy that is in force; without one the token's rights alone decide."""
    authorize(session, ACTION, dataset, event=event, seq=snapshot.body.seq, claims=claims_of(principal))


def claims_of(principal: Principal) -> Claims:
    """Return what a policy may know *principal* as, `issuer#subject` listed among somebody's identities, and what was
    verified of it.
    """
    proved = principal.proved
    return Claims(
        (f"{principal.issuer}#{principal.subject}",),
        mfa=proved.mfa,
        attested=proved.attested,
        region=proved.region,
        purpose=proved.purpose,
        source=principal.address,
    )


def lend_storage(session: Session, dataset: OpenDataset, until: int) -> Credential | None:
    """Lend a session of the role that `[policy] role` names, for reading this dataset's objects; none without a role:
    the node reads the store with its own credential.
    """
    if session.config.credential_role is None:
        return None
    return broker_of(session).issue(Scope((MARKER, dataset_prefix(dataset.id)), until // 1000))


def release(
    session: Session, principal: Principal, asked: Asked, storage: Storage = lend_storage, policy: Decide = decide
) -> Answer:
    """Return the wrapped key for what *asked* names; recorded before it is made."""
    now = decision_time(session.config, 0)  # a clock that is set back renews no token
    reference = parse_reference(asked.reference)
    recipient = _recipient(asked)
    fields: dict[str, Any] = {
        "subject": principal.subject,
        "issuer": principal.issuer,
        "method": principal.method,
        "address": asked.address,
        "request": asked.request,
        "dataset": reference.name,
        "target": asked.node,
        "target_key": recipient.fingerprint.hex(),
    }
    with recorded(session, "key.release", security=True, **fields) as event:
        right = principal.right("warm", reference.name, now)
        dataset = session.repository.open(reference.name)
        snapshot = resolve(dataset, reference)
        seq = snapshot.body.seq
        if seq < right.first or (right.last and seq > right.last):
            raise NotAuthorized(f"{reference}: snapshot {seq} is not among {right.first} to {right.last or 'any'}")
        policy(session, principal, dataset, snapshot, event)
        longest = int(time.time() * 1000) + LONGEST_MS  # a decision's time may be ahead of the clock
        until = min(right.until or longest, longest)
        until = allowed_until(session, dataset, ACTION, until, claims_of(principal))
        if until <= now:
            raise NotAuthorized(f"{reference}: no time is left in which {ACTION} is allowed")
        credential = storage(session, dataset, until)
        if credential is not None:
            until = min(until, credential.until * 1000)
        event.note(snapshot=snapshot.id, snapshot_seq=seq, epoch=dataset.keyring.epoch, until=until)
        return Answer(
            session.config.repository or "",
            dataset.name,
            dataset.id.hex(),
            seq,
            snapshot.id.hex(),
            right.first,
            right.last,
            until,
            _slot(session, dataset, Grantee(asked.node, recipient, until=until), now),
            dict(credential.variables) if credential is not None else {},
        )


def _slot(session: Session, dataset: OpenDataset, grantee: Grantee, now: int) -> str:
    if session.identity is None:
        raise WrongKey("releasing a key needs the owner's identity: set DATASYNC_IDENTITY")
    slot = make_slot(grantee, dataset.keyring, now, session.identity.signing_key.public)
    return base64.b64encode(encode(slot)).decode()


def _recipient(asked: Asked) -> Recipient:
    if not 1 <= len(asked.node) <= 253 or not asked.node.isprintable():
        raise UsageError("node: expected a name of 1 to 253 printable characters")
    return Recipient.parse(asked.recipient)
