"""Storing a `Change` that enough owners have signed.

Where one owner is enough, `propose` signs it. Else the proposal goes from owner to owner as a file: each
signs it (`cosign`), and whoever completes it stores it. Order of writing: keyset, head, tags and condemned list anew,
trust root. A crash between two leaves a state that every reader accepts; the same command then goes on. Raises
`KeysMoved` when another owner was first, `IntegrityError` for a proposal that was changed.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass

from datasync.crypto.signatures import SigningKey
from datasync.errors import AlreadyExists, FormatError, IntegrityError, NotAuthorized
from datasync.format import signed as plain
from datasync.format.keyset import read_keyset, write_keyset
from datasync.format.signed import Signature, Signed, read_signed, write_plain, write_signed
from datasync.format.trust import OWNER, TrustRoot, read_trust, write_trust
from datasync.repository import condemned, forgotten, numbered, policies, tags
from datasync.repository.forbidden import forbidden
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import History, KeysMoved
from datasync.repository.succession import Change
from datasync.repository.trust import check_signatures

FORMAT = "datasync-proposal"
Reopen = Callable[[], OpenDataset]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change with the signatures that it has so far."""

    dataset: bytes
    keyset: Signed | None
    trust: Signed | None

    @property
    def change(self) -> Change:
        """The change that is proposed."""
        return Change(
            read_keyset(self.keyset.body, "proposed keyset") if self.keyset else None,
            read_trust(self.trust.body, "proposed trust root") if self.trust else None,
        )

    def missing(self, dataset: OpenDataset) -> int:
        """Return how many owners have to sign it still, those of the root before and after it."""
        keyset, trust = self.change.keyset, self.change.trust
        roots = [dataset.trusted.root] + ([trust] if trust else [])
        parts = []
        if keyset is not None and self.keyset is not None:
            parts += [(self.keyset, root, keyset.created) for root in roots]
        if trust is not None and self.trust is not None:
            parts.append((self.trust, roots[0], trust.created))
        return max(
            root.threshold - sum(item.signer in root.with_role(OWNER, at=at) for item in part.signatures)
            for part, root, at in parts
        )

    def owners(self, dataset: OpenDataset) -> frozenset[bytes]:
        """Return the owners who have signed all of it."""
        owners = frozenset(dataset.trusted.root.with_role(OWNER, at=dataset.history.now()))
        parts = [part for part in (self.keyset, self.trust) if part is not None]
        return owners.intersection(*({item.signer for item in part.signatures} for part in parts))


def propose(dataset: OpenDataset, change: Change, signer: SigningKey) -> Proposal:
    """Return *change*, signed by *signer*."""
    keyset = _sign("keyset", write_keyset(change.keyset), signer) if change.keyset else None
    trust = _sign("trust", write_trust(change.trust), signer) if change.trust else None
    return Proposal(dataset.id, keyset, trust)


def _sign(kind: str, body: bytes, signer: SigningKey) -> Signed:
    return Signed(body, (Signature(signer.public, signer.sign(kind, body)),))


def cosign(proposal: Proposal, signer: SigningKey) -> Proposal:
    """Add *signer*'s signatures."""
    return Proposal(proposal.dataset, _add(proposal.keyset, "keyset", signer), _add(proposal.trust, "trust", signer))


def _add(signed: Signed | None, kind: str, signer: SigningKey) -> Signed | None:
    if signed is None:
        return None
    others = [item for item in signed.signatures if item.signer != signer.public]
    mine = Signature(signer.public, signer.sign(kind, signed.body))
    return Signed(signed.body, tuple(sorted([*others, mine], key=lambda item: item.signer)))


# a proposal as a file


def write_proposal(proposal: Proposal) -> str:
    """Return the file's text: JSON."""
    fields = {"format": FORMAT, "dataset": proposal.dataset.hex()}
    for name, part in (("keyset", proposal.keyset), ("trust", proposal.trust)):
        if part is not None:
            fields[name] = base64.b64encode(write_signed(part.body, list(part.signatures))).decode()
    return json.dumps(fields, indent=1) + "\n"


