"""Sealing and opening packs (docs/format.md, section 8): joins format, crypto and compression; does no I/O.

Writing gathers chunks in one buffer and seals them, in random order, into another: the shuffle costs no copy (ADR 2).
Raises `IntegrityError` for anything that is not what its id says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from datasync.crypto.aead import PackOpener, PackSealer
from datasync.crypto.hashing import hash_bytes, keyed_hash
from datasync.crypto.kdf import random_bytes, shuffle
from datasync.errors import FormatError, IntegrityError
from datasync.format import pack as packs
from datasync.format.pack import PackHeader, Row
from datasync.format.packref import header_of, reference_to
from datasync.model.entries import FORM_ZSTD, PackRef
from datasync.model.limits import PACK_BYTES, PACK_CHUNKS
from datasync.repository.keyring import Keyring, SealingKeys, pack_info
from datasync.repository.opening import open_chunk

Buffer = bytes | bytearray | memoryview


class Piece(NamedTuple):
    """One chunk ready to seal; `data` is its stored form."""

    id: bytes
    form: int
    raw: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class SealedPack:
    """A finished pack: its reference, its bytes, and each piece's (position, offset) in the order given."""

    ref: PackRef
    data: memoryview
    places: list[tuple[int, int]]


def fits(header_size: int, stored_total: int, count: int, extra: int) -> bool:
    """Tell whether one more chunk of *extra* stored bytes still fits in a full pack."""
    return count < PACK_CHUNKS and packs.unpadded_bytes(header_size, stored_total + extra, count + 1) <= PACK_BYTES


def seal_pack(keys: SealingKeys, type_: int, pieces: Sequence[Piece], out: memoryview, *, full: bool) -> SealedPack:
    """Seal *pieces* into *out* and return the pack, a view of *out*."""
    order = shuffle(len(pieces)) if type_ in (packs.DATA, packs.METADATA) else list(range(len(pieces)))
    size_of_header = packs.FIXED_HEADER_BYTES + len(keys.sealed_key)
    unpadded = packs.unpadded_bytes(size_of_header, sum(len(piece.data) for piece in pieces), len(pieces))
    size = packs.padded_bytes(unpadded, full=full)
    salt = _salt(keys, [pieces[index] for index in order], size)
    sealer = PackSealer(keys.material, salt, pack_info(type_, keys.source, keys.epoch, keys.dataset))
    header = PackHeader(type_, keys.source, keys.epoch, keys.dataset, salt, sealer.commitment, keys.sealed_key)
    head = header.encode()
    out[: len(head)] = head
    places, end = _seal_chunks(sealer, head, pieces, order, out)
    _seal_rest(sealer, head, [pieces[index] for index in order], out, end, size)
    data = out[:size]
    return SealedPack(reference_to(hash_bytes(data), size, header), data, places)


def _salt(keys: SealingKeys, ordered: list[Piece], size: int) -> bytes:
    parts = [random_bytes(32)]
    for piece in ordered:
        parts += (piece.id, bytes((piece.form,)), len(piece.data).to_bytes(4, "little"))
        if piece.form == FORM_ZSTD:
            parts.append(hash_bytes(piece.data))
    parts.append(size.to_bytes(8, "little"))
    return keyed_hash(keys.salt_key, b"".join(parts))


def _seal_chunks(
    sealer: PackSealer, head: bytes, pieces: Sequence[Piece], order: list[int], out: memoryview
) -> tuple[list[tuple[int, int]], int]:
    places = [(0, 0)] * len(pieces)
    offset = len(head)
    for position, index in enumerate(order):
        piece = pieces[index]
        end = offset + len(piece.data) + packs.TAG_BYTES
        sealer.seal_into(
            piece.data, packs.aad(head, packs.WHAT_CHUNK, position, piece.form, piece.raw, piece.id), out[offset:end]
        )
        places[index] = (position, offset)
        offset = end
    return places, offset


