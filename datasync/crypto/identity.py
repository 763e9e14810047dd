"""An identity: what one person or machine reads with (X-Wing) and signs with (Ed25519), and the datasets it trusts.

The file is TOML, 0600, owner-checked after opening. Secrets are never shown by repr. Raises `NotFound`, `WrongKey`
(unusable file), `UsageError` (permissions).
"""

import os
import stat
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from datasync.crypto.kdf import random_bytes
from datasync.crypto.recipients import KEY_PAIR_SEED_BYTES, MLKEM_SEED_BYTES, KeyPair, Recipient
from datasync.crypto.signatures import SigningKey, signer_text
from datasync.errors import NotFound, UsageError, WrongKey

IDENTITY_LIMIT_BYTES = 1024 * 1024
SIGNING_SEED_BYTES = 32


@dataclass(frozen=True, repr=False)
class Identity:
    """The raw secrets, and the dataset ids that this identity was told to trust."""

    seed: bytes
    signing_seed: bytes
    trust: tuple[str, ...] = ()

    @classmethod
    def generate(cls) -> "Identity":
        """Return a fresh identity."""
        return cls(random_bytes(KEY_PAIR_SEED_BYTES), random_bytes(SIGNING_SEED_BYTES))

    @cached_property
    def key_pair(self) -> KeyPair:
        """What opens slots."""
        return KeyPair(self.seed)

    @cached_property
    def signing_key(self) -> SigningKey:
        """What signs snapshots, keysets and trust roots."""
        return SigningKey(self.signing_seed)

    @property
    def recipient(self) -> Recipient:
        """The public half that others grant access to."""
        return self.key_pair.recipient


def write_identity(path: Path, identity: Identity) -> None:
    """Create the file at *path* (0600), never over an existing one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"identity {path}: expected no file there, found one: it is not overwritten") from None
    with os.fdopen(fd, "w") as file:
        file.write(_render(identity))
        file.flush()
        os.fsync(fd)


def _render(identity: Identity) -> str:
    return (
        "# datasync identity: whoever has this file reads and signs as you. Keep it secret, keep a copy.\n"
        f'recipient = "{identity.recipient.text}"\n'
        f'signer = "{signer_text(identity.signing_key.public)}"\n'
        f'mlkem_seed = "{identity.seed[:MLKEM_SEED_BYTES].hex()}"\n'
        f'x25519 = "{identity.seed[MLKEM_SEED_BYTES:].hex()}"\n'
        f'ed25519 = "{identity.signing_seed.hex()}"\n'
        f"trust = [{', '.join(f'{item!r}' for item in identity.trust)}]\n"
    )


def read_identity(path: Path) -> Identity:
    """Return the identity in *path*."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotFound(
            f"identity {path}: expected the file, found none: run `datasync init`, or set DATASYNC_IDENTITY"
        ) from None
    except OSError as error:
        raise UsageError(f"identity {path}: cannot be opened: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        _check_owner(path, os.fstat(fd))
        text = file.read(IDENTITY_LIMIT_BYTES)
    try:
        fields = tomllib.loads(text.decode())
        seed = bytes.fromhex(fields["mlkem_seed"]) + bytes.fromhex(fields["x25519"])
        identity = Identity(
            seed, bytes.fromhex(fields["ed25519"]), tuple(str(item) for item in fields.get("trust", ()))
        )
        lengths = len(identity.seed), len(identity.signing_seed)
    except (ValueError, KeyError, TypeError):  # the text is secret, so the parser's own words are not shown
        lengths = (0, 0)
    if lengths != (KEY_PAIR_SEED_BYTES, SIGNING_SEED_BYTES):
        raise WrongKey(
            f"identity {path}: expected the TOML keys mlkem_seed, x25519 and ed25519 in hex, found something else"
        )
    return identity


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"identity {path}: expected a regular file")
    if status.st_uid != os.geteuid():
        raise UsageError(f"identity {path}: expected to be owned by uid {os.geteuid()}, found {status.st_uid}")
    if status.st_mode & 0o077:
        raise UsageError(
            f"identity {path}: expected mode 0600, found {status.st_mode & 0o777:04o}: run chmod 600 {path}"
        )
