"""Where a log's lines lie: segments of events and checkpoints, in order, local or shipped (docs/format.md, section 15).

    <log>/key.pub                     the verifier key
    <log>/segments/<first seq>.ndjson events, one a line, and after each synced group a line {"note": checkpoint}
    <log>/base                        what a log whose oldest segments were removed begins with

A segment holds events of one month. Reads only. Raises `FormatError` and `IntegrityError`.
"""

import base64
import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from datasync.audit.checkpoint import NOTE_BYTES, parse_verifier_key
from datasync.audit.event import EVENT_BYTES
from datasync.audit.merkle import Frontier
from datasync.audit.primitives import Primitives
from datasync.errors import FormatError, IntegrityError, NotFound, UsageError

SEGMENTS = "segments"
PUBLIC = "key.pub"
BASE = "base"
SEGMENT_BYTES = 16 * 1024 * 1024  # a segment ends after the group that reaches this
LINE_BYTES = max(EVENT_BYTES, 2 * NOTE_BYTES) + 1
MARK_BYTES = 4
BUFFER_BYTES = 1024 * 1024
BASE_BYTES = 64 * 1024
_NAME = re.compile(r"([0-9]{20})\.ndjson")
_NOTE_START = b'{"note":'


class NoteLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint's line; `marks` is base64 of the first 4 bytes of each leaf hash of its group, which tells an edited
    event from its neighbours.
    """

    note: str
    marks: str


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tree before the oldest segment that is left: its size and its frontier in hex."""

    size: int
    frontier: tuple[str, ...]


NOTHING = Base(0, ())


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive lines of a log: a segment, or a shipped object."""

    name: str
    first: int
    open: Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True)
class LogFiles:
    """A log as it lies somewhere: its name for messages, its public key, its pieces in order, and where it begins."""

    name: str
    public: bytes
    pieces: tuple[Piece, ...]
    base: Base = NOTHING

    def frontier(self, p: Primitives) -> Frontier:
        """Return the tree before the first piece."""
        return Frontier(p.sha256, self.base.size, [bytes.fromhex(item) for item in self.base.frontier])


def segment_name(first: int) -> str:
    """Return the file name of the segment whose first event is number *first*."""
    return f"{first:020}.ndjson"


def segment_paths(directory: Path) -> list[tuple[int, Path]]:
    """Return (first seq, path) of the segments of the log in *directory*, in order; refuse what is none."""
    folder, found = directory / SEGMENTS, []
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        match = _NAME.fullmatch(name)
        if match is None:
            raise IntegrityError(f"{folder / name}: expected segments only, found another file")
        found.append((int(match[1]), folder / name))
    return found


def read_base(directory: Path) -> Base:
    """Return where the log in *directory* begins."""
    try:
        with open(directory / BASE, "rb") as file:
            base = msgspec.json.decode(file.read(BASE_BYTES), type=Base)
    except FileNotFoundError:
        return NOTHING
    except msgspec.DecodeError:
        raise FormatError(f"{directory / BASE}: expected the log's beginning, found something else") from None
    if not 0 <= base.size < 2**63 or len(base.frontier) != base.size.bit_count():
        raise FormatError(f"{directory / BASE}: the subtrees are not those of {base.size} events")
    if not all(re.fullmatch("[0-9a-f]{64}", item) for item in base.frontier):
        raise FormatError(f"{directory / BASE}: expected hashes of 32 bytes in hex")
    return base


def local_log(p: Primitives, directory: Path, until: tuple[int, int] | None = None) -> LogFiles:
    """Return the log in *directory*; `NotFound` when there is none.

    *until* (a segment's first event, bytes of it) is where a log that is being written ended a moment ago.
    """
    try:
        text = (directory / PUBLIC).read_text()
    except FileNotFoundError:
        raise NotFound(f"{directory}: expected an audit log, found no {PUBLIC}") from None
    except (OSError, UnicodeDecodeError):
        raise IntegrityError(f"{directory / PUBLIC}: the log's public key can not be read") from None
    try:
        public = parse_verifier_key(p, text)
    except UsageError as error:
        raise IntegrityError(f"{directory / PUBLIC}: {error}") from None
    base = read_base(directory)  # segments before it were to be removed, and a kill left them
    paths = [item for item in segment_paths(directory) if item[0] >= base.size]
    if until is not None:
        paths = [item for item in paths if item[0] <= until[0]]
    ends = dict([until] if until is not None else [])
    pieces = tuple(Piece(path.name, first, _opener(path, ends.get(first))) for first, path in paths)
    return LogFiles(directory.name, public, pieces, base)


class _Beginning(io.RawIOBase):
    """The first bytes of a file that others append to."""

    def __init__(self, path: Path, size: int) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by close)
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._file.readinto(memoryview(buffer)[: self._left])
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _opener(path: Path, size: int | None) -> Callable[[], BinaryIO]:
    if size is None:
        return lambda: open(path, "rb", buffering=BUFFER_BYTES)
    return lambda: io.BufferedReader(_Beginning(path, size), BUFFER_BYTES)


def bytes_piece(name: str, first: int, read: Callable[[], bytes]) -> Piece:
    """Return a piece whose bytes come from *read*."""
    return Piece(name, first, lambda: io.BytesIO(read()))


def lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a piece without their ends; a last one without an end is `FormatError`."""
    while line := file.readline(LINE_BYTES + 1):
        if line[-1:] != b"\n":
            long = len(line) > LINE_BYTES
            raise FormatError(f"{name}: a line {'is too long' if long else 'has no end: the group is unfinished'}")
        yield line[:-1]


def is_note(line: bytes) -> bool:
    """Tell whether a line is a checkpoint's."""
    return line.startswith(_NOTE_START)


def marks_of(leaves: list[bytes]) -> str:
    """Return the marks of a group's leaf hashes."""
    return base64.b64encode(b"".join(item[:MARK_BYTES] for item in leaves)).decode()


def note_line(note: str, marks: str) -> bytes:
    """Return the line of a checkpoint."""
    return msgspec.json.encode(NoteLine(note, marks))


def read_note(line: bytes) -> NoteLine:
    """Return the checkpoint in *line*; raise `FormatError`."""
    try:
        value = msgspec.json.decode(line, type=NoteLine)
    except msgspec.DecodeError:
        raise FormatError("does not parse as a checkpoint's line") from None
    if msgspec.json.encode(value) != line:
        raise FormatError("is not in the one encoding of its checkpoint")
    return value
