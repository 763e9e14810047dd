"""Witnesses: others who sign that a log only grew (C2SP tlog-witness and tlog-cosignature, version 1).

A witness keeps the size that it signed last, asks for a consistency proof from there, and signs
`cosignature/v1`, a time, and the checkpoint's text. So a log that shows different histories to different people needs
every one of its witnesses to help. Pure. Raises `FormatError`, `IntegrityError`, `UsageError`.
"""

import base64
import struct
from dataclasses import dataclass

from datasync.audit.checkpoint import parse_note
from datasync.audit.primitives import Primitives
from datasync.errors import FormatError, IntegrityError, UsageError

COSIGNATURE = b"\4"  # signature type
PROOF_HASHES = 63
_BLOB = struct.Struct(">4sQ64s")


@dataclass(frozen=True, slots=True)
class Witness:
    """A witness's name and public key."""

    name: str
    key_hash: bytes
    public: bytes


def parse_witness(p: Primitives, text: str) -> Witness:
    """Return the witness of a verifier key `name+<8 hex>+<base64 of 0x04 and the public key>`."""
    try:
        name, digits, blob = text.strip().split("+", 2)
        data = base64.b64decode(blob, validate=True)
    except ValueError:
        name, digits, data = "", "", b""
    wanted = p.sha256(name.encode() + b"\n" + data)[:4]
    if not name or " " in name or data[:1] != COSIGNATURE or len(data) != 33 or digits != wanted.hex():
        raise UsageError(f"witness key {text[:80]!r}: expected name+<8 hex>+<base64>, of signature type 4")
    return Witness(name, wanted, data[1:])


def request_body(old: int, proof: list[bytes], note: str) -> bytes:
    """Return what is sent to a witness's `add-checkpoint`."""
    if len(proof) > PROOF_HASHES:
        raise FormatError(f"consistency proof: expected at most {PROOF_HASHES} hashes, found {len(proof)}")
    lines = [f"old {old}", *(base64.b64encode(item).decode() for item in proof), "", note]
    return "\n".join(lines).encode()


def cosigned(p: Primitives, note: str, lines: str, witness: Witness) -> str:
    """Return *note* with the line of *witness* among *lines* added, once it holds."""
    for line in lines.splitlines():
        more = f"{note}{line}\n"
        try:
            check_cosignature(p, more, witness)
        except (FormatError, IntegrityError):
            continue
        return more
    raise IntegrityError(f"witness {witness.name}: it answered without a cosignature that holds")


def check_cosignature(p: Primitives, note: str, witness: Witness) -> int:
    """Return when (Unix time) *witness* signed the checkpoint; raise `IntegrityError`."""
    checkpoint, signatures = parse_note(note)
    for name, blob in signatures:
        if name == witness.name and blob[:4] == witness.key_hash and len(blob) == _BLOB.size:
            _, when, signature = _BLOB.unpack(blob)
            p.verify(witness.public, f"cosignature/v1\ntime {when}\n{checkpoint.text}".encode(), signature)
            return int(when)
    raise IntegrityError(f"checkpoint at {checkpoint.size}: it has no cosignature of {witness.name}")
