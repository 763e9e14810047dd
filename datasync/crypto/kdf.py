"""HKDF-SHA-512 (RFC 5869) and the key tree of docs/format.md, section 4; Argon2id (RFC 9106) for passphrases."""

import os
import unicodedata
from dataclasses import dataclass

from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from datasync.errors import IntegrityError, NoSpace, UsageError

KEY_BYTES = 32
ARGON2_MIN_KIB = 64 * 1024  # RFC 9106's second recommended option: 64 MiB, 3 passes
ARGON2_MAX_KIB = 4 * 1024 * 1024  # more would be an attack on this machine's memory
ARGON2_MIN_PASSES = 3
ARGON2_MAX_PASSES = 64
ARGON2_MAX_LANES = 16


def derive(key: bytes, info: bytes, length: int = KEY_BYTES, *, salt: bytes = b"") -> bytes:
    """Return *length* bytes of HKDF-SHA-512 of *key*."""
    return HKDF(SHA512(), length, salt or None, info).derive(key)


def random_key() -> bytes:
    """Return 32 fresh random bytes."""
    return os.urandom(KEY_BYTES)


def random_bytes(count: int) -> bytes:
    """Return *count* fresh random bytes."""
    return os.urandom(count)


def shuffle(count: int) -> list[int]:
    """Return 0 … count-1 in random order: sorted by random keys of 16 bytes, one system call for all."""
    drawn = os.urandom(16 * count)
    keys = [drawn[at : at + 16] for at in range(0, len(drawn), 16)]
    return sorted(range(count), key=keys.__getitem__)


@dataclass(frozen=True, slots=True, repr=False)
class EpochKeys:
    """The keys of one epoch; `root` is None for who holds the metadata key alone."""

    epoch: int
    root: bytes | None
    metadata: bytes

    @classmethod
    def from_root(cls, epoch: int, root: bytes) -> "EpochKeys":
        """Derive the epoch's metadata key from its root key."""
        return cls(epoch, root, derive(root, b"datasync/v1/metadata"))

    @property
    def data(self) -> bytes | None:
        """The data key, or None without the root key."""
        return None if self.root is None else derive(self.root, b"datasync/v1/data")


@dataclass(frozen=True, slots=True, repr=False)
class FixedKeys:
    """What belongs to the first epoch for ever, so ids survive rotation."""

    id_key: bytes
    chunker_seed: int
    page_cut: bytes
    link: bytes

    @classmethod
    def from_metadata(cls, metadata: bytes) -> "FixedKeys":
        """Derive them from the metadata key of epoch 1."""
        seed = int.from_bytes(derive(metadata, b"datasync/v1/chunker", 8), "little") & (2**63 - 1)
        return cls(
            derive(metadata, b"datasync/v1/id"),
            seed or 1,
            derive(metadata, b"datasync/v1/page-cut"),
            derive(metadata, b"datasync/v1/link"),
        )


@dataclass(frozen=True, slots=True)
class Argon2Cost:
    """Argon2id's parameters; memory in KiB."""

    memory: int = ARGON2_MIN_KIB
    passes: int = ARGON2_MIN_PASSES
    lanes: int = 4

    def check(self) -> None:
        """Raise `IntegrityError` for a cost that somebody lowered, or that would exhaust this machine."""
        if not (
            ARGON2_MIN_KIB <= self.memory <= ARGON2_MAX_KIB
            and ARGON2_MIN_PASSES <= self.passes <= ARGON2_MAX_PASSES
            and 1 <= self.lanes <= ARGON2_MAX_LANES
        ):
            raise IntegrityError(
                f"passphrase slot: expected Argon2id of at least {ARGON2_MIN_KIB} KiB and {ARGON2_MIN_PASSES} passes "
                f"(at most {ARGON2_MAX_KIB} and {ARGON2_MAX_PASSES}, {ARGON2_MAX_LANES} lanes), found {self}"
            )


def passphrase_key(passphrase: str, salt: bytes, cost: Argon2Cost) -> bytes:
    """Return the 32 bytes that Argon2id makes of *passphrase* (UTF-8 of its NFC form)."""
    cost.check()
    try:
        secret = unicodedata.normalize("NFC", passphrase).encode()
    except UnicodeEncodeError:  # its own words show the passphrase
        secret = b""
    if not secret:
        raise UsageError("passphrase: expected at least one character, all of them UTF-8")
    kdf = Argon2id(salt=salt, length=KEY_BYTES, iterations=cost.passes, lanes=cost.lanes, memory_cost=cost.memory)
    try:
        return kdf.derive(secret)
    except MemoryError:
        raise NoSpace(f"passphrase: Argon2id needs {cost.memory} KiB of memory here, found less") from None
