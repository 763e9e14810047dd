"""Holders: whom a slot is for, making it, and making it again for a new epoch (docs/format.md, section 7).

A slot's sealed label keeps the holder's public key, so an owner wraps a new epoch's key for every remaining holder
without asking them. A passphrase and a KMS key have no public half: a new epoch needs the passphrase, or the service,
once more. Raises `WrongKey` when it is not at hand.
"""

from dataclasses import dataclass, field

from datasync.crypto import slots
from datasync.crypto.identity import Identity
from datasync.crypto.kdf import Argon2Cost, EpochKeys
from datasync.crypto.kms.protocol import KeyService
from datasync.crypto.recipients import HYBRID, X25519, Recipient
from datasync.crypto.slots import Binding
from datasync.errors import IntegrityError, UsageError, WrongKey
from datasync.format.encoding import encode
from datasync.format.keyset import (
    Argon2Params,
    KmsParams,
    SealedParams,
    Slot,
    read_argon2_params,
    read_kms_params,
    read_sealed_params,
)
from datasync.format.labels import HolderLabel
from datasync.repository.keyring import Keyring

_KEMS = {slots.KIND_HYBRID: HYBRID, slots.KIND_X25519: X25519}


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """What opens slots here: an identity, a passphrase, keys of key services, lent slots; whatever is at hand."""

    identity: Identity | None = None
    passphrase: str | None = None
    services: tuple[KeyService, ...] = ()
    lent: tuple[tuple[bytes, Slot], ...] = ()
    """Slots that a control side lent for datasets, by dataset id; the keyset's public keys confirm what they carry."""


@dataclass(frozen=True, slots=True)
class Grantee:
    """Whom a slot is for: a public key, a passphrase, or a key of a key service; `until` in ms, 0 for ever."""

    name: str
    recipient: Recipient | None = None
    passphrase: str | None = field(default=None, repr=False)
    service: KeyService | None = None
    signer: bytes = b""
    scope: int = slots.SCOPE_ROOT
    until: int = 0


def make_slot(grantee: Grantee, keyring: Keyring, since: int, granted_by: bytes) -> Slot:
    """Return a slot of the keyring's current epoch for *grantee*."""
    keys = keyring.epochs[keyring.epoch]
    kind, fingerprint, public = _kind(grantee)
    binding = Binding(keyring.dataset, keys.epoch, slots.new_slot_id(), kind, grantee.scope)
    params, wrapped = _wrap(grantee, binding, _carried(keys, grantee.scope))
    label = keyring.seal_label("slot", binding.slot, HolderLabel(grantee.name, public, grantee.signer))
    return Slot(
        binding.slot,
        kind,
        grantee.scope,
        keys.epoch,
        label,
        fingerprint,
        params,
        wrapped,
        since,
        grantee.until,
        granted_by,
    )


def _kind(grantee: Grantee) -> tuple[int, bytes, bytes]:
    """Return the slot's kind, fingerprint and public key."""
    if grantee.recipient is not None:
        return slots.kind_of(grantee.recipient), grantee.recipient.fingerprint, grantee.recipient.public
    if grantee.service is not None:
        return grantee.service.uri.kind, grantee.service.uri.fingerprint, b""
    return slots.KIND_ARGON2ID, b"", b""


def _wrap(grantee: Grantee, binding: Binding, carried: bytes) -> tuple[bytes, bytes]:
    if grantee.recipient is not None:
        sealed, wrapped = slots.wrap_for_recipient(grantee.recipient, binding, carried)
        return encode(SealedParams(sealed)), wrapped
    if grantee.service is not None:
        blob, wrapped = slots.wrap_for_kms(grantee.service, binding, carried)
        return encode(KmsParams(blob)), wrapped
    if grantee.passphrase is None:
        raise UsageError(f"holder {grantee.name!r}: a slot needs a recipient, a passphrase or a key of a key service")
    cost = Argon2Cost()
    salt, wrapped = slots.wrap_for_passphrase(grantee.passphrase, binding, carried, cost)
    return encode(Argon2Params(salt, cost.memory, cost.passes, cost.lanes)), wrapped


def _carried(keys: EpochKeys, scope: int) -> bytes:
    if keys.root is None:
        raise WrongKey("granting a dataset's keys needs its root key, this identity has the metadata key alone")
    return keys.root if scope == slots.SCOPE_ROOT else keys.metadata


def open_slot(slot: Slot, dataset: bytes, secrets: Secrets) -> bytes | None:
    """Return the key that *slot* carries, None when nothing of *secrets* is meant by it.

    A slot that is meant and does not open raises: another one is not tried in its place.
    """
    binding = Binding(dataset, slot.epoch, slot.id, slot.kind, slot.scope)
    what = f"slot {slot.id.hex()}"
    if slot.kind in _KEMS and secrets.identity is not None:
        pair = secrets.identity.key_pair
        mine = pair.recipient if slot.kind == slots.KIND_HYBRID else pair.x25519_recipient
        if slot.fingerprint == mine.fingerprint:
            sealed = read_sealed_params(slot, what).sealed
            try:
                return slots.unwrap_with_key_pair(pair, binding, sealed, slot.wrapped)
            except WrongKey:
                raise IntegrityError(
                    "it is meant for this identity and does not open: it was changed, or copied from elsewhere"
                ) from None
    if slot.kind == slots.KIND_ARGON2ID and secrets.passphrase is not None:
        params = read_argon2_params(slot, what)
        cost = Argon2Cost(params.memory, params.passes, params.lanes)
        try:
            return slots.unwrap_with_passphrase(secrets.passphrase, binding, params.salt, cost, slot.wrapped)
        except WrongKey:
            return None  # there may be a slot of another passphrase
    service = _service(slot, secrets)
    if service is not None:
        return slots.unwrap_with_kms(service, binding, read_kms_params(slot, what).blob, slot.wrapped)
    return None


def _service(slot: Slot, secrets: Secrets) -> KeyService | None:
    for service in secrets.services:
        if (service.uri.kind, service.uri.fingerprint) == (slot.kind, slot.fingerprint):
            return service
    return None


def renew_slot(slot: Slot, before: Keyring, after: Keyring, secrets: Secrets) -> Slot:
    """Return *slot* of the old epoch made anew for *after*'s, with the same holder, scope, times and granter."""
    label = before.open_label("slot", slot.id, slot.label)
    name = f"slot {slot.id.hex()[:16]} ({label.name or 'no name'})"
    recipient = passphrase = None
    service = _service(slot, secrets)
    if slot.kind in _KEMS and label.public:
        recipient = Recipient(_KEMS[slot.kind], label.public)
    elif slot.kind == slots.KIND_ARGON2ID and open_slot(slot, before.dataset, secrets) is not None:
        passphrase = secrets.passphrase
    elif service is None:
        raise WrongKey(
            f"{name}: a new epoch needs what this slot is for once more: set DATASYNC_PASSPHRASE or DATASYNC_KMS, "
            "or revoke the slot"
        )
    grantee = Grantee(label.name, recipient, passphrase, service, label.signer, slot.scope, slot.until)
    return make_slot(grantee, after, slot.since, slot.granted_by)
