"""Plain objects and the Signed structure (docs/format.md, section 2)."""

from typing import Annotated

import msgspec

from datasync.errors import FormatError
from datasync.format.encoding import Id, Record, decode, encode, padme
from datasync.model.limits import PLAIN_PAYLOAD_BYTES, SIGNATURES

MAGIC = b"DSYNPLN1"
HEADER_BYTES = 16
TRUST = 1
KEYSET = 2
KIND_NAMES = {TRUST: "trust", KEYSET: "keyset"}


class Signature(Record, frozen=True):
    """One signer's signature."""

    signer: Id
    signature: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]


class Signed(Record, frozen=True):
    """A body, kept as the bytes that were signed, and its signatures."""

    body: bytes
    signatures: Annotated[tuple[Signature, ...], msgspec.Meta(min_length=1, max_length=SIGNATURES)]


def read_signed(data: bytes | memoryview, what: str) -> Signed:
    """Return the Signed in *data*; the signatures are checked by the caller, who has the keys."""
    signed = decode(Signed, data, what)
    signers = [item.signer for item in signed.signatures]
    if signers != sorted(set(signers)):
        raise FormatError(f"{what}: expected signatures sorted by signer, each once")
    return signed


def write_signed(body: bytes, signatures: list[Signature]) -> bytes:
    """Return the encoding of *body* with *signatures*."""
    return encode(Signed(body, tuple(sorted(signatures, key=lambda item: item.signer))))


def write_plain(kind: int, payload: bytes) -> bytes:
    """Return the padded plain object of *kind* around *payload*."""
    if len(payload) > PLAIN_PAYLOAD_BYTES:
        raise FormatError(f"{KIND_NAMES[kind]}: expected at most {PLAIN_PAYLOAD_BYTES} bytes, found {len(payload)}")
    head = MAGIC + bytes((kind, 0, 0, 0)) + len(payload).to_bytes(4, "little")
    return (head + payload).ljust(padme(HEADER_BYTES + len(payload)), b"\0")


def read_plain(kind: int, data: bytes, what: str) -> bytes:
    """Return the payload of a plain object; every byte outside it is checked."""
    if len(data) < HEADER_BYTES or data[:8] != MAGIC or data[8:12] != bytes((kind, 0, 0, 0)):
        raise FormatError(f"{what}: expected a {KIND_NAMES[kind]} object, found other bytes")
    length = int.from_bytes(data[12:16], "little")
    end = HEADER_BYTES + length
    if length > PLAIN_PAYLOAD_BYTES or end > len(data) or len(data) != padme(end):
        raise FormatError(f"{what}: a payload of {length} bytes does not make an object of {len(data)} bytes")
    if data.count(0, end) != len(data) - end:
        raise FormatError(f"{what}: expected zero padding, found other bytes")
    return data[HEADER_BYTES:end]
