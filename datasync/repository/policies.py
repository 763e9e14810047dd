"""The dataset's policy bundle: a sealed numbered object that the owners sign (docs/format.md, section 12).

What its files mean is decided above (`datasync.policy`). Read by whoever has the metadata key; valid only while owners
who are owners still, as many as the trust root asks for, have signed it. Raises `IntegrityError`, `RollbackError`.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from datasync.crypto.signatures import SigningKey
from datasync.errors import AlreadyExists, FormatError, IntegrityError, NotAuthorized, RollbackError
from datasync.format import pack as packs
from datasync.format.control import PolicyBundle, read_policy
from datasync.format.encoding import encode
from datasync.format.signed import Signature, Signed, read_signed, write_signed
from datasync.format.trust import OWNER
from datasync.model.ids import ZERO_ID
from datasync.model.limits import PACK_BYTES
from datasync.repository import numbered
from datasync.repository.control import open_control, seal_signed
from datasync.repository.local import LocalCopies
from datasync.repository.numbered import NumberedObject
from datasync.repository.snapshots import History, KeysMoved
from datasync.repository.trust import check_signatures, require_threshold

KIND = "policy"
PROPOSAL = "datasync-policy-proposal"
NOWHERE = LocalCopies(None)


@dataclass(frozen=True, slots=True)
class Published:
    """A bundle in force: its object's number, the hash of the stored bytes, its files and who signed it."""

    number: int
    digest: bytes
    created: int
    files: Mapping[str, str]
    signers: tuple[bytes, ...]


def newest_policy(history: History, copies: LocalCopies = NOWHERE, *, fresh: bool = True) -> Published | None:
    """Return the bundle in force, None where there is none; *fresh* False: the one that this machine saw last, which
    costs no request while its copy is here.
    """
    if not history.reads:
        return None  # a push-only writer can not open it: its keys alone bind it
    known = history.evidence.known.policy
    prefix = history.prefix(KIND)
    if not fresh:
        return _read(history, copies, f"{prefix}{known[0]}", known[0], None) if known[0] else None
    item = numbered.newest(history.store, prefix)
    if item is None:
        if known[0]:
            raise history.evidence.refusal(
                f"{prefix}: this machine has seen policy {known[0]}, the store has none: it was deleted", {}
            )
        return None
    found = _read(history, copies, f"{prefix}{item.number}", item.number, item)
    before = history.evidence.known
    history.evidence.note_policy(found.number, found.digest)
    history.evidence.note_time(found.created)
    if history.evidence.known != before:
        history.evidence.save()
    return found


def _read(history: History, copies: LocalCopies, name: str, number: int, item: NumberedObject | None) -> Published:
    def fetch() -> bytes:
        if item is not None:
            return numbered.read(history.store, item, limit=PACK_BYTES)
        return numbered.read_number(history.store, history.prefix(KIND), number, limit=PACK_BYTES)

    return copies.get(name, fetch, partial(_open, history, number))


def _open(history: History, number: int, data: bytes) -> Published:
    what = f"policy {number} of dataset {history.dataset.hex()[:16]}"
    opened = open_control(history.keyring, packs.POLICY, data, what)
    body = read_policy(opened.body, what)
    if body.number != number or body.dataset != history.dataset:
        raise IntegrityError(f"{what}: it says policy {body.number} of dataset {body.dataset.hex()[:16]}")
    require_threshold(opened.signers, history.trusted.root, what, at=body.created)
    return Published(number, opened.digest, body.created, dict(body.files), tuple(opened.signers))


# signing and storing


@dataclass(frozen=True, slots=True)
class PolicyProposal:
    """A bundle with the signatures that it has so far."""

    dataset: bytes
    signed: Signed

    @property
    def bundle(self) -> PolicyBundle:
        """What is proposed."""
        return read_policy(self.signed.body, "proposed policy")

    def missing(self, history: History) -> int:
        """Return how many owners have to sign it still."""
        root = history.trusted.root
        owners = root.with_role(OWNER, at=history.now())
        return max(0, root.threshold - sum(item.signer in owners for item in self.signed.signatures))


