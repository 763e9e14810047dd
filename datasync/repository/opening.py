"""Opening one chunk of a pack, with the pack's opener at hand: decrypted, decompressed; its id is for callers to check.

Raises `IntegrityError`. Loads no keyring: the workers of a transfer need this and no more.
"""

from typing import TYPE_CHECKING

from datasync.crypto.aead import PackOpener
from datasync.format import pack as packs
from datasync.repository.compression import decompress

if TYPE_CHECKING:
    from datasync.format.pack import Row
    from datasync.format.snapshot import PageRef
    from datasync.model.entries import ChunkRef, ListRef

Buffer = bytes | bytearray | memoryview


def open_chunk(
    opener: PackOpener,
    head: bytes,
    ref: "ChunkRef | ListRef | PageRef | Row",
    position: int,
    sealed: Buffer,
    scratch: memoryview,
    what: str,
) -> Buffer:
    """Return the raw bytes of one chunk; they may lie in *scratch* until it is used again.

    The id is the caller's to check.
    """
    plain = scratch[: ref.stored]
    opener.open_into(position, sealed, packs.aad(head, packs.WHAT_CHUNK, position, ref.form, ref.raw, ref.id), plain)
    return decompress(ref.form, plain, ref.raw, what)
