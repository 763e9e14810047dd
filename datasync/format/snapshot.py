"""A snapshot's body and its page lists (docs/format.md, section 11)."""

from typing import Annotated, Literal

import msgspec

from datasync.errors import FormatError
from datasync.format.encoding import U16, U32, U63, Id, Record, decode, encode
from datasync.format.packref import check_table
from datasync.format.page import check_xattrs
from datasync.model.entries import PackRef
from datasync.model.ids import ZERO_ID
from datasync.model.limits import (
    MESSAGE_BYTES,
    PACK_BYTES,
    PACK_CHUNKS,
    PAGE_BYTES,
    PAGE_LIST_BYTES,
    PAGE_LISTS,
    PATH_BYTES,
)

Bytes = bytes  # by another name in a class with a field `bytes`
SEALED_ID_KEY_BYTES = 1_168  # HPKE (hybrid) of 32 bytes
_PAGE_REF_BYTES = 100  # an upper bound of one encoded reference without its path
_PACK_REF_BYTES = 120


class Source(Record, frozen=True):
    """Where a snapshot was made."""

    host: str
    path: bytes
    device: str
    id: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class Root(Record, frozen=True):
    """Metadata of the root directory; mtime in ns."""

    mode: U16
    mtime: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    xattrs: tuple[tuple[bytes, bytes], ...]


class Totals(Record, frozen=True):
    """Counts and bytes of a snapshot."""

    entries: U63
    files: U63
    directories: U63
    symlinks: U63
    bytes: U63
    hole_bytes: U63
    skipped: U63


class Body(Record, frozen=True):
    """What the writer signs."""

    dataset: Id
    seq: U63
    previous: Id
    created: U63
    epoch: U32
    keyset: tuple[U63, Id]
    trust: tuple[U63, Id]
    source: Source
    tool: str
    message: str
    chunker: Literal["cdc", "fixed"]
    id_key: bytes
    root: Root
    totals: Totals
    manifest: Id
    lists: Annotated[tuple[Id, ...], msgspec.Meta(max_length=PAGE_LISTS)]


class PageRef(Record, frozen=True):
    """One page: where it lies, what it covers, and its first path."""

    id: Id
    raw: U32
    stored: U32
    form: U32
    pack: U32
    position: U32
    offset: U32
    entries: U63
    bytes: U63
    first: Bytes


class PageList(Record, frozen=True):
    """Consecutive page references; they index `packs`."""

    packs: tuple[PackRef, ...]
    pages: Annotated[tuple[PageRef, ...], msgspec.Meta(min_length=1)]


def read_body(data: bytes, what: str) -> Body:
    """Return the body in *data*."""
    body = decode(Body, data, what)
    if body.seq < 1 or len(body.message.encode()) > MESSAGE_BYTES or body.root.mode > 0o7777:
        raise FormatError(f"{what}: a sequence number, message or root mode is out of range")
    if (body.seq == 1) != (body.previous == ZERO_ID):
        raise FormatError(f"{what}: expected a zero previous hash in snapshot 1 and only there")
    if len(body.id_key) not in (0, SEALED_ID_KEY_BYTES):
        raise FormatError(f"{what}: expected no id key or {SEALED_ID_KEY_BYTES} sealed bytes, found {len(body.id_key)}")
    check_xattrs(body.root.xattrs, f"{what}: the root directory")
    return body


def read_page_list(data: bytes | bytearray, what: str) -> PageList:
    """Return the page list in *data*."""
    if len(data) > PAGE_LIST_BYTES:
        raise FormatError(f"{what}: expected a page list of at most {PAGE_LIST_BYTES} bytes, found {len(data)}")
    found = decode(PageList, data, what)
    check_table(found.packs, dict.fromkeys(page.pack for page in found.pages), what)
    for page in found.pages:
        fits = 1 <= page.raw <= PAGE_BYTES and (page.stored == page.raw if page.form == 0 else page.stored < page.raw)
        if (
            not fits
            or page.form > 1
            or page.entries < 1
            or page.stored < 1
            or page.position >= PACK_CHUNKS
            or not 0 < page.offset < PACK_BYTES
            or not 0 < len(page.first) <= PATH_BYTES
        ):
            raise FormatError(f"{what}: a page reference is out of range")
    return found


def write_page_lists(pages: list[tuple[PageRef, PackRef]]) -> list[bytes]:
    """Return the encoded page lists for (reference, its pack) in order, each within its limit;
    the pack indexes are set here.
    """
    lists: list[bytes] = []
    table: dict[bytes, PackRef] = {}
    part: list[PageRef] = []
    size = 0  # an upper bound of what is encoded so far
    index: dict[bytes, int] = {}
    for ref, pack in pages:
        size += _PAGE_REF_BYTES + len(ref.first) + (_PACK_REF_BYTES + len(pack.sealed_key)) * (pack.id not in table)
        if part and size > PAGE_LIST_BYTES:
            lists.append(encode(PageList(tuple(table.values()), tuple(part))))
            table, index, part = {}, {}, []
            size = _PAGE_REF_BYTES + len(ref.first) + _PACK_REF_BYTES + len(pack.sealed_key)
        table.setdefault(pack.id, pack)
        part.append(msgspec.structs.replace(ref, pack=index.setdefault(pack.id, len(index))))
    if part:
        lists.append(encode(PageList(tuple(table.values()), tuple(part))))
    if len(lists) > PAGE_LISTS:
        raise FormatError(
            f"snapshot: {len(pages)} pages need {len(lists)} page lists, the limit is {PAGE_LISTS}: split the dataset"
        )
    return lists
