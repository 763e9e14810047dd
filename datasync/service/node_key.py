"""The node's own key, which signs what this machine says of itself: ready receipts, purge receipts."""

from pathlib import Path

from datasync.crypto.signatures import SigningKey, parse_signer, signer_text, verify
from datasync.errors import IntegrityError
from datasync.pull.pipeline import Receipt
from datasync.service.seed_file import seed_at

KIND = "ready"


def node_key(directory: Path) -> SigningKey:
    """Return the key in *directory*, made at first use (0600)."""
    return SigningKey(seed_at(directory / "node.key"))


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
