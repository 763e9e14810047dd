"""Vectors of docs/format.md, sections 5 and 10: ids, pages and chunk lists."""

from typing import Any

from datasync.crypto.hashing import hash_bytes, keyed_hash
from datasync.crypto.kdf import FixedKeys
from datasync.format import pack as packs
from datasync.format.page import write_chunk_list, write_page
from datasync.model.entries import DIRECTORY, FILE, FORM_RAW, FORM_ZSTD, SYMLINK, ChunkRef, Entry, ListRef, PackRef
from datasync.pull.fileid import file_id
from tests.vectors.fixed import EPOCHS, TIME, xof
from tests.vectors.section import Section

ID_KEY = FixedKeys.from_metadata(EPOCHS[1].metadata).id_key


ZSTD_RAW = b"d" * 1000


def ids() -> Section:
    """Section 5."""
    section = Section("5", id_key=ID_KEY.hex())
    for name, raw in (("empty", b""), ("one byte", b"x"), ("zstd chunk", ZSTD_RAW)):
        section.add(name, kind="hash", raw=raw, hash=hash_bytes(raw), chunk_id=keyed_hash(ID_KEY, raw))
    for entry in _entries():
        if entry.kind == FILE:
            chunks = [chunk.id for chunk in entry.chunks]
            section.add(f"file {entry.path!r}", kind="file id", entry=entry, file_id=file_id(ID_KEY, entry, chunks))
    return section


def pack_refs() -> list[PackRef]:
    """Return a table: a data pack, one of a push-only writer, a metadata pack."""
    return [
        PackRef(xof("pack 0"), 2**25, packs.DERIVED, 2, xof("salt 0"), xof("commitment 0"), b""),
        PackRef(xof("pack 1"), 65_536, packs.SEALED, 1, xof("salt 1"), xof("commitment 1"), b"\xa5" * 1168),
        PackRef(xof("pack 2"), 67_584, packs.DERIVED, 2, xof("salt 2"), xof("commitment 2"), b""),
    ]


def _entries() -> list[Entry]:
    one = ChunkRef(xof("c 0"), 1000, 12, FORM_ZSTD, 0, 3, 116)
    two = ChunkRef(xof("c 1"), 500, 500, FORM_RAW, 1, 0, 1284)
    four = ChunkRef(xof("c 2"), 4_194_304, 4_194_304, FORM_RAW, 0, 16_383, 4_000_000)
    listed = ListRef(xof("list"), 9000, 8000, FORM_ZSTD, 2, 1, 200, 5_000_000_000)
    xattrs = ((b"user.a", b"1"), (b"user.b", b""))
    link = xof("link group")
    return [
        Entry(b"a", DIRECTORY, 0o755, TIME * 10**6, 0, (), b"", b"", (), (), ()),
        Entry(b"a/b.bin", FILE, 0o4644, -1, 1500, xattrs, b"", link, (one, two), (), ()),
        Entry(b"a/empty", FILE, 0o600, 0, 0, (), b"", b"", (), (), ()),
        Entry(
            b"a/sparse",
            FILE,
            0o644,
            2**63 - 1,
            4_194_304 + 1000 + 65_536,
            (),
            b"",
            b"",
            (one, four),
            ((1000, 4096), (4_199_400, 61_440)),
            (),
        ),
        Entry(b"a-b", SYMLINK, 0o777, -(2**63), 0, (), b"../anywhere", b"", (), (), ()),
        Entry(b"big", FILE, 0o644, 1, 5_000_000_000, (), b"", b"", (), (), (listed,)),
        Entry(b"hole", FILE, 0o644, 1, 2**63 - 1, (), b"", b"", (), ((0, 2**63 - 1),), ()),
        Entry(b"linked", FILE, 0o4644, -1, 1500, xattrs, b"", link, (one, two), (), ()),
    ]


def page() -> Section:
    """Section 10: pages."""
    section = Section("10, page")
    section.structure("page", "page", write_page(pack_refs(), _entries()))
    small = [Entry(b"f", FILE, 0o644, 0, 500, (), b"", b"", (ChunkRef(xof("c"), 500, 500, 0, 0, 0, 116),), (), ())]
    section.structure("one file", "page", write_page(pack_refs()[:1], small))
    section.structure("one directory", "page", write_page([], _entries()[:1]))
    section.refuse_encodings("one file")
    section.refuse_field("one file", "tag of a chunk list", [0], 2, "expected a page, found tag 2")
    section.refuse_field("one directory", "no entries", [2], [], "does not parse")
    order = "expected paths in order"
    section.refuse_field("page", "entries swapped", [2], lambda old: [*old[:2], old[3], old[2], *old[4:]], order)
    section.refuse_field("one directory", "a path twice", [2], lambda old: old * 2, order)
    section.refuse_field(
        "page", "sorted by bytes instead of components", [2], lambda old: [old[4], *old[:4], *old[5:]], order
    )
    _refuse_paths(section)
    _refuse_entries(section)
    _refuse_holes(section)
    _refuse_refs(section)
    _refuse_tables(section)
    return section


