"""The node's own key, which signs what this machine says of itself: ready receipts, purge receipts."""

import os
from pathlib import Path

from datasync.crypto.kdf import random_bytes
from datasync.crypto.signatures import SigningKey, parse_signer, signer_text, verify
from datasync.errors import IntegrityError, UsageError
from datasync.pull.pipeline import Receipt

SEED_BYTES = 32
KIND = "ready"


def node_key(directory: Path) -> SigningKey:
    """Return the key in *directory*, made at first use (0600)."""
    path = directory / "node.key"
    try:
        seed = path.read_bytes()
    except FileNotFoundError:
        seed = _make(path)
    if len(seed) != SEED_BYTES:
        raise UsageError(
            f"{path}: expected a key of {SEED_BYTES} bytes, found {len(seed)}: remove the file, a new one is made"
        )
    return SigningKey(seed)


def _make(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".node.key.{os.getpid()}")
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


def receipt(directory: Path, repository: str, tool: str) -> Receipt:
    """Return what signs a view's receipt on this node."""
    key = node_key(directory)
    return Receipt(bytes.fromhex(repository), tool, signer_text(key.public), lambda text: key.sign(KIND, text))


def check_receipt(directory: Path, node: str, text: bytes, signature: bytes, what: str) -> None:
    """Refuse a receipt that this node did not sign."""
    key = node_key(directory)
    if parse_signer(node) != key.public:
        raise IntegrityError(
            f"{what}: signed by another node ({node[:20]}…): its files were not verified on this one: warm again"
        )
    verify(key.public, KIND, text, signature)
