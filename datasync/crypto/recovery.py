"""The recovery kit's secret: 32 bytes, written so that a person can copy them from paper.

Base32 (RFC 4648) of the seed and a check, in groups of four, after `DSRK1`; a wrong letter is found.
`Identity.from_recovery` makes the recovery identity of it, which is an owner of its own with a slot of its own.
"""

import base64
import binascii

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.identity import RECOVERY_SEED_BYTES
from datasync.errors import WrongKey

PREFIX = "DSRK1"
CHECK_BYTES = 3
GROUP = 4


def recovery_text(seed: bytes) -> str:
    """Return the text form of *seed*."""
    body = base64.b32encode(seed + _check(seed)).decode().rstrip("=")
    return "-".join([PREFIX, *(body[start : start + GROUP] for start in range(0, len(body), GROUP))])


def parse_recovery(text: str) -> bytes:
    """Return the seed in *text*; spaces, dashes and case do not matter. Raises `WrongKey`."""
    packed = "".join(text.split()).replace("-", "").upper()
    body = packed.removeprefix(PREFIX)
    try:
        raw = base64.b32decode(body + "=" * (-len(body) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    seed, check = raw[:RECOVERY_SEED_BYTES], raw[RECOVERY_SEED_BYTES:]
    if not packed.startswith(PREFIX) or len(seed) != RECOVERY_SEED_BYTES or check != _check(seed):
        raise WrongKey(f"recovery secret: expected the text that starts with {PREFIX}-, found a wrong letter or length")
    return seed


def _check(seed: bytes) -> bytes:
    return hash_bytes(b"datasync/v1/recovery" + seed)[:CHECK_BYTES]
