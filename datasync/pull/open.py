"""Open one fetched chunk, and verify it by its id. Raises `IntegrityError`."""

from datasync.crypto.aead import PackOpener
from datasync.crypto.hashing import keyed_hash
from datasync.errors import IntegrityError
from datasync.format.pack import TAG_BYTES
from datasync.repository.opening import Buffer, open_chunk
from datasync.repository.ranges import Ref

__all__ = ["Buffer", "open_verified"]


def open_verified(
    opener: PackOpener, head: bytes, ref: Ref, sealed: memoryview, at: int, plain: memoryview, id_key: bytes, name: str
) -> Buffer:
    """Return the raw bytes of the chunk *ref* that lies at *at* in *sealed*; they may lie in *plain*."""
    found = sealed[at : at + ref.stored + TAG_BYTES]
    raw = open_chunk(opener, head, ref, ref.position, found, plain, name)
    if keyed_hash(id_key, raw) != ref.id:
        raise IntegrityError(f"{name}: the chunk at position {ref.position} does not hash to its id")
    return raw
