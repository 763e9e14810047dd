"""The keyset's body and the parameters of slots (docs/format.md, section 7)."""

from typing import Annotated

import msgspec

from datasync.errors import FormatError
from datasync.format.encoding import U8, U32, U63, Id, Record, decode, encode
from datasync.model.ids import ZERO_ID
from datasync.model.limits import KMS_BLOB_BYTES, SLOTS

SUITE = 1
EPOCH_MAX = 65_535
PUBLIC_BYTES = 1_216
SCOPES = (1, 2)  # the root key, the metadata key alone

_Public = Annotated[bytes, msgspec.Meta(min_length=PUBLIC_BYTES, max_length=PUBLIC_BYTES)]


class Link(Record, frozen=True):
    """An older epoch's keys, wrapped under the next epoch's."""

    epoch: U32
    root: bytes
    metadata: bytes


class EpochPublic(Record, frozen=True):
    """The public keys that push-only writers seal to."""

    data: _Public
    metadata: _Public


class Slot(Record, frozen=True):
    """One wrapped key."""

    id: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    kind: U8
    scope: U8
    epoch: U32
    label: bytes
    fingerprint: bytes
    params: bytes
    wrapped: bytes
    since: U63
    until: U63
    granted_by: Id


class Keyset(Record, frozen=True):
    """All slots of a dataset, its sealed name, and the chain from each epoch to the one before."""

    dataset: Id
    version: U63
    previous: Id
    trust: tuple[U63, Id]
    created: U63
    suite: U8
    epoch: Annotated[int, msgspec.Meta(ge=1, le=EPOCH_MAX)]
    name: bytes
    chain: tuple[Link, ...]
    public: tuple[EpochPublic, ...]
    slots: Annotated[tuple[Slot, ...], msgspec.Meta(max_length=SLOTS)]

    @property
    def shredded(self) -> bool:
        """True for the last keyset of a dataset whose keys were destroyed."""
        return not self.name


class SealedParams(Record, frozen=True):
    """Parameters of the HPKE kinds: the sealed slot key."""

    sealed: bytes


class Argon2Params(Record, frozen=True):
    """Parameters of a passphrase slot; memory in KiB."""

    salt: Id
    memory: U32
    passes: U32
    lanes: U32


class KmsParams(Record, frozen=True):
    """Parameters of the KMS kinds: the slot key as the service wrapped it."""

    blob: Annotated[bytes, msgspec.Meta(min_length=1, max_length=KMS_BLOB_BYTES)]


def read_keyset(body: bytes, what: str) -> Keyset:
    """Return the keyset in *body*."""
    keyset = decode(Keyset, body, what)
    if keyset.suite != SUITE:
        raise FormatError(f"{what}: expected suite {SUITE}, found {keyset.suite}")
    if keyset.shredded:
        if keyset.chain or keyset.public or keyset.slots or keyset.version < 2 or keyset.previous == ZERO_ID:
            raise FormatError(f"{what}: a keyset without a name has to be the last of a shredded dataset, without keys")
        return keyset
    if [link.epoch for link in keyset.chain] != list(range(1, keyset.epoch)) or len(keyset.public) != keyset.epoch:
        raise FormatError(f"{what}: expected a chain and public keys for each of {keyset.epoch} epochs")
    ids = [slot.id for slot in keyset.slots]
    if keyset.version < 1 or ids != sorted(set(ids)):
        raise FormatError(f"{what}: expected slots sorted by id, each once")
    if (keyset.version == 1) != (keyset.previous == ZERO_ID):
        raise FormatError(f"{what}: expected a zero previous hash in version 1 and only there")
    for slot in keyset.slots:
        if slot.scope not in SCOPES or not 1 <= slot.epoch <= keyset.epoch:
            raise FormatError(f"{what}: slot {slot.id.hex()} has scope {slot.scope} and epoch {slot.epoch}")
        if len(slot.fingerprint) not in (0, 32):
            raise FormatError(f"{what}: slot {slot.id.hex()} has a fingerprint of {len(slot.fingerprint)} bytes")
    return keyset


def write_keyset(keyset: Keyset) -> bytes:
    """Return the body of *keyset*."""
    return encode(keyset)


def read_sealed_params(slot: Slot, what: str) -> SealedParams:
    """Return an HPKE slot's parameters."""
    return decode(SealedParams, slot.params, what)


def read_argon2_params(slot: Slot, what: str) -> Argon2Params:
    """Return a passphrase slot's parameters."""
    return decode(Argon2Params, slot.params, what)


def read_kms_params(slot: Slot, what: str) -> KmsParams:
    """Return a KMS slot's parameters."""
    return decode(KmsParams, slot.params, what)
