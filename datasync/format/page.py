"""Pages, chunk lists and the rules of entries (docs/format.md, section 10).

`read_page` returns only what obeys every rule that one page can show; rules between pages are `check_order`'s.
"""

from typing import Annotated

import msgspec

from datasync.errors import FormatError
from datasync.format.encoding import Record, decode, encode
from datasync.format.packref import check_table
from datasync.model.entries import (
    DIRECTORY,
    FILE,
    FORM_RAW,
    FORM_ZSTD,
    SYMLINK,
    ChunkRef,
    Entry,
    ListRef,
    PackRef,
    sort_key,
)
from datasync.model.limits import (
    CHUNK_BYTES,
    ENTRY_CHUNKS,
    ENTRY_HOLES,
    NAME_BYTES,
    PACK_BYTES,
    PACK_CHUNKS,
    PAGE_BYTES,
    PATH_BYTES,
    XATTRS,
    XATTRS_BYTES,
)

_PAGE = 1
_LIST = 2


class Page(Record, frozen=True):
    """Consecutive entries of a manifest; chunk references index `packs`."""

    tag: int
    packs: tuple[PackRef, ...]
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(min_length=1)]


class ChunkList(Record, frozen=True):
    """Consecutive chunks of one large file."""

    tag: int
    packs: tuple[PackRef, ...]
    chunks: Annotated[tuple[ChunkRef, ...], msgspec.Meta(min_length=1)]


_PAGE_DECODER = msgspec.msgpack.Decoder(Page)
_LIST_DECODER = msgspec.msgpack.Decoder(ChunkList)


def write_page(packs: list[PackRef], entries: list[Entry]) -> bytes:
    """Return the encoding of a page."""
    return encode(Page(_PAGE, tuple(packs), tuple(entries)))


def write_chunk_list(packs: list[PackRef], chunks: list[ChunkRef]) -> bytes:
    """Return the encoding of a chunk list."""
    return encode(ChunkList(_LIST, tuple(packs), tuple(chunks)))


def decode_own_page(data: bytes) -> Page:
    """Return a page that this machine wrote or has already checked."""
    return _PAGE_DECODER.decode(data)


def read_page(data: bytes | bytearray, what: str) -> Page:
    """Return the page in *data*."""
    if len(data) > PAGE_BYTES:
        raise FormatError(f"{what}: expected at most {PAGE_BYTES} bytes, found {len(data)}")
    page = decode(Page, data, what, _PAGE_DECODER)
    if page.tag != _PAGE:
        raise FormatError(f"{what}: expected a page, found tag {page.tag}")
    used: dict[int, None] = {}
    previous = b""
    for entry in page.entries:
        key = sort_key(entry.path)
        if key <= previous:
            raise FormatError(f"{what}: expected paths in order, each once, found {entry.path!r} out of place")
        previous = key
        _check_entry(entry, used, what)
    check_table(page.packs, used, what)
    return page


def read_chunk_list(data: bytes | bytearray, covered: int, what: str) -> ChunkList:
    """Return the chunk list in *data*, which covers exactly *covered* file bytes."""
    if len(data) > PAGE_BYTES:
        raise FormatError(f"{what}: expected at most {PAGE_BYTES} bytes, found {len(data)}")
    found = decode(ChunkList, data, what, _LIST_DECODER)
    used: dict[int, None] = {}
    if found.tag != _LIST or sum(chunk.raw for chunk in found.chunks) != covered:
        raise FormatError(f"{what}: expected a list of chunks of {covered} bytes, found another")
    for chunk in found.chunks:
        _check_ref(chunk, used, what)
    check_table(found.packs, used, what)
    return found


def check_order(last: bytes, first: bytes, what: str) -> None:
    """Refuse a page whose *first* path does not come after the *last* path of the page before it."""
    if sort_key(first) <= sort_key(last) and last:
        raise FormatError(f"{what}: expected paths in order, found {first!r} after {last!r}")


def check_path(path: bytes, what: str) -> None:
    """Refuse a path that could name anything but an entry beneath the root."""
    if not 0 < len(path) <= PATH_BYTES or b"\0" in path:
        raise FormatError(f"{what}: expected a path of 1 to {PATH_BYTES} bytes without NUL, found {path[:64]!r}")
    for part in path.split(b"/"):
        if part in (b"", b".", b"..") or len(part) > NAME_BYTES:
            raise FormatError(
                f"{what}: a name in the path {path[:64]!r} is empty, a dot name, or longer than {NAME_BYTES} bytes"
            )


