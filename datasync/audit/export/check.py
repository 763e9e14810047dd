"""Check an export by its manifest: the signature, the file's hash, and, of JSON lines, that every event is in its log.

Needs no log and no datasync identity. Raises `IntegrityError`, `FormatError`.
"""

import base64
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from datasync.audit.checkpoint import open_checkpoint, parse_verifier_key
from datasync.audit.event import decode
from datasync.audit.export.json_lines import leaf_of
from datasync.audit.export.run import DOMAIN, KIND
from datasync.audit.merkle import Frontier, leaf_hash, subtrees
from datasync.audit.primitives import Primitives
from datasync.audit.segments import LINE_BYTES
from datasync.errors import FormatError, IntegrityError, UsageError

MANIFEST_BYTES = 16 * 1024 * 1024


class _Log(msgspec.Struct, frozen=True):
    log: str
    key: str
    first: int
    end: int
    events: int
    size: int
    checkpoint: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class _Manifest(msgspec.Struct, frozen=True):
    kind: str
    format: str
    events: int
    bytes: int
    sha256: str
    logs: tuple[_Log, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """A good export: its format and count, who signed the manifest, and the logs' ids with their exported ranges."""

    format: str
    events: int
    signer: str
    logs: tuple[tuple[str, int, int], ...]
    proved: bool


def check_export(p: Primitives, manifest: bytes, file: BinaryIO, keys: frozenset[str] = frozenset()) -> Checked:
    """Return what the export is; with *keys* (verifier keys) only if each log's and the manifest's is one of them."""
    try:
        whole = msgspec.json.decode(manifest[: MANIFEST_BYTES + 1])
        inner: dict[str, Any] = whole["manifest"]
        signature, signer = base64.b64decode(whole["signature"], validate=True), parse_verifier_key(p, whole["key"])
        told = msgspec.convert(inner, _Manifest)
        trees = {item.log: _Tree(p, item) for item in told.logs}
    except (ValueError, KeyError, TypeError, UsageError, msgspec.DecodeError):
        raise FormatError("export manifest: does not parse") from None
    if keys and not {str(whole["key"]), *(item.key for item in told.logs)} <= keys:
        raise IntegrityError("export manifest: signed by a key, or about a log, that was not expected")
    p.verify(signer, DOMAIN + msgspec.json.encode(inner, order="sorted"), signature)
    if told.kind != KIND:
        raise FormatError(f"export manifest: expected {KIND!r}, found {told.kind!r}")
    _read(p, told, file, trees)
    proved = told.format == "jsonl"
    for tree in trees.values() if proved else ():
        tree.finish()
    ranges = tuple((item.log, item.first, item.end) for item in told.logs)
    return Checked(told.format, told.events, str(whole["key"]), ranges, proved)


def _read(p: Primitives, told: _Manifest, file: BinaryIO, trees: dict[str, "_Tree"]) -> None:
    digest, size = p.sha256_stream(), 0
    while block := file.readline(4 * LINE_BYTES):
        digest.update(block)
        size += len(block)
        if told.format == "jsonl":
            leaf = leaf_of(block.rstrip(b"\n"))
            event = decode(leaf)
            if event.log not in trees:
                raise IntegrityError(f"export: an event of log {event.log}, which the manifest does not name")
            trees[event.log].add(event.seq, leaf)
    if size != told.bytes or digest.digest().hex() != told.sha256:
        raise IntegrityError(f"export: expected {told.bytes} bytes with SHA-256 {told.sha256}, found {size} others")


class _Tree:
    """One log's exported leaves, put back between the subtrees around them."""

    def __init__(self, p: Primitives, told: _Log) -> None:
        self._p, self._told, self._public = p, told, parse_verifier_key(p, told.key)
        self._tree = Frontier(p.sha256, told.first, [base64.b64decode(item, validate=True) for item in told.before])
        self._after = [base64.b64decode(item, validate=True) for item in told.after]

    def add(self, seq: int, leaf: bytes) -> None:
        if seq != self._tree.size:
            raise IntegrityError(f"export: log {self._told.log}: expected event {self._tree.size}, found {seq}")
        self._tree.append(leaf_hash(self._p.sha256, leaf))

    def finish(self) -> None:
        told, tree = self._told, self._tree
        checkpoint = open_checkpoint(self._p, told.checkpoint, self._public)
        places = subtrees(tree.size, told.size)
        whole = tree.size == told.end and told.end - told.first == told.events and len(places) == len(self._after)
        if not whole or checkpoint.log != told.log or checkpoint.size != told.size:
            raise IntegrityError(f"export: log {told.log}: events {told.first} … {told.end - 1} are not all there")
        for (_, level), item in zip(places, self._after, strict=True):
            tree.append_subtree(item, level)
        if tree.root() != checkpoint.root:
            raise IntegrityError(f"export: log {told.log}: an event is not what its checkpoint was signed over")
