"""The id of a file's content and attributes, known before any fetch (docs/format.md, section 5)."""

from collections.abc import Iterable

import msgspec

from datasync.crypto.hashing import keyed_hash
from datasync.model.entries import Entry


def file_id(id_key: bytes, entry: Entry, chunk_ids: Iterable[bytes]) -> bytes:
    """Return 32 bytes; equal for equal chunks, holes, size, mtime, mode and extended attributes."""
    fields = [b"".join(chunk_ids), entry.holes, entry.size, entry.mtime, entry.mode, entry.xattrs]
    return keyed_hash(id_key, msgspec.msgpack.encode(fields))
