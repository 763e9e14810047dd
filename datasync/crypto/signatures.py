"""Ed25519 (RFC 8032) signatures with a domain per kind of object (docs/format.md, section 2)."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from datasync.crypto.textform import decode_text, encode_text
from datasync.errors import IntegrityError

SIGNER_PREFIX = "dss1"
KEY_BYTES = 32


def _message(kind: str, body: bytes) -> bytes:
    return b"datasync/v1/sign/" + kind.encode() + b"\0" + body


class SigningKey:
    """A private Ed25519 key; `public` is the 32 bytes that name the signer."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, kind: str, body: bytes) -> bytes:
        """Return the 64-byte signature over *body* as an object of *kind*."""
        return self._key.sign(_message(kind, body))


def verify(signer: bytes, kind: str, body: bytes, signature: bytes) -> None:
    """Raise `IntegrityError` unless *signature* is *signer*'s over *body* as an object of *kind*."""
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, _message(kind, body))
    except (InvalidSignature, ValueError):
        raise IntegrityError(f"{kind}: the signature of {signer_text(signer)} does not hold") from None


def signer_text(signer: bytes) -> str:
    """Return the text form of a signer's public key."""
    return encode_text(SIGNER_PREFIX, b"datasync/v1/signer", signer)


def parse_signer(text: str) -> bytes:
    """Return the 32 bytes of a signer's text form; raise `UsageError`."""
    return decode_text(text, SIGNER_PREFIX, b"datasync/v1/signer", KEY_BYTES, "signer")
