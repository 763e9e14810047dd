"""Checkpoints: signed tree heads in C2SP's tlog-checkpoint and signed-note form (docs/format.md, section 15).

    datasync/audit/<log id>
    <size>
    <base64 root hash>

    — datasync/audit/<log id> <base64 of key hash and signature>

The key hash is the first 4 bytes of SHA-256(name | "\\n" | 0x01 | public key). A verifier key is the text
`name+<key hash in hex>+<base64 of 0x01 and the public key>`. Raises `FormatError` and `IntegrityError`.
"""

import base64
import binascii
from dataclasses import dataclass

from datasync.audit.merkle import HASH_BYTES, MAX_SIZE
from datasync.audit.primitives import Primitives, Signer
from datasync.errors import FormatError, IntegrityError, UsageError

ORIGIN = "datasync/audit/"
ED25519 = b"\1"  # signature type of a log's own key
NOTE_BYTES = 16 * 1024  # a note with room for cosignatures
SIGNATURES = 64
_KEY_HASH_BYTES = 4
_DASH = "— "


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How large a log is, and its root hash."""

    log: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text that is signed."""
        return f"{ORIGIN}{self.log}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def log_id(p: Primitives, public: bytes) -> str:
    """Return the id of the log that *public* signs: it stands and falls with the key."""
    return p.sha256(b"datasync/v1/audit-log\0" + public).hex()[:32]


def key_hash(p: Primitives, name: str, public: bytes) -> bytes:
    """Return what names a key in a signature line."""
    return p.sha256(name.encode() + b"\n" + ED25519 + public)[:_KEY_HASH_BYTES]


def verifier_key(p: Primitives, public: bytes) -> str:
    """Return the text form of a log's public key."""
    name = ORIGIN + log_id(p, public)
    return f"{name}+{key_hash(p, name, public).hex()}+{base64.b64encode(ED25519 + public).decode()}"


def parse_verifier_key(p: Primitives, text: str) -> bytes:
    """Return the public key in *text*; raise `UsageError`."""
    parts = text.strip().split("+", 2)
    try:
        blob = base64.b64decode(parts[2], validate=True)
        public = blob[1:]
        if blob[:1] != ED25519 or len(public) != 32 or verifier_key(p, public) != text.strip():
            raise ValueError(text)
    except (IndexError, ValueError):
        raise UsageError(
            f"verifier key {text[:80]!r}: expected {ORIGIN}<log id>+<8 hex>+<base64>, as `datasync audit anchor` prints"
        ) from None
    return public


def sign_checkpoint(p: Primitives, checkpoint: Checkpoint, signer: Signer) -> str:
    """Return the signed note."""
    name, text = ORIGIN + checkpoint.log, checkpoint.text
    blob = key_hash(p, name, signer.public) + signer.sign(text.encode())
    return f"{text}\n{_DASH}{name} {base64.b64encode(blob).decode()}\n"


def parse_note(note: str) -> tuple[Checkpoint, list[tuple[str, bytes]]]:
    """Return the checkpoint and the (name, key hash and signature) lines, nothing of it verified."""
    if len(note) > NOTE_BYTES:
        raise FormatError(f"checkpoint: expected at most {NOTE_BYTES} characters, found {len(note)}")
    text, blank, rest = note.partition("\n\n")
    lines = text.split("\n")
    if not blank or len(lines) != 3 or not lines[0].startswith(ORIGIN) or not rest.endswith("\n"):
        raise FormatError("checkpoint: expected a signed note of three lines, found something else")
    try:
        root = base64.b64decode(lines[2], validate=True)
        size = int(lines[1])
        checkpoint = Checkpoint(lines[0][len(ORIGIN) :], size, root)
    except ValueError:
        raise FormatError("checkpoint: the size or the root hash does not parse") from None
    if checkpoint.text != text + "\n" or len(root) != HASH_BYTES or not 0 <= size <= MAX_SIZE:
        raise FormatError("checkpoint: expected a size in decimal and a root hash of 32 bytes in base64")
    return checkpoint, _signatures(rest)


def _signatures(rest: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for line in rest[:-1].split("\n"):
        name, space, blob = line.removeprefix(_DASH).partition(" ")
        try:
            signature = base64.b64decode(blob, validate=True)
        except (binascii.Error, ValueError):
            signature = b""
        well_formed = line.startswith(_DASH) and name and space and len(signature) > _KEY_HASH_BYTES
        if not well_formed or base64.b64encode(signature).decode() != blob or len(found) == SIGNATURES:
            raise FormatError("checkpoint: a signature line does not parse")
        found.append((name, signature))
    return found


def open_checkpoint(p: Primitives, note: str, public: bytes) -> Checkpoint:
    """Return the checkpoint in *note* if the log of *public* signed it; raise `IntegrityError` or `FormatError`."""
    checkpoint, signatures = parse_note(note)
    expected = log_id(p, public)
    if checkpoint.log != expected:
        raise IntegrityError(f"checkpoint: expected log {expected}, found {checkpoint.log}: another key signed it")
    name = ORIGIN + expected
    wanted = key_hash(p, name, public)
    mine = [item for signer, item in signatures if signer == name and item[:_KEY_HASH_BYTES] == wanted]
    if len(mine) != 1:
        raise IntegrityError(f"checkpoint at {checkpoint.size}: expected one signature of log {expected}")
    try:
        p.verify(public, checkpoint.text.encode(), mine[0][_KEY_HASH_BYTES:])
    except IntegrityError:
        raise IntegrityError(
            f"checkpoint at {checkpoint.size}: the signature of log {expected} does not hold"
        ) from None
    return checkpoint