def _refuse_paths(section: Section) -> None:
    name, length = "is empty, a dot name, or longer", "expected a path of 1 to 65535 bytes"
    for why, path, message in (
        ("empty path", b"", "expected paths in order"),
        ("absolute path", b"/a", name),
        ("empty component", b"a//b", name),
        ("ends with a slash", b"a/", name),
        ("dot", b"./a", name),
        ("dot dot", b"..", name),
        ("dot dot in the middle", b"a/../b", name),
        ("dot dot at the end", b"a/..", name),
        ("NUL in a path", b"a\0b", length),
        ("component of 256 bytes", b"c" * 256, name),
        ("path of 65,537 bytes", b"/".join([b"c" * 255] * 256) + b"/d", length),
    ):
        section.refuse_field("one directory", why, [2, 0, 0], path, message)


def _refuse_entries(section: Section) -> None:
    size, kind, file = "has 1500 bytes, its chunks and holes", "has kind", "is a file with a target"
    content, parse = "is no file and has content", "does not parse"
    xattrs = "has extended attributes out of order"
    for why, path, new, message in (
        ("kind 0", [2, 0, 1], 0, kind),
        ("kind 4", [2, 0, 1], 4, kind),
        ("mode over 0o7777", [2, 1, 2], 0o10000, "has mode"),
        ("negative mode", [2, 1, 2], -1, "has mode"),
        ("time over 64 bits signed", [2, 1, 3], 2**63, "or a time out of range"),
        ("path as text", [2, 1, 0], "a/b.bin", parse),
        ("size one more", [2, 1, 4], 1501, "has 1501 bytes, its chunks and holes 1500"),
        ("size one less", [2, 1, 4], 1499, "has 1499 bytes, its chunks and holes 1500"),
        ("a chunk missing", [2, 1, 8], lambda old: old[:1], size),
        ("size of 64 bits", [2, 6, 4], 2**63, file),
        ("negative size", [2, 6, 4], -1, file),
        ("file with a target", [2, 1, 6], b"x", file),
        ("link group of 31 bytes", [2, 1, 7], bytes(31), file),
        ("directory with a size", [2, 0, 4], 1, content),
        ("directory with a link group", [2, 0, 7], bytes(32), content),
        ("directory with a hole", [2, 0, 9], [[0, 1]], content),
        ("directory with chunks", [2, 0, 8], [[bytes(32), 1, 1, 0, 0, 0, 116]], content),
        ("directory with a target", [2, 0, 6], b"x", kind),
        ("symbolic link without a target", [2, 4, 6], b"", kind),
        ("NUL in a target", [2, 4, 6], b"a\0b", kind),
        ("target of 65,536 bytes", [2, 4, 6], b"t" * 65_536, kind),
        ("attributes not sorted", [2, 1, 5], lambda old: old[::-1], xattrs),
        ("an attribute twice", [2, 1, 5], lambda old: [old[0], old[0]], xattrs),
        ("257 attributes", [2, 1, 5], [[b"%03d" % n, b""] for n in range(257)], xattrs),
        ("attributes over 64 KiB", [2, 1, 5], [[b"user.a", b"v" * 65_531]], xattrs),
        ("chunks and lists", [2, 5, 8], [[bytes(32), 1, 1, 0, 0, 0, 116]], "more chunks or holes than the limit"),
        ("list that covers nothing", [2, 5, 10, 0, 7], 0, "has a chunk list that covers nothing"),
        ("list that covers less", [2, 5, 10, 0, 7], 4_999_999_999, "its chunks and holes 4999999999"),
        ("list reference of 7 fields", [2, 5, 10, 0], lambda old: old[:-1], parse),
        ("chunk reference of 8 fields", [2, 1, 8, 0], lambda old: [*old, 1], parse),
    ):
        section.refuse_field("page", why, path, new, message)


