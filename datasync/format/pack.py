"""Packs: many sealed chunks in one immutable object (docs/format.md, section 8). Pure: sees no keys."""

import struct
from dataclasses import dataclass

from datasync.errors import FormatError
from datasync.format.encoding import padme
from datasync.model.limits import CHUNK_BYTES, PACK_BYTES, PACK_CHUNKS

MAGIC = b"DSYNPACK"
VERSION = 1
SUITE = 1
DATA = 1
METADATA = 2
SNAPSHOT = 3
HEAD = 4
TAGS = 5
RELOCATIONS = 6
CONDEMNED = 7
POLICY = 8
FORGOTTEN = 9
TYPE_NAMES = {
    1: "data pack",
    2: "metadata pack",
    3: "snapshot",
    4: "head",
    5: "tags",
    6: "relocations",
    7: "condemned",
    8: "policy",
    9: "forgotten",
}
DERIVED = 1
SEALED = 2
SEALED_KEY_BYTES = {DERIVED: 0, SEALED: 1_168}

TAG_BYTES = 16
BOUND_BYTES = 48  # the part of the header that key derivation binds: magic to dataset id
FIXED_HEADER_BYTES = 116
TRAILER_BYTES = 4
_HEAD = struct.Struct("<8sBBBBI32s32s32sI")
_ROW = struct.Struct("<32sBII")
_AAD = struct.Struct("<BIBI32s")
WHAT_CHUNK = 1
WHAT_PADDING = 2
WHAT_FOOTER = 3
_NO_ID = bytes(32)


@dataclass(frozen=True, slots=True)
class PackHeader:
    """Everything before the first chunk."""

    type: int
    source: int
    epoch: int
    dataset: bytes
    salt: bytes
    commitment: bytes
    sealed_key: bytes

    def encode(self) -> bytes:
        """Return the header's bytes."""
        return (
            _HEAD.pack(
                MAGIC,
                VERSION,
                SUITE,
                self.type,
                self.source,
                self.epoch,
                self.dataset,
                self.salt,
                self.commitment,
                len(self.sealed_key),
            )
            + self.sealed_key
        )

    @property
    def size(self) -> int:
        """Length of the header in bytes."""
        return FIXED_HEADER_BYTES + len(self.sealed_key)


@dataclass(frozen=True, slots=True)
class Row:
    """One chunk in a footer's table; `offset` is where its ciphertext begins."""

    id: bytes
    form: int
    raw: int
    stored: int
    offset: int


def bound_header(type_: int, source: int, epoch: int, dataset: bytes) -> bytes:
    """Return header[0..47], which key derivation binds."""
    return _HEAD.pack(MAGIC, VERSION, SUITE, type_, source, epoch, dataset, _NO_ID, _NO_ID, 0)[:BOUND_BYTES]


def read_header(data: bytes | memoryview, what: str) -> PackHeader:
    """Return the header at the start of *data*."""
    if len(data) < FIXED_HEADER_BYTES:
        raise FormatError(f"{what}: expected a pack header of {FIXED_HEADER_BYTES} bytes, found {len(data)}")
    magic, version, suite, type_, source, epoch, dataset, salt, commitment, length = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION or suite != SUITE or type_ not in TYPE_NAMES or epoch < 1:
        raise FormatError(f"{what}: expected a pack of version {VERSION} and suite {SUITE}, found another header")
    if SEALED_KEY_BYTES.get(source) != length or len(data) < FIXED_HEADER_BYTES + length:
        raise FormatError(f"{what}: key source {source} does not go with a sealed key of {length} bytes")
    sealed = bytes(data[FIXED_HEADER_BYTES : FIXED_HEADER_BYTES + length])
    return PackHeader(type_, source, epoch, dataset, salt, commitment, sealed)


def aad(header: bytes, what: int, position: int, form: int, raw: int, chunk_id: bytes = _NO_ID) -> bytes:
    """Return the associated data of one sealed part."""
    return header + _AAD.pack(what, position, form, raw, chunk_id)


def footer_bytes(count: int) -> int:
    """Return the length of the plaintext footer of *count* chunks."""
    return 4 + _ROW.size * count


def unpadded_bytes(header_size: int, stored_total: int, count: int) -> int:
    """Return the size of a pack with empty padding."""
    return header_size + stored_total + TAG_BYTES * count + TAG_BYTES + footer_bytes(count) + TAG_BYTES + TRAILER_BYTES


def padded_bytes(unpadded: int, *, full: bool) -> int:
    """Return the exact size of a pack: 32 MiB for a full one, else the padded size."""
    size = PACK_BYTES if full else min(PACK_BYTES, padme(unpadded))
    if unpadded > size:
        raise FormatError(f"pack: {unpadded} bytes do not fit in {size}")
    return size


def write_footer(rows: list[tuple[bytes, int, int, int]]) -> bytes:
    """Return the plaintext footer for (id, form, raw, stored) in order of position."""
    return len(rows).to_bytes(4, "little") + b"".join(_ROW.pack(*row) for row in rows)


def footer_position(sealed_length: int, what: str) -> int:
    """Return how many chunks a sealed footer of *sealed_length* bytes describes."""
    count, rest = divmod(sealed_length - TAG_BYTES - 4, _ROW.size)
    if rest or not 0 <= count <= PACK_CHUNKS:
        raise FormatError(f"{what}: no table of chunks has a sealed length of {sealed_length} bytes")
    return count


def read_footer(data: bytes | bytearray, header_size: int, pack_size: int, what: str) -> list[Row]:
    """Return the table in the plaintext footer *data* of a pack of *pack_size* bytes; every length has to add up."""
    count = int.from_bytes(data[:4], "little")
    if len(data) != footer_bytes(count):
        raise FormatError(f"{what}: footer lists {count} chunks in {len(data)} bytes")
    rows, offset = [], header_size
    for chunk_id, form, raw, stored in _ROW.iter_unpack(memoryview(data)[4:]):
        if (
            not 1 <= raw <= CHUNK_BYTES
            or stored < 1
            or form not in (0, 1)
            or (stored >= raw if form else stored != raw)
        ):
            raise FormatError(f"{what}: footer has a chunk of form {form}, {raw} raw and {stored} stored bytes")
        rows.append(Row(chunk_id, form, raw, stored, offset))
        offset += stored + TAG_BYTES
    unpadded = offset + TAG_BYTES + len(data) + TAG_BYTES + TRAILER_BYTES
    if pack_size not in (padded_bytes(unpadded, full=False), PACK_BYTES):
        raise FormatError(f"{what}: {unpadded} bytes of content do not make a pack of {pack_size} bytes")
    return rows
