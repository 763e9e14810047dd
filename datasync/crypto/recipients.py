"""HPKE (RFC 9180) to recipients: X-Wing (ML-KEM-768 with X25519, draft-connolly-cfrg-xwing-kem) or X25519 alone.

`Recipient` is a public key that a slot is wrapped to, `KeyPair` the private half. Raises `WrongKey` when a private key
does not open a ciphertext, `UsageError` for a bad text form.
"""

from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.kdf import random_bytes
from datasync.crypto.textform import decode_text, encode_text
from datasync.errors import FormatError, WrongKey

HYBRID = "h"
X25519 = "x"
MLKEM_SEED_BYTES = 64
MLKEM_PUBLIC_BYTES = 1184
X25519_BYTES = 32
HYBRID_PUBLIC_BYTES = MLKEM_PUBLIC_BYTES + X25519_BYTES
KEY_PAIR_SEED_BYTES = MLKEM_SEED_BYTES + X25519_BYTES
SEALED_KEY_BYTES = {HYBRID: 1120 + 48, X25519: 32 + 48}  # enc, 32-byte key, tag

_SUITES = {
    HYBRID: Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA512, AEAD.AES_256_GCM),
    X25519: Suite(KEM.X25519, KDF.HKDF_SHA512, AEAD.AES_256_GCM),
}
_PUBLIC_BYTES = {HYBRID: HYBRID_PUBLIC_BYTES, X25519: X25519_BYTES}


def _domain(kem: str) -> bytes:
    return b"datasync/v1/recipient" + kem.encode()


@dataclass(frozen=True, slots=True)
class Recipient:
    """A public key to wrap keys to; `kem` is HYBRID or X25519."""

    kem: str
    public: bytes

    @property
    def text(self) -> str:
        """The line that people pass on."""
        return encode_text(f"dsr1{self.kem}", _domain(self.kem), self.public)

    @property
    def fingerprint(self) -> bytes:
        """H(public key), 32 bytes."""
        return hash_bytes(self.public)

    @classmethod
    def parse(cls, text: str) -> "Recipient":
        """Return the recipient in *text*."""
        kem = X25519 if text.strip().startswith("dsr1x") else HYBRID
        return cls(kem, decode_text(text, f"dsr1{kem}", _domain(kem), _PUBLIC_BYTES[kem], "recipient"))

    def seal(self, plaintext: bytes, info: bytes) -> bytes:
        """Return enc | ciphertext that only the private half opens, bound to *info*."""
        if len(self.public) != _PUBLIC_BYTES[self.kem]:
            raise FormatError(
                f"recipient: expected a public key of {_PUBLIC_BYTES[self.kem]} bytes, found {len(self.public)}"
            )
        try:
            x25519 = X25519PublicKey.from_public_bytes(self.public[-X25519_BYTES:])
            if self.kem == X25519:
                return _SUITES[X25519].encrypt(plaintext, x25519, info)
            mlkem = MLKEM768PublicKey.from_public_bytes(self.public[:MLKEM_PUBLIC_BYTES])
            return _SUITES[HYBRID].encrypt(plaintext, MLKEM768X25519PublicKey(mlkem, x25519), info)
        except ValueError:
            raise FormatError("recipient: the public key is not a valid point or encapsulation key") from None


class KeyPair:
    """The private half: 64 bytes of ML-KEM seed and 32 of X25519. Never shown by repr."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != KEY_PAIR_SEED_BYTES:
            raise ValueError(f"a key pair's seed has {KEY_PAIR_SEED_BYTES} bytes, not {len(seed)}")
        self._x25519 = X25519PrivateKey.from_private_bytes(seed[MLKEM_SEED_BYTES:])
        self._mlkem_seed = seed[:MLKEM_SEED_BYTES]

    @classmethod
    def generate(cls) -> tuple["KeyPair", bytes]:
        """Return a fresh key pair and its 96-byte seed."""
        seed = random_bytes(KEY_PAIR_SEED_BYTES)
        return cls(seed), seed

    @cached_property
    def _hybrid(self) -> MLKEM768X25519PrivateKey:
        return MLKEM768X25519PrivateKey(MLKEM768PrivateKey.from_seed_bytes(self._mlkem_seed), self._x25519)

    @cached_property
    def recipient(self) -> Recipient:
        """The hybrid public half."""
        mlkem = MLKEM768PrivateKey.from_seed_bytes(self._mlkem_seed).public_key().public_bytes_raw()
        return Recipient(HYBRID, mlkem + self._x25519.public_key().public_bytes_raw())

    @cached_property
    def x25519_recipient(self) -> Recipient:
        """The classical public half alone."""
        return Recipient(X25519, self._x25519.public_key().public_bytes_raw())

    def open(self, kem: str, sealed: bytes, info: bytes) -> bytes:
        """Return what was sealed to this key; raise `WrongKey`."""
        key = self._x25519 if kem == X25519 else self._hybrid
        try:
            return _SUITES[kem].decrypt(sealed, key, info)
        except (InvalidTag, ValueError):
            raise WrongKey("this identity does not open the sealed key") from None