def read_proposal(text: str, what: str) -> Proposal:
    """Return the proposal in *text*; its signatures hold."""
    try:
        fields = json.loads(text)
        if fields["format"] != FORMAT:
            raise ValueError("another format")
        parts = {name: base64.b64decode(fields[name], validate=True) for name in ("keyset", "trust") if name in fields}
        dataset = bytes.fromhex(fields["dataset"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(f"{what}: expected a proposal that `datasync key` wrote, found something else") from None
    signed = {name: read_signed(data, f"{what}: {name}") for name, data in parts.items()}
    for name, part in signed.items():
        check_signatures(part, name, f"{what}: {name}")
    return Proposal(dataset, signed.get("keyset"), signed.get("trust"))


def remaining(dataset: OpenDataset, proposal: Proposal) -> Proposal:
    """Return what is left of a proposal whose storing was interrupted: no keyset, where that is the present one."""
    if proposal.trust is not None and proposal.change.keyset == dataset.keyset.keyset:
        return Proposal(proposal.dataset, None, proposal.trust)
    return proposal


def check_proposal(dataset: OpenDataset, proposal: Proposal, *, begun: bool = False) -> None:
    """Refuse a proposal that does not follow the dataset's present state, lacks a part, or does what no change may do;
    *begun*: its keyset is stored already.
    """
    change = proposal.change
    if proposal.dataset != dataset.id or change == Change(None, None):
        raise IntegrityError(f"the proposal is not for dataset {dataset.name!r}: ask who made it for the right file")
    keyset, root = change.keyset, change.trust
    follows = (keyset is None or (keyset.dataset, keyset.previous) == (dataset.id, dataset.keyset.digest)) and (
        root is None or (root.dataset, root.previous) == (dataset.id, dataset.trusted.digest)
    )
    if root is not None and keyset is None and not begun and _needs_keyset(dataset.trusted.root, root):
        raise IntegrityError(
            "the proposal lacks the keyset that goes with its trust root: the present one would lack signatures"
        )
    if not follows:
        raise IntegrityError(f"the proposal does not follow the present keys of dataset {dataset.name!r}: make it anew")
    why = forbidden(dataset, change)
    if why:
        raise IntegrityError(f"the proposal {why}: do not sign it, ask who made it")


def _needs_keyset(now: TrustRoot, root: TrustRoot) -> bool:
    return root.threshold > now.threshold or bool(now.with_role(OWNER).keys() - root.with_role(OWNER))


# storing


def store(dataset: OpenDataset, proposal: Proposal, reopen: Reopen) -> OpenDataset:
    """Store a proposal that has all its signatures; return the dataset as it is then."""
    missing = proposal.missing(dataset)
    if missing > 0:
        raise NotAuthorized(f"dataset {dataset.name!r}: {missing} more owners have to sign this change")
    change, now = proposal.change, dataset
    if change.keyset is not None and proposal.keyset is not None:
        _create(dataset.history, "keyset", change.keyset.version, plain.KEYSET, proposal.keyset)
        now = dataset if change.keyset.shredded else reopen()
    removes = change.trust is not None and _removes(dataset.trusted.root, change.trust)
    if removes or now.keyring.epoch != dataset.keyring.epoch:
        reissue(now.history)
    if change.trust is not None and proposal.trust is not None:
        _create(dataset.history, "trust", change.trust.version, plain.TRUST, proposal.trust)
        now = reopen()
    return now


def _create(history: History, kind: str, version: int, plain_kind: int, signed: Signed) -> None:
    data = write_plain(plain_kind, write_signed(signed.body, list(signed.signatures)))
    prefix = history.prefix(kind)
    newest = numbered.newest(history.store, prefix)
    if newest is None or newest.number != version - 1:
        raise KeysMoved(f"{prefix}: another owner was first: run the same line again")
    try:
        numbered.create(history.store, prefix, version, data, hashed=history.hashed)
    except AlreadyExists:
        raise KeysMoved(f"{prefix}: another owner was first: run the same line again") from None


def _removes(before: TrustRoot, after: TrustRoot) -> bool:
    removed = {item.signer for item in before.principals if item.removed is not None}
    return any(item.removed is not None and item.signer not in removed for item in after.principals)


def reissue(history: History) -> None:
    """Write head, tags, condemned list, forgotten object and policy anew: sealed in the present epoch, signed by this
    identity.
    """
    newest = history.latest()
    if newest is not None:
        history.publish(newest, anew=True)
    tags.reissue(history)
    condemned.reissue(history)
    forgotten.reissue(history)
    policies.reissue(history)
    history.evidence.save()
