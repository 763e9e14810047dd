"""BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs): object ids, and ids keyed with a dataset's id key."""

import hashlib
from collections.abc import Iterable

from blake3 import blake3

Buffer = bytes | bytearray | memoryview


def hash_bytes(data: Buffer) -> bytes:
    """Return H(data), 32 bytes."""
    return blake3(data).digest()


def sha256(data: Buffer) -> bytes:
    """Return SHA-256 of *data* (FIPS 180-4): what RFC 6962 builds the audit log's tree with."""
    return hashlib.sha256(data).digest()


def sha256_stream() -> "hashlib._Hash":
    """Return SHA-256 to be fed piece by piece."""
    return hashlib.sha256()


def hash_all(parts: Iterable[Buffer]) -> bytes:
    """Return H of the parts one after the other, 32 bytes."""
    hasher = blake3()
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def keyed_hash(key: bytes, data: Buffer) -> bytes:
    """Return H(key, data), 32 bytes; *key* has 32."""
    return blake3(data, key=key).digest()


class KeyedHasher:
    """H(key, …) fed piece by piece."""

    def __init__(self, key: bytes) -> None:
        self._hasher = blake3(key=key)

    def update(self, data: Buffer) -> None:
        """Add *data*."""
        self._hasher.update(data)

    def digest(self) -> bytes:
        """Return the 32 bytes for everything added so far."""
        return self._hasher.digest()
