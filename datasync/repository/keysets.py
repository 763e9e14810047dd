"""Keysets: making the first one, reading the newest, opening it (docs/format.md, section 7)."""

from dataclasses import dataclass
from functools import partial

from datasync.crypto import slots
from datasync.crypto.hashing import hash_bytes
from datasync.crypto.identity import Identity
from datasync.crypto.kdf import Argon2Cost, EpochKeys, random_key
from datasync.crypto.recipients import Recipient
from datasync.crypto.signatures import SigningKey
from datasync.crypto.slots import Binding
from datasync.errors import IntegrityError, NotFound, WrongKey
from datasync.format import signed as plain
from datasync.format.encoding import encode
from datasync.format.keyset import (
    SUITE,
    Argon2Params,
    Keyset,
    SealedParams,
    Slot,
    read_argon2_params,
    read_keyset,
    read_sealed_params,
    write_keyset,
)
from datasync.format.names import dataset_prefix
from datasync.format.signed import Signature, read_plain, read_signed, write_plain, write_signed
from datasync.model.ids import ZERO_ID
from datasync.repository import numbered
from datasync.repository.keyring import Keyring, open_name, public_keys, unchain
from datasync.repository.local import LocalCopies
from datasync.repository.trust import PLAIN_BYTES, Trusted, check_signatures, require_threshold
from datasync.storage.protocol import ObjectStore


@dataclass(frozen=True, slots=True)
class ReadKeyset:
    """A keyset whose signatures hold, and the hash of its stored bytes."""

    keyset: Keyset
    digest: bytes


def recipient_slot(recipient: Recipient, keys: EpochKeys, dataset: bytes, created: int, granted_by: bytes) -> Slot:
    """Return a slot that carries the epoch's root key to *recipient*."""
    binding = Binding(dataset, keys.epoch, slots.new_slot_id(), slots.kind_of(recipient), slots.SCOPE_ROOT)
    sealed, wrapped = slots.wrap_for_recipient(recipient, binding, _root(keys))
    params = encode(SealedParams(sealed))
    return _slot(binding, recipient.fingerprint, params, wrapped, created, granted_by)


def passphrase_slot(passphrase: str, keys: EpochKeys, dataset: bytes, created: int, granted_by: bytes) -> Slot:
    """Return a slot that *passphrase* opens."""
    binding = Binding(dataset, keys.epoch, slots.new_slot_id(), slots.KIND_ARGON2ID, slots.SCOPE_ROOT)
    cost = Argon2Cost()
    salt, wrapped = slots.wrap_for_passphrase(passphrase, binding, _root(keys), cost)
    params = encode(Argon2Params(salt, cost.memory, cost.passes, cost.lanes))
    return _slot(binding, b"", params, wrapped, created, granted_by)


def _root(keys: EpochKeys) -> bytes:
    if keys.root is None:
        raise WrongKey("granting the root key needs the root key")
    return keys.root


def _slot(binding: Binding, fingerprint: bytes, params: bytes, wrapped: bytes, created: int, granted_by: bytes) -> Slot:
    return Slot(
        binding.slot,
        binding.kind,
        binding.scope,
        binding.epoch,
        b"",
        fingerprint,
        params,
        wrapped,
        created,
        0,
        granted_by,
    )


def first_keyset(
    dataset: bytes,
    name: str,
    trust_digest: bytes,
    owner: SigningKey,
    recipients: list[Recipient],
    passphrase: str | None,
    created: int,
) -> bytes:
    """Return keyset version 1 with a fresh root key, wrapped for each of *recipients*
    and for the *passphrase* if any.
    """
    keys = EpochKeys.from_root(1, random_key())
    made = [recipient_slot(recipient, keys, dataset, created, owner.public) for recipient in recipients]
    if passphrase is not None:
        made.append(passphrase_slot(passphrase, keys, dataset, created, owner.public))
    keyset = Keyset(
        dataset,
        1,
        ZERO_ID,
        (1, trust_digest),
        created,
        SUITE,
        1,
        Keyring(dataset, {1: keys}, 1).seal_name(name),
        (),
        (public_keys(keys),),
        tuple(sorted(made, key=lambda slot: slot.id)),
    )
    body = write_keyset(keyset)
    return write_plain(plain.KEYSET, write_signed(body, [Signature(owner.public, owner.sign("keyset", body))]))


