"""What no change of keyset and trust root may do, whoever signs it (docs/format.md, sections 6 and 7). Pure."""

from datasync.format.keyset import Keyset
from datasync.format.trust import AUDITOR, OWNER, TAGGER, WRITER, TrustRoot
from datasync.repository.repository import OpenDataset
from datasync.repository.succession import Change


def forbidden(dataset: OpenDataset, change: Change) -> str:
    """Return what is wrong with *change*, empty when nothing is."""
    keyset = "" if change.keyset is None or change.keyset.shredded else _wrong_keyset(dataset, change.keyset)
    trust = "" if change.trust is None else _wrong_trust(dataset.trusted.root, change.trust)
    if keyset or trust or change.keyset is None or change.keyset.shredded:
        return keyset or trust
    left = _left_with_a_role(dataset, change.keyset, change.trust or dataset.trusted.root)
    return f"takes the slot of {left} away and leaves its role: a part of it is missing" if left else ""


def _wrong_keyset(dataset: OpenDataset, new: Keyset) -> str:
    old = dataset.keyset.keyset
    if new.chain[: len(old.chain)] != old.chain or new.public[: len(old.public)] != old.public:
        return "replaces the keys of an epoch that is there"
    if not old.epoch <= new.epoch <= old.epoch + 1:
        return f"goes from epoch {old.epoch} to {new.epoch}"
    return "changes the dataset's name" if new.epoch == old.epoch and new.name != old.name else ""


def _wrong_trust(old: TrustRoot, new: TrustRoot) -> str:
    after = {item.signer: item for item in new.principals}
    for was in old.principals:
        item, short = after.get(was.signer), f"{was.signer.hex()[:16]}…"
        if item is None:
            return f"drops the signer {short}, which has to stay listed"
        if was.removed is not None and item.removed is None:
            return f"lists the removed signer {short} anew"
        if was.removed is not None and item.removed is not None and item.removed[0] < was.removed[0]:
            return f"takes snapshots of the removed signer {short} back"
    return ""


def _left_with_a_role(dataset: OpenDataset, keyset: Keyset, root: TrustRoot) -> str:
    """Return the name of somebody who would lose the last slot and go on signing."""
    now = dataset.history.now()
    signing = root.with_role(OWNER | WRITER | TAGGER | AUDITOR, at=now)
    kept = {(slot.kind, slot.fingerprint) for slot in keyset.slots if slot.epoch == keyset.epoch}
    stays: dict[bytes, bool] = {}
    names: dict[bytes, str] = {}
    for slot in dataset.keyset.keyset.slots:
        if slot.epoch == dataset.keyring.epoch and slot.fingerprint and not (slot.until and now >= slot.until):
            label = dataset.keyring.open_label("slot", slot.id, slot.label)
            names[label.signer] = label.name
            stays[label.signer] = stays.get(label.signer, False) or (slot.kind, slot.fingerprint) in kept
    return next((names[signer] for signer, kept_one in stays.items() if not kept_one and signer in signing), "")