def _refuse_holes(section: Section) -> None:
    touch = "has holes that touch, or lie outside the file"
    for why, holes, message in (
        ("overlapping holes", [[1000, 4096], [5000, 61_440]], touch),
        ("touching holes", [[1000, 4096], [5096, 61_440]], touch),
        ("holes not ascending", [[4_199_400, 61_440], [1000, 4096]], touch),
        ("hole of length 0", [[1000, 0], [4_199_400, 65_536]], touch),
        ("negative hole", [[-1, 65_536]], touch),
        ("hole over the end", [[4_199_400, 65_536]], touch),
        ("chunk spans a hole", [[999, 4096], [4_199_400, 61_440]], "a chunk spans a hole at 999"),
        ("second chunk spans a hole", [[1000, 4096], [6000, 61_440]], "a chunk spans a hole at 6000"),
        ("holes of another size", [[1000, 4096], [4_199_400, 61_439]], "its chunks and holes 4260839"),
    ):
        section.refuse_field("page", why, [2, 3, 9], holes, message)


def _refuse_refs(section: Section) -> None:
    form, place, parse = "a chunk of form", "a chunk at position", "does not parse"
    for why, field, new, message in (
        ("chunk id of 31 bytes", 0, bytes(31), form),
        ("raw length 0", 1, 0, form),
        ("raw length over 4 MiB", 1, 2**22 + 1, form),
        ("stored length not the raw length", 2, 499, form),
        ("form 2", 3, 2, form),
        ("zstd that saves nothing", 3, 1, form),
        ("negative pack", 4, -1, place),
        ("position out of range", 5, 16_384, place),
        ("negative position", 5, -1, place),
        ("offset 0", 6, 0, place),
        ("offset out of range", 6, 2**25 - 500, place),
        ("offset as nil", 6, None, parse),
    ):
        section.refuse_field("one file", f"chunk reference: {why}", [2, 0, 8, 0, field], new, message)


def _refuse_tables(section: Section) -> None:
    order, header = "expected a table of its packs in order of use", "a pack reference holds an impossible header"
    refs = [list(item) for item in map(_fields, pack_refs())]
    section.refuse_field("one file", "a pack that is not in the table", [2, 0, 8, 0, 4], 1, order)
    section.refuse_field("one file", "a pack that is not used", [1], refs[:2], order)
    section.refuse_field("one file", "no table", [1], [], order)
    section.refuse_field(
        "page",
        "table not in order of use",
        [2, 1, 8],
        lambda old: [[*old[0][:4], 1, *old[0][5:]], [*old[1][:4], 0, *old[1][5:]]],
        order,
    )
    section.refuse_field("page", "a pack twice", [1, 1, 0], pack_refs()[0].id, order)
    for why, field, new in (
        ("id of 31 bytes", 0, bytes(31)),
        ("size 0", 1, 0),
        ("size over 32 MiB", 1, 2**25 + 1),
        ("key source 0", 2, 0),
        ("key source 3", 2, 3),
        ("sealed source without a key", 2, 2),
        ("epoch 0", 3, 0),
        ("epoch 65,536", 3, 65_536),
        ("salt of 31 bytes", 4, bytes(31)),
        ("commitment of 33 bytes", 5, bytes(33)),
        ("no commitment", 5, b""),
        ("derived source with a key", 6, b"\xa5" * 1168),
    ):
        section.refuse_field("one file", f"pack reference: {why}", [1, 0, field], new, header)


def _fields(value: Any) -> list[Any]:
    return [getattr(value, name) for name in value.__struct_fields__]


def chunk_list() -> Section:
    """Section 10: chunk lists."""
    section = Section("10, chunk list")
    chunks = [
        ChunkRef(xof("l 0"), 1000, 12, FORM_ZSTD, 0, 3, 116),
        ChunkRef(xof("l 1"), 500, 500, FORM_RAW, 1, 0, 1284),
    ]
    section.structure("list", "chunk-list", write_chunk_list(pack_refs()[:2], chunks), {"covered": 1500})
    section.refuse_encodings("list")
    covers = "expected a list of chunks of 1500 bytes"
    section.refuse_field("list", "tag of a page", [0], 1, covers)
    section.refuse_field("list", "no chunks", [2], [], "does not parse")
    section.refuse_field("list", "covers less", [2], lambda old: old[:1], covers)
    section.refuse_field("list", "covers more", [2], lambda old: [*old, old[1]], covers)
    order = "expected a table of its packs in order of use"
    section.refuse_field("list", "chunks of packs in another order", [2], lambda old: old[::-1], order)
    section.refuse_field("list", "pack that is not in the table", [2, 1, 4], 2, order)
    section.refuse_field("list", "position out of range", [2, 1, 5], 16_384, "a chunk at position")
    section.refuse_field("list", "form 2", [2, 1, 3], 2, "a chunk of form")
    return section