def propose_policy(history: History, files: Mapping[str, str], signer: SigningKey) -> PolicyProposal:
    """Return *files* as the next policy of the dataset, signed by *signer*."""
    number, previous = _last(history)
    body = PolicyBundle(history.dataset, number + 1, previous, history.now(), tuple(sorted(files.items())))
    encoded = encode(body)
    read_policy(encoded, "policy")
    return PolicyProposal(history.dataset, Signed(encoded, (_signature(encoded, signer),)))


def _last(history: History) -> tuple[int, bytes]:
    """Return number and hash of the newest stored policy, valid or not: one that is not has to be followed, too."""
    item = numbered.newest(history.store, history.prefix(KIND))
    if item is None:
        return 0, ZERO_ID
    data = numbered.read(history.store, item, limit=PACK_BYTES)
    return item.number, open_control(history.keyring, packs.POLICY, data, item.name).digest


def _signature(body: bytes, signer: SigningKey) -> Signature:
    return Signature(signer.public, signer.sign(KIND, body))


def cosign_policy(proposal: PolicyProposal, signer: SigningKey) -> PolicyProposal:
    """Add *signer*'s signature."""
    body = proposal.signed.body
    others = [item for item in proposal.signed.signatures if item.signer != signer.public]
    signatures = sorted([*others, _signature(body, signer)], key=lambda item: item.signer)
    return PolicyProposal(proposal.dataset, Signed(body, tuple(signatures)))


def store_policy(history: History, proposal: PolicyProposal) -> Published:
    """Store a proposal that has all its signatures; raise `KeysMoved` when another policy was first."""
    if proposal.missing(history):
        raise NotAuthorized(f"policy: {proposal.missing(history)} more owners have to sign it")
    bundle, prefix = proposal.bundle, history.prefix(KIND)
    if (bundle.dataset, (bundle.number - 1, bundle.previous)) != (history.dataset, _last(history)):
        raise KeysMoved(f"{prefix}: the proposal does not follow the present policy: make it anew")
    signed = write_signed(proposal.signed.body, list(proposal.signed.signatures))
    data = seal_signed(history.keyring.sealing(packs.POLICY), packs.POLICY, signed)
    try:
        numbered.create(history.store, prefix, bundle.number, data, hashed=history.hashed)
    except AlreadyExists:
        raise KeysMoved(f"{prefix}: another policy was first: run the same line again") from None
    found = newest_policy(history)
    if found is None:
        raise RollbackError(f"{prefix}: policy {bundle.number} was stored and is not listed")
    return found


def reissue(history: History) -> None:
    """Sign the policy anew as this identity, so that it outlives the owner who made it.

    Where several owners have to sign, that is left to them (`policy apply`); until then nothing is decided by it.
    """
    present = newest_policy(history)
    if present is None or history.signer is None or history.trusted.root.threshold > 1:
        return
    store_policy(history, propose_policy(history, present.files, history.signer))


# a proposal as a file


def write_policy_proposal(proposal: PolicyProposal) -> str:
    """Return the file's text: JSON."""
    signed = write_signed(proposal.signed.body, list(proposal.signed.signatures))
    fields = {"format": PROPOSAL, "dataset": proposal.dataset.hex(), "policy": base64.b64encode(signed).decode()}
    return json.dumps(fields, indent=1) + "\n"


def read_policy_proposal(text: str, what: str) -> PolicyProposal:
    """Return the proposal in *text*; its signatures hold."""
    try:
        fields = json.loads(text)
        if fields["format"] != PROPOSAL:
            raise ValueError("another format")
        dataset, data = bytes.fromhex(fields["dataset"]), base64.b64decode(fields["policy"], validate=True)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(f"{what}: expected a proposal that `datasync policy apply` wrote") from None
    signed = read_signed(data, what)
    check_signatures(signed, KIND, what)
    read_policy(signed.body, what)
    return PolicyProposal(dataset, signed)
