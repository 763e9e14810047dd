"""The page that says where a log stands, so that appending reads 4 KiB and not the whole log.

Written after each durable group, in place, never flushed: it may lag behind the segments after a crash, and what it
lacks is replayed. It never runs ahead of them, unless their tail was cut. Verification does not read it.
"""

import os
from pathlib import Path

import msgspec

from datasync.audit.merkle import HASH_BYTES, Frontier
from datasync.audit.primitives import Primitives
from datasync.errors import FormatError, IntegrityError

PAGE = 4096  # written in one call; a log of 2^63 events needs less


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last durable group: its checkpoint, its segment and where that ends, its last event's time in µs."""

    note: str
    size: int
    frontier: tuple[str, ...]
    segment: int
    end: int
    time: int


def write_page(fd: int, value: msgspec.Struct) -> bytes:
    """Put *value* into the page; return the page."""
    text = msgspec.json.encode(value)
    page = text + b" " * (PAGE - 1 - len(text)) + b"\n"
    if os.pwrite(fd, page, 0) != PAGE:
        raise OSError(5, "short write of a page")
    return page


def read_head(page: bytes, path: Path) -> Head:
    """Return what the page says; raise `FormatError`."""
    try:
        head = msgspec.json.decode(page, type=Head)
        hashes = [bytes.fromhex(item) for item in head.frontier]
    except (msgspec.DecodeError, ValueError):
        raise FormatError(f"{path}: does not parse") from None
    if any(len(item) != HASH_BYTES for item in hashes) or len(hashes) != head.size.bit_count() or head.size < 0:
        raise FormatError(f"{path}: the frontier is not one of {head.size} events")
    return head


def frontier_of(p: Primitives, head: Head) -> Frontier:
    """Return the tree that the head describes."""
    try:
        return Frontier(p.sha256, head.size, [bytes.fromhex(item) for item in head.frontier])
    except IntegrityError as error:
        raise FormatError(str(error)) from None
