"""Control objects: sealed, numbered, signed (docs/format.md, sections 11 and 12): packs whose chunk 0 is Signed."""

from dataclasses import dataclass

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.signatures import SigningKey
from datasync.errors import FormatError, IntegrityError
from datasync.format.pack import TYPE_NAMES
from datasync.format.signed import Signature, read_signed, write_signed
from datasync.model.entries import FORM_RAW
from datasync.model.limits import PACK_BYTES
from datasync.repository.keyring import Keyring, SealingKeys
from datasync.repository.packs import Piece, open_pack, seal_pack
from datasync.repository.trust import check_signatures

SIGN_KINDS = {
    3: "snapshot",
    4: "head",
    5: "tags",
    6: "relocation",
    7: "condemned",
    8: "policy",
    9: "forgotten",
}


@dataclass(frozen=True, slots=True)
class ControlObject:
    """An opened control object: its body, the same with its signatures, who signed it, the chunks after it,
    and the hash of the stored bytes.
    """

    body: bytes
    signed: bytes
    signers: list[bytes]
    rest: list[bytes]
    digest: bytes
    epoch: int


def seal_control(
    keys: SealingKeys, type_: int, body: bytes, signer: SigningKey, rest: list[bytes] | None = None
) -> bytes:
    """Return the object's bytes: *body* signed as its kind, then the chunks *rest*."""
    return seal_signed(keys, type_, signed_body(type_, body, signer), rest)


def seal_signed(keys: SealingKeys, type_: int, signed: bytes, rest: list[bytes] | None = None) -> bytes:
    """Return the object's bytes: what one or several have *signed*, then the chunks *rest*."""
    chunks = [signed, *(rest or [])]
    pieces = [Piece(hash_bytes(chunk), FORM_RAW, len(chunk), chunk) for chunk in chunks]
    out = memoryview(bytearray(min(PACK_BYTES, 2 * sum(map(len, chunks)) + 128 * 1024)))
    return bytes(seal_pack(keys, type_, pieces, out, full=False).data)


def signed_body(type_: int, body: bytes, signer: SigningKey) -> bytes:
    """Return *body* signed as its kind; Ed25519 makes the same bytes each time."""
    return write_signed(body, [Signature(signer.public, signer.sign(SIGN_KINDS[type_], body))])


def open_control(keyring: Keyring, type_: int, data: bytes, what: str) -> ControlObject:
    """Open the object in *data*; every byte of it is authenticated and its signatures hold.

    Who may sign is the caller's to check.
    """
    try:
        pack = open_pack(keyring, data, type_, what)
        pack.check_padding(what)
        chunks = [bytes(raw) for row, raw in pack.chunks(what) if _intact(row.id, raw, what)]
    except IntegrityError as error:
        raise error if what in str(error) else type(error)(f"{what}: {error}") from None
    if not chunks:
        raise FormatError(f"{what}: a {TYPE_NAMES[type_]} without a body")
    signed = read_signed(chunks[0], what)
    signers = check_signatures(signed, SIGN_KINDS[type_], what)
    return ControlObject(signed.body, chunks[0], signers, chunks[1:], hash_bytes(data), pack.header.epoch)


def _intact(chunk_id: bytes, raw: bytes | bytearray | memoryview, what: str) -> bool:
    if hash_bytes(raw) != chunk_id:
        raise IntegrityError(f"{what}: a chunk does not hash to its id")
    return True
