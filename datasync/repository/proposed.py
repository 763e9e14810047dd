"""What a change means, in lines that an owner reads before signing it: nothing that it does is left out. Pure.

What no change may do is refused by `amend.check_proposal` before; a new slot's holder is named where this identity can
open its label, which it can not in an epoch that is only proposed.
"""

import time
from collections import Counter

from datasync.crypto.slots import KIND_NAMES, SCOPE_METADATA
from datasync.format.keyset import Keyset, Slot
from datasync.format.trust import AUDITOR, OWNER, PUSH_ONLY, TAGGER, WRITER, Principal
from datasync.repository.repository import OpenDataset
from datasync.repository.succession import Change

ROLES = {OWNER: "owner", WRITER: "writer", PUSH_ONLY: "push-only", TAGGER: "tagger", AUDITOR: "auditor"}


def describe(dataset: OpenDataset, change: Change) -> list[str]:
    """Return what *change* does to *dataset*, a line for each part."""
    return [*_of_keyset(dataset, change), *_of_trust(dataset, change)] or ["nothing changes"]


def _of_keyset(dataset: OpenDataset, change: Change) -> list[str]:
    new, old = change.keyset, dataset.keyset.keyset
    if new is None:
        return []
    if new.shredded:
        return [f"DESTROYS every key of dataset {dataset.name!r}, for ever"]
    lines = [f"begins epoch {new.epoch}"] if new.epoch != old.epoch else []
    before, after = _by_key(old), _by_key(new)
    lines += [f"takes the slot of {_holder(dataset, before[key])} away" for key in before.keys() - after.keys()]
    lines += [f"gives a slot to {_given(dataset, after[key])}" for key in after.keys() - before.keys()]
    for key in before.keys() & after.keys():
        if (before[key].scope, before[key].until) != (after[key].scope, after[key].until):
            lines.append(f"changes the slot of {_holder(dataset, before[key])}: {_scope(after[key])}")
    return lines + _of_passphrases(old, new)


def _by_key(keyset: Keyset) -> dict[tuple[int, bytes], Slot]:
    """Return the slots of the keyset's epoch that are for somebody's key."""
    return {(slot.kind, slot.fingerprint): slot for slot in _current(keyset) if slot.fingerprint}


def _current(keyset: Keyset) -> list[Slot]:
    return [slot for slot in keyset.slots if slot.epoch == keyset.epoch]


def _of_passphrases(old: Keyset, new: Keyset) -> list[str]:
    """Slots of passphrases have no key to be told apart by: in one epoch by their ids, between two by their terms."""
    same = new.epoch == old.epoch
    before, after = (
        Counter((slot.id if same else b"", slot.scope, slot.until) for slot in _current(keyset) if not slot.fingerprint)
        for keyset in (old, new)
    )
    lines = [f"takes the slots of {count} passphrases away" for count in [(before - after).total()] if count]
    return lines + [
        f"gives slots to {count} passphrases: {_terms(scope, until)}"
        for (_, scope, until), count in (after - before).items()
    ]


def _given(dataset: OpenDataset, slot: Slot) -> str:
    name = _holder(dataset, slot) if slot.epoch in dataset.keyring.epochs else f"the key {slot.fingerprint.hex()[:16]}…"
    return f"{name} ({KIND_NAMES.get(slot.kind, slot.kind)}): {_scope(slot)}"


def _holder(dataset: OpenDataset, slot: Slot) -> str:
    key = f"the key {slot.fingerprint.hex()[:16]}…"
    name = dataset.keyring.open_label("slot", slot.id, slot.label).name
    return f"{name}, {key}" if name else key


def _scope(slot: Slot) -> str:
    return _terms(slot.scope, slot.until)


def _terms(scope: int, until: int) -> str:
    return f"reads {'names and history' if scope == SCOPE_METADATA else 'everything'} until {_time(until)}"


def _of_trust(dataset: OpenDataset, change: Change) -> list[str]:
    new, old = change.trust, dataset.trusted.root
    if new is None:
        return []
    lines = []
    if new.threshold != old.threshold:
        lines.append(f"{new.threshold} owners have to sign changes, instead of {old.threshold}")
    if new.expires != old.expires:
        lines.append(f"the trust root is believed until {_time(new.expires)}, instead of {_time(old.expires)}")
    before = {item.signer: item for item in old.principals}
    for item in new.principals:
        lines += _of_principal(dataset, before.get(item.signer), item)
    return lines


def _of_principal(dataset: OpenDataset, was: Principal | None, item: Principal) -> list[str]:
    name = dataset.keyring.open_label("principal", item.signer, was.label).name if was is not None else ""
    who = f"{name} ({item.signer.hex()[:16]}…)" if name else f"{item.signer.hex()[:16]}…"
    lines = []
    if was is None or (was.roles, was.until) != (item.roles, item.until):
        lines.append(f"lets the signer {who} be {_roles(item)} until {_time(item.until)}")
    if item.removed is not None and (was is None or was.removed is None):
        lines.append(f"removes the signer {who}; its snapshots up to {item.removed[0]} stay")
    elif was is not None and item.removed is not None and was.removed != item.removed:
        lines.append(f"accepts snapshots of the removed signer {who} up to {item.removed[0]}")
    return lines


def _roles(item: Principal) -> str:
    return ", ".join(name for bit, name in ROLES.items() if item.roles & bit) or "nothing"


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ms / 1000)) if ms else "for ever"