def _seal_rest(sealer: PackSealer, head: bytes, ordered: list[Piece], out: memoryview, offset: int, size: int) -> None:
    footer = packs.write_footer([(piece.id, piece.form, piece.raw, len(piece.data)) for piece in ordered])
    footer_start = size - packs.TRAILER_BYTES - packs.TAG_BYTES - len(footer)
    padding = bytes(footer_start - packs.TAG_BYTES - offset)
    count = len(ordered)
    sealer.seal_into(padding, packs.aad(head, packs.WHAT_PADDING, count, 0, len(padding)), out[offset:footer_start])
    end = size - packs.TRAILER_BYTES
    sealer.seal_into(footer, packs.aad(head, packs.WHAT_FOOTER, count + 1, 0, len(footer)), out[footer_start:end])
    out[end:size] = (end - footer_start).to_bytes(4, "little")


def opener_of(keyring: Keyring, pack: PackRef, type_: int) -> tuple[PackOpener, bytes]:
    """Return what opens *pack*'s chunks, and its header's bytes for their AAD."""
    header = header_of(pack, type_, keyring.dataset)
    return keyring.opener(header, f"pack {pack.id.hex()}"), header.encode()


@dataclass(frozen=True, slots=True)
class OpenPack:
    """A whole pack whose table was authenticated."""

    header: PackHeader
    rows: list[Row]
    opener: PackOpener
    data: Buffer

    def chunks(self, what: str) -> Iterator[tuple[Row, Buffer]]:
        """Yield each row with its raw bytes, in order of position."""
        head = self.header.encode()
        view = memoryview(self.data)
        for position, row in enumerate(self.rows):
            scratch = memoryview(bytearray(row.stored))
            sealed = view[row.offset : row.offset + row.stored + packs.TAG_BYTES]
            yield row, open_chunk(self.opener, head, row, position, sealed, scratch, what)

    def check_padding(self, what: str) -> None:
        """Refuse padding that is not authentic zeros."""
        head, count = self.header.encode(), len(self.rows)
        start = self.rows[-1].offset + self.rows[-1].stored + packs.TAG_BYTES if self.rows else self.header.size
        end = len(self.data) - packs.TRAILER_BYTES - packs.TAG_BYTES - packs.footer_bytes(count)
        sealed = memoryview(self.data)[start:end]
        padding = self.opener.open(
            count, sealed, packs.aad(head, packs.WHAT_PADDING, count, 0, len(sealed) - packs.TAG_BYTES)
        )
        if padding.count(0) != len(padding):
            raise FormatError(f"{what}: expected zero padding")


def open_pack(keyring: Keyring, data: Buffer, type_: int, what: str) -> OpenPack:
    """Authenticate header and table of the whole pack in *data*."""
    header = packs.read_header(memoryview(data), what)
    if header.type != type_:
        raise FormatError(f"{what}: expected a {packs.TYPE_NAMES[type_]}, found a {packs.TYPE_NAMES[header.type]}")
    opener = keyring.opener(header, what)
    length = int.from_bytes(data[-packs.TRAILER_BYTES :], "little")
    count = packs.footer_position(length, what)
    end = len(data) - packs.TRAILER_BYTES
    if length > end - header.size:
        raise FormatError(f"{what}: a footer of {length} bytes does not fit in {len(data)}")
    aad = packs.aad(header.encode(), packs.WHAT_FOOTER, count + 1, 0, length - packs.TAG_BYTES)
    footer = opener.open(count + 1, memoryview(data)[end - length : end], aad)
    return OpenPack(header, packs.read_footer(footer, header.size, len(data), what), opener, data)


def check_pack_id(pack_id: bytes, data: Buffer, what: str) -> None:
    """Refuse *data* that is not the pack *pack_id*; needs no key."""
    found = hash_bytes(data)
    if found != pack_id:
        raise IntegrityError(f"{what}: its bytes hash to {found.hex()}: the object was changed or cut")
