"""Small secret files of this machine: 32 random bytes, 0600, made at first use. Raises `UsageError`."""

import os
from pathlib import Path

from datasync.crypto.kdf import random_bytes
from datasync.errors import UsageError

SEED_BYTES = 32


def seed_at(path: Path) -> bytes:
    """Return the 32 secret bytes in the file *path*, made at first use (0600)."""
    try:
        seed = path.read_bytes()
    except FileNotFoundError:
        seed = _make(path)
    if len(seed) != SEED_BYTES:
        raise UsageError(
            f"{path}: expected a key of {SEED_BYTES} bytes, found {len(seed)}: remove the file, a new one is made"
        )
    return seed


def _make(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{random_bytes(4).hex()}")
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(random_bytes(SEED_BYTES))
        file.flush()
        os.fsync(fd)
    try:
        os.link(aside, path)  # the first of several processes wins, all use its key
    except FileExistsError:
        pass
    finally:
        os.unlink(aside)
    return path.read_bytes()
