"""Slots: one key, wrapped for one holder (docs/format.md, section 7).

Each kind protects a random slot key in its own way; the carried key is always in our own committing box under the slot
key, bound to dataset, epoch, slot, kind and scope. So no provider and no KEM is relied on for the binding. Raises
`WrongKey` when the holder's secret does not open it, `IntegrityError` when it opens but was changed; what a key service
raises is in `kms.protocol`. A slot that is refused is never passed over for another one.
"""

from dataclasses import dataclass

from datasync.crypto.aead import BOX_OVERHEAD, open_box, seal_box
from datasync.crypto.kdf import KEY_BYTES, Argon2Cost, passphrase_key, random_bytes, random_key
from datasync.crypto.kms.protocol import KMS_NAMES, KeyService
from datasync.crypto.recipients import HYBRID, X25519, KeyPair, Recipient
from datasync.errors import IntegrityError, WrongKey
from datasync.model.limits import KMS_BLOB_BYTES

KIND_HYBRID = 1
KIND_X25519 = 2
KIND_ARGON2ID = 3
KIND_NAMES = {KIND_HYBRID: "hpke-mlkem768-x25519", KIND_X25519: "hpke-x25519", KIND_ARGON2ID: "argon2id", **KMS_NAMES}
SCOPE_ROOT = 1
SCOPE_METADATA = 2
SLOT_ID_BYTES = 16
WRAPPED_BYTES = BOX_OVERHEAD + KEY_BYTES  # a box of one key; a shorter one has lost its salt or commitment
_KEMS = {KIND_HYBRID: HYBRID, KIND_X25519: X25519}


@dataclass(frozen=True, slots=True)
class Binding:
    """What a slot is tied to; a slot moved elsewhere does not open."""

    dataset: bytes
    epoch: int
    slot: bytes
    kind: int
    scope: int

    def encode(self) -> bytes:
        """Return dataset id | u32 epoch | slot id | kind | scope."""
        return self.dataset + self.epoch.to_bytes(4, "little") + self.slot + bytes((self.kind, self.scope))


def _hpke_info(binding: Binding) -> bytes:
    return b"datasync/v1/slot\0" + binding.encode()


def new_slot_id() -> bytes:
    """Return 16 random bytes."""
    return random_bytes(SLOT_ID_BYTES)


def wrap_for_recipient(recipient: Recipient, binding: Binding, carried: bytes) -> tuple[bytes, bytes]:
    """Return (sealed slot key, wrapped key); *binding* has the kind of the recipient's KEM."""
    if _KEMS.get(binding.kind) != recipient.kem:
        raise ValueError("the slot's kind is not the recipient's")
    slot_key = random_key()
    return recipient.seal(slot_key, _hpke_info(binding)), _wrap(slot_key, binding, carried)


def unwrap_with_key_pair(pair: KeyPair, binding: Binding, sealed: bytes, wrapped: bytes) -> bytes:
    """Return the carried key."""
    _check_wrapped(binding, wrapped)
    return _unwrap(pair.open(_KEMS[binding.kind], sealed, _hpke_info(binding)), binding, wrapped)


def wrap_for_passphrase(passphrase: str, binding: Binding, carried: bytes, cost: Argon2Cost) -> tuple[bytes, bytes]:
    """Return (salt, wrapped key)."""
    salt = random_bytes(32)
    return salt, _wrap(passphrase_key(passphrase, salt, cost), binding, carried)


def unwrap_with_passphrase(passphrase: str, binding: Binding, salt: bytes, cost: Argon2Cost, wrapped: bytes) -> bytes:
    """Return the carried key; a wrong passphrase is `WrongKey`."""
    _check_wrapped(binding, wrapped)
    slot_key = passphrase_key(passphrase, salt, cost)
    try:
        return _unwrap(slot_key, binding, wrapped)
    except IntegrityError:  # a wrong passphrase and a changed box look alike: the commitment does not match
        raise WrongKey("the passphrase does not open this slot") from None


def wrap_for_kms(service: KeyService, binding: Binding, carried: bytes) -> tuple[bytes, bytes]:
    """Return (the service's blob, wrapped key); *binding* has the kind of the service."""
    if binding.kind != service.uri.kind:
        raise ValueError("the slot's kind is not the key service's")
    slot_key = random_key()
    blob = service.wrap(slot_key, kms_context(binding))
    if not 0 < len(blob) <= KMS_BLOB_BYTES:
        raise IntegrityError(f"{service.uri.name}: expected 1 to {KMS_BLOB_BYTES} bytes, found {len(blob)}")
    return blob, _wrap(slot_key, binding, carried)


def unwrap_with_kms(service: KeyService, binding: Binding, blob: bytes, wrapped: bytes) -> bytes:
    """Return the carried key; a service that answers with other bytes than it was given is `IntegrityError`."""
    _check_wrapped(binding, wrapped)
    slot_key = service.unwrap(blob, kms_context(binding))
    if len(slot_key) != KEY_BYTES:
        raise IntegrityError(f"{service.uri.name}: expected a slot key of {KEY_BYTES} bytes, found {len(slot_key)}")
    try:
        return _unwrap(slot_key, binding, wrapped)
    except IntegrityError as error:
        raise IntegrityError(
            f"slot {binding.slot.hex()}: what {service.uri.name} answered is not its slot key, or the slot was "
            f"changed: {error}"
        ) from None


def kms_context(binding: Binding) -> dict[str, str]:
    """Return what a key service is told about the slot; services record it, so it holds no name and no secret."""
    return {
        "application": "datasync/v1",
        "dataset": binding.dataset.hex(),
        "epoch": str(binding.epoch),
        "slot": binding.slot.hex(),
        "scope": str(binding.scope),
    }


def kind_of(recipient: Recipient) -> int:
    """Return the slot kind for *recipient*."""
    return KIND_HYBRID if recipient.kem == HYBRID else KIND_X25519


def _wrap(slot_key: bytes, binding: Binding, carried: bytes) -> bytes:
    return seal_box(slot_key, "slot-key", binding.encode(), carried)


def _unwrap(slot_key: bytes, binding: Binding, wrapped: bytes) -> bytes:
    return open_box(slot_key, "slot-key", binding.encode(), wrapped)


def _check_wrapped(binding: Binding, wrapped: bytes) -> None:
    """Refuse a wrapped key whose commitment was stripped before anything is asked for or derived."""
    if len(wrapped) != WRAPPED_BYTES:
        raise IntegrityError(
            f"slot {binding.slot.hex()}: expected a wrapped key of {WRAPPED_BYTES} bytes with its commitment, "
            f"found {len(wrapped)}"
        )
