"""The one AEAD wrapper: AES-256-GCM with key commitment (docs/format.md, sections 2 and 8).

Nonces are made here: a sealer counts its own positions, a box uses its key once. The commitment is the second half of
the HKDF output that makes the key, and is compared before any decryption, so no ciphertext opens under two keys
(Albertini et al., "How to Abuse and Fix Authenticated Encryption Without Key Commitment", USENIX Security 2022). Raises
`IntegrityError`; a buffer whose tag failed is wiped.
"""

import hmac
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from datasync.crypto.kdf import KEY_BYTES, derive, random_bytes
from datasync.errors import IntegrityError

TAG_BYTES = 16
SALT_BYTES = 32
BOX_OVERHEAD = SALT_BYTES + KEY_BYTES + TAG_BYTES
_NONCE_BYTES = 12

Buffer = bytes | bytearray | memoryview


def _nonce(position: int) -> bytes:
    return position.to_bytes(_NONCE_BYTES, "little")


class PackSealer:
    """Seals one pack's chunks, one after the other; position 0 first. Not thread-safe, used for one pack only."""

    def __init__(self, key_material: bytes, salt: bytes, info: bytes) -> None:
        okm = derive(key_material, info, 2 * KEY_BYTES, salt=salt)
        self.commitment = okm[KEY_BYTES:]
        self.position = 0
        self._cipher = AESGCM(okm[:KEY_BYTES])

    def seal_into(self, plaintext: Buffer, aad: bytes, out: memoryview) -> None:
        """Write ciphertext and tag of *plaintext* to *out* (16 bytes longer) under the next position."""
        self._cipher.encrypt_into(_nonce(self.position), plaintext, aad, out)
        self.position += 1


class PackOpener:
    """Opens chunks of one pack, in any order. Thread-safe."""

    def __init__(self, key_material: bytes, salt: bytes, info: bytes, commitment: bytes, name: str) -> None:
        okm = derive(key_material, info, 2 * KEY_BYTES, salt=salt)
        if not hmac.compare_digest(okm[KEY_BYTES:], commitment):
            raise IntegrityError(
                f"{name}: the key commitment does not match: another key sealed it, or its header was changed"
            )
        self._take(okm[:KEY_BYTES], name)

    def _take(self, key: bytes, name: str) -> None:
        self._key = key
        self._name = name
        self._cipher = AESGCM(key)

    def hand_over(self) -> bytes:
        """Return this one pack's key, its commitment checked, for a process of our own (`taken_over`)."""
        return self._key

    @classmethod
    def taken_over(cls, key: bytes, name: str) -> Self:
        """Return the opener of the pack whose key another process of ours checked and handed over."""
        opener = cls.__new__(cls)
        opener._take(key, name)
        return opener

    def open_into(self, position: int, sealed: Buffer, aad: bytes, out: memoryview) -> None:
        """Write the plaintext of *sealed* (tag included) to *out*, 16 bytes shorter; wipe *out* when the tag fails."""
        try:
            self._cipher.decrypt_into(_nonce(position), sealed, aad, out)
        except InvalidTag:
            out[:] = bytes(len(out))
            raise IntegrityError(
                f"{self._name}: position {position} fails authentication: its bytes or its place were changed"
            ) from None

    def open(self, position: int, sealed: Buffer, aad: bytes) -> bytearray:
        """Return the plaintext of *sealed*."""
        out = bytearray(max(0, len(sealed) - TAG_BYTES))
        self.open_into(position, sealed, aad, memoryview(out))
        return out


def _box_info(label: str, context: bytes) -> bytes:
    return b"datasync/v1/box/" + label.encode() + b"\0" + context


def seal_box(key: bytes, label: str, context: bytes, plaintext: bytes) -> bytes:
    """Seal a small field under a key of its own (docs/format.md, section 2)."""
    salt = random_bytes(SALT_BYTES)
    okm = derive(key, _box_info(label, context), 2 * KEY_BYTES, salt=salt)
    return salt + okm[KEY_BYTES:] + AESGCM(okm[:KEY_BYTES]).encrypt(_nonce(0), plaintext, None)


def open_box(key: bytes, label: str, context: bytes, box: bytes) -> bytes:
    """Return what `seal_box` sealed; raise `IntegrityError` for another key, label, context or any changed byte."""
    if len(box) < BOX_OVERHEAD:
        raise IntegrityError(f"sealed {label}: expected at least {BOX_OVERHEAD} bytes, found {len(box)}")
    salt, commitment, sealed = box[:SALT_BYTES], box[SALT_BYTES : SALT_BYTES + KEY_BYTES], box[SALT_BYTES + KEY_BYTES :]
    okm = derive(key, _box_info(label, context), 2 * KEY_BYTES, salt=salt)
    if not hmac.compare_digest(okm[KEY_BYTES:], commitment):
        raise IntegrityError(f"sealed {label}: the key commitment does not match")
    try:
        return AESGCM(okm[:KEY_BYTES]).decrypt(_nonce(0), sealed, None)
    except InvalidTag:
        raise IntegrityError(f"sealed {label}: authentication failed") from None