def _check_entry(entry: Entry, used: dict[int, None], what: str) -> None:
    check_path(entry.path, what)
    if not 0 <= entry.mode <= 0o7777 or not -(2**63) <= entry.mtime < 2**63:
        raise FormatError(f"{what}: {entry.path!r} has mode {entry.mode} or a time out of range")
    if entry.xattrs:
        check_xattrs(entry.xattrs, f"{what}: {entry.path!r}")
    if entry.kind == FILE:
        _check_file(entry, used, what)
        return
    if entry.size or entry.link or entry.chunks or entry.holes or entry.lists:
        raise FormatError(f"{what}: {entry.path!r} is no file and has content")
    target_fits = 0 < len(entry.target) <= PATH_BYTES and b"\0" not in entry.target
    if not ((entry.kind == SYMLINK and target_fits) or (entry.kind == DIRECTORY and not entry.target)):
        raise FormatError(f"{what}: {entry.path!r} has kind {entry.kind} and a target of {len(entry.target)} bytes")


def check_xattrs(xattrs: tuple[tuple[bytes, bytes], ...], what: str) -> None:
    """Refuse extended attributes out of order, twice, or over the limits."""
    names = [name for name, _ in xattrs]
    size = sum(len(name) + len(value) for name, value in xattrs)
    if (
        names != sorted(set(names))
        or len(names) > XATTRS
        or size > XATTRS_BYTES
        or any(not n or b"\0" in n for n in names)
    ):
        raise FormatError(f"{what} has extended attributes out of order or over the limit")


def _check_file(entry: Entry, used: dict[int, None], what: str) -> None:
    if entry.target or len(entry.link) not in (0, 32) or not 0 <= entry.size < 2**63:
        raise FormatError(f"{what}: {entry.path!r} is a file with a target, a bad link group or a bad size")
    if len(entry.chunks) > ENTRY_CHUNKS or len(entry.holes) > ENTRY_HOLES or (entry.chunks and entry.lists):
        raise FormatError(f"{what}: {entry.path!r} has more chunks or holes than the limit")
    for chunk in entry.chunks:
        _check_ref(chunk, used, what)
    covered = sum(chunk.raw for chunk in entry.chunks)
    for item in entry.lists:
        _check_ref(item, used, what)
        if item.bytes < 1:
            raise FormatError(f"{what}: {entry.path!r} has a chunk list that covers nothing")
        covered += item.bytes
    hole_bytes = _check_holes(entry, what)
    if covered + hole_bytes != entry.size:
        raise FormatError(f"{what}: {entry.path!r} has {entry.size} bytes, its chunks and holes {covered + hole_bytes}")
    if entry.holes and entry.chunks:
        check_borders(entry.holes, [chunk.raw for chunk in entry.chunks], f"{what}: {entry.path!r}")


def _check_holes(entry: Entry, what: str) -> int:
    end, total = -1, 0
    for offset, length in entry.holes:
        if offset <= end or length <= 0 or offset + length > entry.size:
            raise FormatError(f"{what}: {entry.path!r} has holes that touch, or lie outside the file")
        end = offset + length
        total += length
    return total


def check_borders(holes: tuple[tuple[int, int], ...], lengths: list[int], what: str) -> None:
    """Refuse chunks of which one would span a hole."""
    position, pending = 0, iter(holes)
    hole = next(pending, None)
    for length in lengths:
        while hole and hole[0] == position:
            position += hole[1]
            hole = next(pending, None)
        position += length
        if hole and position > hole[0]:
            raise FormatError(f"{what}: a chunk spans a hole at {hole[0]}")


def _check_ref(ref: ChunkRef | ListRef, used: dict[int, None], what: str) -> None:
    fits = 1 <= ref.raw <= CHUNK_BYTES and (
        ref.stored == ref.raw if ref.form == FORM_RAW else 1 <= ref.stored < ref.raw
    )
    if len(ref.id) != 32 or not fits or ref.form not in (FORM_RAW, FORM_ZSTD):
        raise FormatError(f"{what}: a chunk of form {ref.form}, {ref.raw} raw and {ref.stored} stored bytes")
    if ref.pack < 0 or not 0 <= ref.position < PACK_CHUNKS or not 0 < ref.offset < PACK_BYTES - ref.stored:
        raise FormatError(f"{what}: a chunk at position {ref.position}, offset {ref.offset}")
    used.setdefault(ref.pack)
