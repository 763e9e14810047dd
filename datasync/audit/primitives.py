"""What the audit log is given to compute with: this package imports no primitive itself (docs/architecture.md)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Primitives:
    """Functions of `datasync.crypto`, passed in by the service."""

    sha256: Callable[[bytes], bytes]
    verify: Callable[[bytes, bytes, bytes], None]
    """public key, message, signature: raises `IntegrityError`."""
    seal: Callable[[bytes, str, bytes, bytes], bytes]
    """key, label, context, plaintext."""
    open: Callable[[bytes, str, bytes, bytes], bytes]
    """key, label, context, sealed: raises `IntegrityError`."""
    sha256_stream: Callable[[], "Stream"]
    random: Callable[[int], bytes]
    keyed_hash: Callable[[bytes, bytes], bytes]


class Stream(Protocol):
    """SHA-256 fed piece by piece."""

    def update(self, data: bytes, /) -> None:
        """Add *data*."""

    def digest(self) -> bytes:
        """Return the 32 bytes."""


class Signer(Protocol):
    """The log's private key."""

    @property
    def public(self) -> bytes:
        """The 32 bytes of the Ed25519 public key."""

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature over *message*."""
