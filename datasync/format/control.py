"""Heads, tags, relocations, condemned lists, policies and forgotten snapshots (docs/format.md, section 12)."""

from typing import Annotated

import msgspec

from datasync.errors import FormatError
from datasync.format.encoding import U8, U32, U63, Id, Record, decode
from datasync.format.names import is_name
from datasync.format.packref import check_table
from datasync.model.entries import FORM_RAW, FORM_ZSTD, PackRef
from datasync.model.limits import CHUNK_BYTES, EMPTIED_PACKS, PACK_BYTES, PACK_CHUNKS, POLICY_BYTES, POLICY_FILES


class Head(Record, frozen=True):
    """Names the newest snapshot; times in ms."""

    dataset: Id
    number: U63
    previous: Id
    seq: U63
    snapshot: Id
    issued: U63
    expires: U63


class TagAssignment(Record, frozen=True):
    """One tag, signed by who set it; seq 0 removes it."""

    dataset: Id
    name: str
    seq: U63
    snapshot: Id
    created: U63


class Tags(Record, frozen=True):
    """The whole table of tags: (name, Signed assignment)."""

    dataset: Id
    number: U63
    previous: Id
    created: U63
    tags: tuple[tuple[str, bytes], ...]


class RelocationsHeader(Record, frozen=True):
    """The signed part of a relocation."""

    dataset: Id
    number: U63
    previous: Id
    created: U63
    epoch: U32
    pages: tuple[Id, ...]


class Relocation(Record, frozen=True):
    """A chunk's new place."""

    chunk: Id
    stored: U32
    form: U8
    pack: U32
    position: U32
    offset: U32


class RelocationPage(Record, frozen=True):
    """Relocations sorted by chunk id."""

    packs: tuple[PackRef, ...]
    entries: tuple[Relocation, ...]


class EmptiedPage(Record, frozen=True):
    """Packs in which no snapshot needs anything any more, sorted by id."""

    packs: Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=EMPTIED_PACKS)]


class Condemned(Record, frozen=True):
    """The whole list of packs that prune will delete: (pack id, since ms)."""

    dataset: Id
    number: U63
    previous: Id
    created: U63
    packs: tuple[tuple[Id, U63], ...]


class ForgottenHeader(Record, frozen=True):
    """The signed part of an object that says which snapshots are forgotten."""

    dataset: Id
    number: U63
    previous: Id
    created: U63
    pages: tuple[Id, ...]


class ForgottenEntry(Record, frozen=True):
    """A forgotten snapshot; `header` is its Signed body, as it was stored."""

    seq: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    snapshot: Id
    header: bytes


class ForgottenPage(Record, frozen=True):
    """Forgotten snapshots, sorted by seq and id."""

    snapshots: Annotated[tuple[ForgottenEntry, ...], msgspec.Meta(min_length=1)]


class PolicyBundle(Record, frozen=True):
    """The files of the policy in force: (name, text), sorted by name."""

    dataset: Id
    number: U63
    previous: Id
    created: U63
    files: Annotated[tuple[tuple[str, str], ...], msgspec.Meta(min_length=1, max_length=POLICY_FILES)]


def read_policy(body: bytes, what: str) -> PolicyBundle:
    """Return the policy in *body*; what its files say is the policy engine's to check."""
    found = decode(PolicyBundle, body, what)
    names = [name for name, _ in found.files]
    if names != sorted(set(names)) or not all(map(is_name, names)):
        raise FormatError(f"{what}: expected files sorted by name, each once, with names that keep the rule")
    if sum(len(text.encode()) for _, text in found.files) > POLICY_BYTES:
        raise FormatError(f"{what}: expected at most {POLICY_BYTES} bytes in all files")
    return found


def read_tags(body: bytes, what: str) -> Tags:
    """Return the table of tags in *body*."""
    tags = decode(Tags, body, what)
    names = [name for name, _ in tags.tags]
    if names != sorted(set(names)) or not all(map(is_name, names)):
        raise FormatError(f"{what}: expected tags sorted by name, each once, with names that keep the rule")
    return tags


def read_condemned(body: bytes, what: str) -> Condemned:
    """Return the condemned list in *body*."""
    found = decode(Condemned, body, what)
    ids = [pack for pack, _ in found.packs]
    if ids != sorted(set(ids)):
        raise FormatError(f"{what}: expected packs sorted by id, each once")
    return found


def read_forgotten_page(data: bytes, what: str) -> ForgottenPage:
    """Return one page of forgotten snapshots; what their headers say is the caller's to check."""
    page = decode(ForgottenPage, data, what)
    ids = [(item.seq, item.snapshot) for item in page.snapshots]
    if ids != sorted(set(ids)):
        raise FormatError(f"{what}: expected snapshots sorted by number and id, each once")
    return page


def read_emptied_page(data: bytes, what: str) -> EmptiedPage:
    """Return one page of emptied packs."""
    page = decode(EmptiedPage, data, what)
    if list(page.packs) != sorted(set(page.packs)):
        raise FormatError(f"{what}: expected packs sorted by id, each once")
    return page


def is_emptied_page(data: bytes) -> bool:
    """Tell whether a page of relocations names emptied packs instead of places: an array of one field."""
    return data[:1] == b"\x91"


def read_relocation_page(data: bytes | bytearray, what: str) -> RelocationPage:
    """Return one page of relocations."""
    page = decode(RelocationPage, data, what)
    ids = [item.chunk for item in page.entries]
    if ids != sorted(set(ids)):
        raise FormatError(f"{what}: expected relocations sorted by chunk id, each once")
    check_table(page.packs, dict.fromkeys(item.pack for item in page.entries), what)
    for item in page.entries:
        fits = item.form in (FORM_RAW, FORM_ZSTD) and 1 <= item.stored <= CHUNK_BYTES and item.position < PACK_CHUNKS
        if not fits or not 0 < item.offset < PACK_BYTES - item.stored:
            raise FormatError(
                f"{what}: a chunk of {item.stored} bytes at position {item.position}, offset {item.offset}"
            )
    return page
