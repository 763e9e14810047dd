"""Identifiers: raw bytes with a type each, so that one is never passed for another (docs/format.md, section 5)."""

from typing import NewType

DatasetId = NewType("DatasetId", bytes)
"""32 bytes: BLAKE3 of the first trust root as stored."""
SnapshotId = NewType("SnapshotId", bytes)
"""32 bytes: BLAKE3 of the snapshot object as stored."""
PackId = NewType("PackId", bytes)
"""32 bytes: BLAKE3 of the pack as stored."""
ChunkId = NewType("ChunkId", bytes)
"""32 bytes: keyed BLAKE3 of a chunk's raw bytes."""
FileId = NewType("FileId", bytes)
"""32 bytes: names verified file content in a node's cache."""
ID_BYTES = 32
ZERO_ID = bytes(ID_BYTES)