def load_keyset(
    store: ObjectStore, copies: LocalCopies, dataset: bytes, trusted: Trusted, version: int | None = None
) -> ReadKeyset:
    """Return the newest keyset, or *version* when that is known to be the newest; its signatures are checked."""
    prefix = dataset_prefix(dataset) + "keyset/"
    if version is None:
        found = numbered.newest(store, prefix)
        if found is None:
            raise NotFound(f"dataset {dataset.hex()[:16]}: no keyset in the repository")
        version = found.number
    fetch = partial(numbered.read_number, store, prefix, version, limit=PLAIN_BYTES)
    check = partial(_check_keyset, version=version, dataset=dataset, trusted=trusted)
    return copies.get(f"{prefix}{version}", fetch, check)


def _check_keyset(data: bytes, version: int, dataset: bytes, trusted: Trusted) -> ReadKeyset:
    what = f"keyset {version} of dataset {dataset.hex()[:16]}"
    signed = read_signed(read_plain(plain.KEYSET, data, what), what)
    signers = check_signatures(signed, "keyset", what)
    keyset = read_keyset(signed.body, what)
    if keyset.version != version or keyset.dataset != dataset:
        raise IntegrityError(f"{what}: it says version {keyset.version} of dataset {keyset.dataset.hex()[:16]}")
    if keyset.trust[0] > trusted.root.version or (
        keyset.trust[0] == trusted.root.version and keyset.trust[1] != trusted.digest
    ):
        raise IntegrityError(f"{what}: it names trust root {keyset.trust[0]}, which this repository does not have")
    require_threshold(signers, trusted.root, what)
    return ReadKeyset(keyset, hash_bytes(data))


def open_keyset(found: ReadKeyset, identity: Identity | None, passphrase: str | None) -> tuple[Keyring, str]:
    """Return the keyring and the dataset's name; raise `WrongKey` when neither *identity* nor *passphrase*
    opens a slot.
    """
    keyset = found.keyset
    for slot in sorted(keyset.slots, key=lambda item: (-item.epoch, item.scope, item.kind)):
        if slot.epoch != keyset.epoch:
            continue  # an older epoch's slot opens neither the name nor new data
        carried = _open_slot(slot, keyset.dataset, identity, passphrase)
        if carried is None:
            continue
        newest = (
            EpochKeys.from_root(slot.epoch, carried)
            if slot.scope == slots.SCOPE_ROOT
            else EpochKeys(slot.epoch, None, carried)
        )
        keyring = Keyring(keyset.dataset, unchain(keyset, newest), keyset.epoch)
        return keyring, open_name(newest.metadata, keyset.dataset, keyset.name)
    raise WrongKey(
        f"dataset {keyset.dataset.hex()[:16]}: no slot for this identity{' or passphrase' if passphrase else ''}: "
        "ask its owner for access"
    )


def _open_slot(slot: Slot, dataset: bytes, identity: Identity | None, passphrase: str | None) -> bytes | None:
    binding = Binding(dataset, slot.epoch, slot.id, slot.kind, slot.scope)
    what = f"slot {slot.id.hex()}"
    if slot.scope not in (slots.SCOPE_ROOT, slots.SCOPE_METADATA):
        return None
    if slot.kind in (slots.KIND_HYBRID, slots.KIND_X25519) and identity is not None:
        pair = identity.key_pair
        mine = pair.recipient if slot.kind == slots.KIND_HYBRID else pair.x25519_recipient
        if slot.fingerprint == mine.fingerprint:
            return slots.unwrap_with_key_pair(pair, binding, read_sealed_params(slot, what).sealed, slot.wrapped)
    if slot.kind == slots.KIND_ARGON2ID and passphrase is not None:
        params = read_argon2_params(slot, what)
        cost = Argon2Cost(params.memory, params.passes, params.lanes)
        try:
            return slots.unwrap_with_passphrase(passphrase, binding, params.salt, cost, slot.wrapped)
        except WrongKey:
            return None  # there may be a slot of another passphrase
    return None
