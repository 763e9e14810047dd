"""A parcel: bytes sealed to the auditors of a log, padded, one object of the store (docs/format.md, section 15).

    magic `DSYNAUD1` | u16 slots | slots: kem u8 (`h` or `x`) | fingerprint 32 | u16 length | sealed key | Box

The box holds `u32 length | zstd of the content | zero bytes`, so that the whole has the padded size. Its key is fresh
for each parcel and sealed to every auditor; the object's name is bound in. Raises `FormatError`, `IntegrityError`,
`WrongKey`.
"""

import struct
from collections.abc import Sequence
from typing import Protocol

import zstandard

from datasync.audit.primitives import Primitives
from datasync.errors import FormatError, WrongKey
from datasync.format.encoding import padme
from datasync.model.limits import MIB

MAGIC = b"DSYNAUD1"
LABEL = "audit-parcel"
CONTENT_BYTES = 16 * MIB  # what a reader takes after decompression
OBJECT_BYTES = 16 * MIB
SLOTS = 256
KEY_BYTES = 32
_BOX_BYTES = 32 + 32 + 16  # salt, commitment, tag
_SLOT = struct.Struct("<B32sH")


class Recipient(Protocol):
    """An auditor's public key."""

    @property
    def kem(self) -> str: ...
    @property
    def fingerprint(self) -> bytes: ...
    def seal(self, plaintext: bytes, info: bytes) -> bytes: ...


class Opener(Protocol):
    """An auditor's private key."""

    @property
    def recipient(self) -> Recipient: ...
    @property
    def x25519_recipient(self) -> Recipient: ...
    def open(self, kem: str, sealed: bytes, info: bytes) -> bytes: ...


def _info(name: str) -> bytes:
    return b"datasync/v1/audit-parcel\0" + name.encode()


def write_parcel(p: Primitives, name: str, content: bytes, recipients: Sequence[Recipient]) -> bytes:
    """Return the object *name* that holds *content* for *recipients*."""
    key = p.random(KEY_BYTES)
    slots = b""
    for item in recipients:
        sealed = item.seal(key, _info(name))
        slots += _SLOT.pack(ord(item.kem), item.fingerprint, len(sealed)) + sealed
    head = MAGIC + struct.pack("<H", len(recipients)) + slots
    packed = zstandard.compress(content)
    inner = struct.pack("<I", len(packed)) + packed
    inner += bytes(padme(len(head) + _BOX_BYTES + len(inner)) - len(head) - _BOX_BYTES - len(inner))
    return head + p.seal(key, LABEL, _info(name) + head, inner)


def read_parcel(p: Primitives, name: str, data: bytes, opener: Opener) -> bytes:
    """Return the content of the object *name*."""
    slots, head = _slots(name, data)
    mine = {item.fingerprint for item in (opener.recipient, opener.x25519_recipient)}
    for kem, fingerprint, sealed in slots:
        if fingerprint in mine:
            key = opener.open(kem, sealed, _info(name))
            return _content(name, p.open(key, LABEL, _info(name) + head, data[len(head) :]))
    raise WrongKey(f"{name}: it is sealed to {len(slots)} auditors, and this identity is none of them")


def _slots(name: str, data: bytes) -> tuple[list[tuple[str, bytes, bytes]], bytes]:
    if data[:8] != MAGIC or len(data) < 10 or len(data) != padme(len(data)):
        raise FormatError(f"{name}: expected a parcel of the audit log, found something else")
    (count,) = struct.unpack_from("<H", data, 8)
    at, found = 10, list[tuple[str, bytes, bytes]]()
    if not 1 <= count <= SLOTS:
        raise FormatError(f"{name}: expected 1 to {SLOTS} auditors, found {count}")
    for _ in range(count):
        if at + _SLOT.size > len(data):
            raise FormatError(f"{name}: it ends inside its slots")
        kem, fingerprint, length = _SLOT.unpack_from(data, at)
        at += _SLOT.size
        if chr(kem) not in ("h", "x") or at + length > len(data):
            raise FormatError(f"{name}: a slot does not parse")
        found.append((chr(kem), fingerprint, data[at : at + length]))
        at += length
    return found, data[:at]


def _content(name: str, inner: bytes) -> bytes:
    (length,) = struct.unpack_from("<I", inner)
    if 4 + length > len(inner) or inner[4 + length :].strip(b"\0"):
        raise FormatError(f"{name}: the content or its padding is not as it should be")
    try:
        size = zstandard.frame_content_size(inner[4 : 4 + length])
        if not 0 <= size <= CONTENT_BYTES:
            raise FormatError(f"{name}: expected at most {CONTENT_BYTES} bytes of content, found {size}")
        return zstandard.decompress(inner[4 : 4 + length], max_output_size=CONTENT_BYTES)
    except zstandard.ZstdError:
        raise FormatError(f"{name}: the content does not decompress") from None
