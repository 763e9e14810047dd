"""Raw Ed25519 (RFC 8032) for C2SP signed notes: the audit log's checkpoints (docs/format.md, section 15).

Other programs check these signatures, so no domain is put before a note's text, which begins with its log's name. The
key that makes them signs manifests of exports besides, which begin otherwise, and nothing else. Raises
`IntegrityError`.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from datasync.errors import IntegrityError


class NoteKey:
    """A private Ed25519 key of an audit log; `public` has 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature over *message*."""
        return self._key.sign(message)


def verify_note(public: bytes, message: bytes, signature: bytes) -> None:
    """Raise `IntegrityError` unless *signature* is *public*'s over *message*."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise IntegrityError(f"note: the signature of key {public.hex()[:16]}… does not hold") from None
