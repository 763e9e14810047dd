"""What a change means, in lines that an owner reads before signing it. Pure."""

import time

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
    before = {slot.fingerprint: slot for slot in old.slots if slot.fingerprint}
    after = {slot.fingerprint: slot for slot in new.slots if slot.fingerprint}
    names = {slot.fingerprint: dataset.keyring.open_label("slot", slot.id, slot.label).name for slot in before.values()}
    lines += [f"takes the slot of {names[key] or key.hex()[:16]} away" for key in before.keys() - after.keys()]
    lines += [f"gives a slot to the key {key.hex()[:16]}…" for key in after.keys() - before.keys()]
    return lines


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
        was = before.get(item.signer)
        name = "" if was is None else dataset.keyring.open_label("principal", item.signer, was.label).name
        who = f"{name} ({item.signer.hex()[:16]}…)" if name else f"{item.signer.hex()[:16]}…"
        if item.removed is not None and (was is None or was.removed is None):
            lines.append(f"removes the signer {who}")
        elif was is None or (was.roles, was.until) != (item.roles, item.until):
            lines.append(f"lets the signer {who} be {_roles(item)} until {_time(item.until)}")
    return lines


def _roles(item: Principal) -> str:
    return ", ".join(name for bit, name in ROLES.items() if item.roles & bit) or "nothing"


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ms / 1000)) if ms else "for ever"
