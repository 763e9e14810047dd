"""The next keyset and trust root: who may read, write, own and audit from now on. Pure: nothing is stored here.

A `Change` is a keyset, a trust root or both, not yet signed. `repository.amend` stores the keyset first: owners of the
old trust root and of the new one sign it, so no order of reading meets a state that nobody signed. Raises `UsageError`
for a change that makes no sense, `NotFound` for a holder that is not there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from datasync.crypto import slots
from datasync.crypto.kdf import EpochKeys, random_key
from datasync.errors import NotAuthorized, NotFound, UsageError, WrongKey
from datasync.format.keyset import SUITE, Keyset, Slot
from datasync.format.labels import HolderLabel
from datasync.format.trust import OWNER, Principal, TrustRoot
from datasync.repository.holders import Grantee, Secrets, make_slot, renew_slot
from datasync.repository.keyring import Keyring, link_epochs, public_keys
from datasync.repository.repository import OpenDataset

Mark = tuple[int, bytes]
"""Seq and id of the last snapshot that is accepted from a removed signer."""
FINGERPRINT_DIGITS = 8  # of a fingerprint, slot id or signer that a person may shorten


@dataclass(frozen=True, slots=True)
class Change:
    """What follows the present keyset and trust root; None where that stays."""

    keyset: Keyset | None
    trust: TrustRoot | None


@dataclass(frozen=True, slots=True)
class Holding:
    """One holder: slots of the current epoch, and the principal that signs for it, if any."""

    label: HolderLabel
    slots: tuple[Slot, ...]
    principal: Principal | None


def holdings(dataset: OpenDataset) -> list[Holding]:
    """Return every holder of the dataset, by name; removed principals are not among them."""
    keyring, found = dataset.keyring, []
    principals = {item.signer: item for item in dataset.trusted.root.principals if item.removed is None}
    for slot in dataset.keyset.keyset.slots:
        if slot.epoch == keyring.epoch:
            label = keyring.open_label("slot", slot.id, slot.label)
            found.append(Holding(label, (slot,), principals.pop(label.signer, None)))
    for principal in principals.values():
        label = keyring.open_label("principal", principal.signer, principal.label)
        found.append(Holding(HolderLabel(label.name, label.public, principal.signer), (), principal))
    return sorted(found, key=lambda item: (item.label.name, item.label.signer))


def find_holdings(dataset: OpenDataset, who: str) -> list[Holding]:
    """Return the holders that *who* names: a name, or the first digits of a fingerprint, slot id or signer."""
    text = who.lower()
    shortened = len(text) >= FINGERPRINT_DIGITS

    def means(item: Holding) -> bool:
        ids = [item.label.signer.hex(), *(slot.id.hex() for slot in item.slots)]
        ids += [slot.fingerprint.hex() for slot in item.slots]
        named = bool(who) and item.label.name == who
        return named or (shortened and any(value.startswith(text) for value in ids if value))

    everybody = holdings(dataset)
    found = [item for item in everybody if means(item)]
    if not found:
        nameless = [f"{item.label.signer.hex()[:16]}…" for item in everybody if not item.label.name]
        others = f"; signers without a name have: {', '.join(nameless)}" if nameless else ""
        raise NotFound(f"dataset {dataset.name!r}: nobody called {who!r} has access{others}: see `datasync key list`")
    signers = {item.label.signer for item in found}
    if len(signers) > 1 or (signers == {b""} and len({item.label.name for item in found}) > 1):
        raise UsageError(
            f"dataset {dataset.name!r}: {who!r} means several holders: give digits of the one's fingerprint or signer"
        )
    also = signers - {b""}  # everything that one person holds, under whatever names
    return [item for item in everybody if item in found or item.label.signer in also]


# granting


def grant(dataset: OpenDataset, grantee: Grantee | None, principal: Principal | None, granted_by: bytes) -> Change:
    """Add a slot for *grantee*, and *principal* to those who sign; either may be None.

    A holder's earlier slot of the same key is replaced, its earlier roles are added to.
    """
    keyset = trust = None
    now = dataset.history.now()
    if grantee is not None:
        slot = make_slot(grantee, dataset.keyring, now, granted_by)
        kept = [item for item in dataset.keyset.keyset.slots if not _same_holder(item, slot)]
        replaced = [item for item in dataset.keyset.keyset.slots if _same_holder(item, slot)]
        labels = [dataset.keyring.open_label("slot", item.id, item.label) for item in replaced]
        if any(item.signer == granted_by for item in labels) and (slot.scope != slots.SCOPE_ROOT or slot.until):
            raise UsageError("an owner does not narrow its own access: another owner has to do it")
        keyset = _next_keyset(dataset, [*kept, slot])
    if principal is not None:
        trust = _with_principal(dataset, principal)
    return Change(keyset, trust)


def _same_holder(one: Slot, other: Slot) -> bool:
    return bool(one.fingerprint) and (one.kind, one.fingerprint) == (other.kind, other.fingerprint)


def _with_principal(dataset: OpenDataset, principal: Principal) -> TrustRoot | None:
    root = dataset.trusted.root
    before = next((item for item in root.principals if item.signer == principal.signer), None)
    if before is not None and before.removed is not None:
        raise UsageError(
            f"signer {principal.signer.hex()[:16]}: it was removed from dataset {dataset.name!r}, and what it signed "
            "since stays refused: it needs a new identity (`datasync key init`)"
        )
    if before is not None:
        if before.roles & ~principal.roles and principal.until and not 0 < before.until <= principal.until:
            raise UsageError(
                f"signer {principal.signer.hex()[:16]}: it has other roles in dataset {dataset.name!r}, and all of "
                "them end at one time: grant without --until, or the other role with it"
            )
        principal = msgspec.structs.replace(principal, roles=principal.roles | before.roles, since=before.since)
        if (principal.roles, principal.until) == (before.roles, before.until):
            return None
    others = [item for item in root.principals if item.signer != principal.signer]
    following = _next_trust(dataset, [*others, principal])
    _check_owners(following)
    return following


# revoking


def revoke(dataset: OpenDataset, gone: list[Holding], me: bytes, secrets: Secrets) -> Change:
    """Take away the slots and roles of *gone*; what is written from now on is closed to them: a new epoch begins."""
    signers = {item.principal.signer for item in gone if item.principal is not None}
    if me in signers:
        raise UsageError("an owner does not revoke itself: another owner has to do it")
    removed_slots = {slot.id for item in gone for slot in item.slots}
    fingerprints = {slot.fingerprint for item in gone for slot in item.slots if slot.fingerprint}

    def keep(slot: Slot) -> bool:
        return slot.id not in removed_slots and slot.fingerprint not in fingerprints

    trust = _without(dataset, signers) if signers else None
    return Change(new_epoch(dataset, keep, secrets), trust)


def _without(dataset: OpenDataset, signers: set[bytes]) -> TrustRoot:
    newest = dataset.history.latest()
    mark = (newest.body.seq, newest.id) if newest else (0, bytes(32))
    principals = [
        msgspec.structs.replace(item, removed=mark) if item.signer in signers else item
        for item in dataset.trusted.root.principals
    ]
    root = _next_trust(dataset, principals)
    _check_owners(root)
    return root


def mark_removed(dataset: OpenDataset, marks: Mapping[bytes, Mark]) -> TrustRoot:
    """Return a trust root that accepts *marks* as the last snapshots of those removed signers."""
    principals = [
        msgspec.structs.replace(item, removed=marks.get(item.signer, item.removed))
        for item in dataset.trusted.root.principals
    ]
    return _next_trust(dataset, principals)


def _check_owners(root: TrustRoot) -> None:
    owners = sum(not item.until for item in root.with_role(OWNER).values())
    if owners < root.threshold:
        raise UsageError(
            f"a threshold of {root.threshold} needs as many owners whose time does not end, {owners} would be left"
        )


# owners


def set_owners(dataset: OpenDataset, threshold: int | None, expires: int | None) -> Change:
    """Change how many owners have to sign, and until when (ms, 0 for ever) the trust root is believed."""
    root = dataset.trusted.root
    changed = msgspec.structs.replace(
        _next_trust(dataset, list(root.principals)),
        threshold=root.threshold if threshold is None else threshold,
        expires=root.expires if expires is None else expires,
    )
    _check_owners(changed)
    raised = (
        changed.threshold > root.threshold
    )  # the newest keyset has to carry as many signatures as the root asks for
    return Change(_next_keyset(dataset, list(dataset.keyset.keyset.slots)) if raised else None, changed)


# epochs


def new_epoch(dataset: OpenDataset, keep: Callable[[Slot], bool], secrets: Secrets) -> Keyset:
    """Return a keyset with a fresh root key, wrapped for every holder that is kept and whose time has not ended."""
    before, keyset, now = dataset.keyring, dataset.keyset.keyset, dataset.history.now()
    if not before.reads_data:
        raise WrongKey(f"dataset {dataset.name!r}: a new epoch needs the root key, this identity has less")
    old = before.epochs[before.epoch]
    new = EpochKeys.from_root(before.epoch + 1, random_key())
    after = Keyring(before.dataset, {**before.epochs, new.epoch: new}, new.epoch)
    live = [
        slot
        for slot in keyset.slots
        if slot.epoch == before.epoch and keep(slot) and not (slot.until and now >= slot.until)
    ]
    if not any(slot.scope == slots.SCOPE_ROOT for slot in live):
        raise UsageError(f"dataset {dataset.name!r}: nobody would be left who can read it")
    renewed = [renew_slot(slot, before, after, secrets) for slot in live]
    following = _next_keyset(dataset, renewed)
    return msgspec.structs.replace(
        following,
        epoch=new.epoch,
        name=after.seal_name(dataset.name),
        chain=(*keyset.chain, link_epochs(before.dataset, old, new)),
        public=(*keyset.public, public_keys(new)),
    )


def shredded(dataset: OpenDataset) -> Keyset:
    """Return the last keyset of a dataset: no name, no slot, no chain, so nothing opens it."""
    last = _next_keyset(dataset, [])
    return msgspec.structs.replace(last, name=b"", chain=(), public=())


def _next_keyset(dataset: OpenDataset, changed: list[Slot]) -> Keyset:
    before = dataset.keyset
    trusted = dataset.trusted
    return Keyset(
        dataset.id,
        before.keyset.version + 1,
        before.digest,
        (trusted.root.version, trusted.digest),
        dataset.history.now(),
        SUITE,
        before.keyset.epoch,
        before.keyset.name,
        before.keyset.chain,
        before.keyset.public,
        tuple(sorted(changed, key=lambda slot: slot.id)),
    )


def _next_trust(dataset: OpenDataset, principals: list[Principal]) -> TrustRoot:
    before = dataset.trusted
    return TrustRoot(
        before.root.version + 1,
        dataset.id,
        before.digest,
        dataset.history.now(),
        before.root.expires,
        before.root.threshold,
        tuple(sorted(principals, key=lambda item: item.signer)),
    )


def require_owner(dataset: OpenDataset) -> bytes:
    """Return this identity's signer when it owns the dataset; raise `NotAuthorized`."""
    signer = dataset.history.signer
    if signer is None or signer.public not in dataset.trusted.root.with_role(OWNER, at=dataset.history.now()):
        raise NotAuthorized(f"dataset {dataset.name!r}: this identity does not own it: ask an owner")
    return signer.public
