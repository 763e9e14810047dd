"""Public keys as text with a check (docs/format.md, section 4, "Text forms")."""

import base64
import binascii

from datasync.crypto.hashing import hash_bytes
from datasync.errors import UsageError

CHECK_BYTES = 4


def encode_text(prefix: str, domain: bytes, public: bytes) -> str:
    """Return prefix + base32(public | check)."""
    body = public + hash_bytes(domain + public)[:CHECK_BYTES]
    return prefix + base64.b32encode(body).decode().lower().rstrip("=")


def decode_text(text: str, prefix: str, domain: bytes, length: int, what: str) -> bytes:
    """Return the public key in *text*; raise `UsageError` for another prefix, length or check."""
    payload = text.strip().removeprefix(prefix).upper()
    try:
        raw = base64.b32decode(payload + "=" * (-len(payload) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    public = raw[:-CHECK_BYTES]
    if (
        not text.strip().startswith(prefix)
        or len(public) != length
        or encode_text(prefix, domain, public) != text.strip()
    ):
        raise UsageError(
            f"{what}: expected a line that starts with {prefix}, found {text.strip()[:16]!r}…: copy it again, whole"
        )
    return public
