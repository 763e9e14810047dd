"""Vectors of docs/format.md, sections 8, 11 and 12: packs, snapshots and the other control objects."""

from datasync.crypto.hashing import hash_all, hash_bytes, keyed_hash
from datasync.crypto.kdf import derive
from datasync.crypto.recipients import HYBRID
from datasync.format import pack as packs
from datasync.format.control import Condemned, Head, Relocation, RelocationPage, RelocationsHeader, TagAssignment, Tags
from datasync.format.encoding import encode
from datasync.format.signed import write_signed
from datasync.format.snapshot import Body, PageRef, Root, Source, Totals, write_page_lists
from datasync.model.entries import FORM_RAW, FORM_ZSTD, PackRef
from datasync.model.ids import ZERO_ID
from datasync.repository.control import SIGN_KINDS, seal_control
from datasync.repository.keyring import Keyring, SealingKeys
from datasync.repository.packs import Piece, SealedPack, seal_pack
from tests.vectors.fixed import DAY, EPOCHS, TAGGER, TIME, WRITER, KeptSeals, randomness, xof
from tests.vectors.notation import to_text
from tests.vectors.section import Section
from tests.vectors.sections_pages import ID_KEY, ZSTD_RAW, pack_refs
from tests.vectors.sections_plain import DATASET, signature

KEYRING = Keyring(DATASET, EPOCHS, 2)


# One zstd frame by the letter of RFC 8878: magic, one segment, a 2-byte size (1,000 - 256), one RLE block of "d".
ZSTD_FRAME = bytes.fromhex("28b52ffd60e802431f0064")


def _material(type_: int, epoch: int) -> bytes:
    return KEYRING.material(type_, epoch)


def sealed_keys(kept: KeptSeals, type_: int) -> SealingKeys:
    """Return what a push-only writer seals a pack of *type_* with."""
    key = xof(f"sealed pack key {type_}")
    info = b"datasync/v1/sealed-pack\0" + packs.bound_header(type_, packs.SEALED, 2, DATASET)
    seed = derive(_material(type_, 2), b"datasync/v1/key-pair", 96)
    sealed = kept.seal(f"pack key of type {type_}", HYBRID, seed, key, info)
    return SealingKeys(DATASET, packs.SEALED, 2, key, sealed, derive(key, b"datasync/v1/salt"))


def pieces() -> list[Piece]:
    """Return three chunks: raw, zstd, and of one byte."""
    raws = [(FORM_RAW, xof("chunk 0", 300), b""), (FORM_ZSTD, ZSTD_RAW, ZSTD_FRAME), (FORM_RAW, b"x", b"")]
    return [Piece(keyed_hash(ID_KEY, raw), form, len(raw), stored or raw) for form, raw, stored in raws]


def seal(name: str, keys: SealingKeys, type_: int) -> tuple[SealedPack, list[bytes]]:
    """Return a pack of the three chunks and the random bytes it took."""
    with randomness(name) as taken:
        return seal_pack(keys, type_, pieces(), memoryview(bytearray(128 * 1024)), full=False), taken


def pack(kept: KeptSeals) -> Section:
    """Section 8."""
    roots = {str(epoch): xof(f"root {epoch}").hex() for epoch in EPOCHS}
    section = Section("8", dataset=DATASET.hex(), roots=roots, order=[2, 1, 0])
    for name, keys, type_ in (
        ("derived", KEYRING.sealing(packs.DATA), packs.DATA),
        ("sealed", sealed_keys(kept, packs.DATA), packs.DATA),
        ("derived metadata", KEYRING.sealing(packs.METADATA), packs.METADATA),
        ("sealed metadata", sealed_keys(kept, packs.METADATA), packs.METADATA),
    ):
        made, taken = seal(name, keys, type_)
        data = bytes(made.data)
        whole = {"bytes": data} if type_ == packs.DATA else {}
        shared = {"type": type_, "reference": made.ref, "places": made.places, "random": taken[0], **whole}
        rows = [{"id": p.id.hex(), "form": p.form, "raw": p.raw, "stored": to_text(bytes(p.data))} for p in pieces()]
        section.add(name, kind="pack", material=keys.material, **shared)
        section.cases[-1]["pieces"] = rows
        if type_ == packs.DATA:
            section.base(name, data)
            _refuse_packs(section, name, data, packs.FIXED_HEADER_BYTES + len(keys.sealed_key))
    _headers(section, bytes(seal("derived", KEYRING.sealing(packs.DATA), packs.DATA)[0].data))
    _footers(section)
    return section


def _put(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def _flip(data: bytes, at: int) -> bytes:
    return _put(data, at, bytes((data[at] ^ 1,)))


def _refuse_packs(section: Section, name: str, data: bytes, header: int) -> None:
    """What a reader of the whole pack refuses; the footer is the last 147 bytes before the 4-byte trailer."""
    footer = len(data) - 4 - packs.TAG_BYTES - packs.footer_bytes(3)
    commitment, tag = "the key commitment does not match", "fails authentication"
    other = "expected a pack of version 1 and suite 1"
    key = commitment if name == "derived" else "the sealed pack key was not made for this dataset"
    for why, bad, message, error in (
        ("wrong magic", _put(data, 0, b"DSYNPLN1"), other, "FormatError"),
        ("version 2", _put(data, 8, b"\2"), other, "FormatError"),
        ("suite 2", _put(data, 9, b"\2"), other, "FormatError"),
        ("type 0", _put(data, 10, b"\0"), other, "FormatError"),
        ("type 10", _put(data, 10, b"\x0a"), other, "FormatError"),
        ("type of metadata", _put(data, 10, b"\2"), "expected a data pack, found a metadata pack", "FormatError"),
        ("key source 0", _put(data, 11, b"\0"), "does not go with a sealed key", "FormatError"),
        (
            "the other key source",
            _put(data, 11, b"\2" if name == "derived" else b"\1"),
            "does not go with",
            "FormatError",
        ),
        ("epoch 0", _put(data, 12, bytes(4)), other, "FormatError"),
        ("epoch of another key", _put(data, 12, b"\1"), key, "IntegrityError"),
        ("epoch out of range", _put(data, 12, b"\3"), "epoch 3 does not exist, the keyset has 2", "IntegrityError"),
        ("another dataset", _flip(data, 16), "expected a pack of dataset", "IntegrityError"),
        ("salt edited", _flip(data, 48), commitment, "IntegrityError"),
        ("commitment edited", _flip(data, 80), commitment, "IntegrityError"),
        ("commitment zeroed", _put(data, 80, bytes(32)), commitment, "IntegrityError"),
        ("commitment stripped", data[:80] + data[112:], "does not go with a sealed key", "FormatError"),
        ("sealed key length", _put(data, 112, b"\1"), "does not go with a sealed key", "FormatError"),
        ("first chunk edited", _flip(data, header), tag, "IntegrityError"),
        ("padding edited", _flip(data, footer - 17), tag, "IntegrityError"),
        ("footer edited", _flip(data, footer), tag, "IntegrityError"),
        ("footer length of no table", _flip(data, len(data) - 4), "no table of chunks", "FormatError"),
        ("footer length of four chunks", _put(data, len(data) - 4, bytes((20 + 41 * 4,))), tag, "IntegrityError"),
        (
            "footer over the pack",
            _put(data, len(data) - 4, (20 + 41 * 2000).to_bytes(4, "little")),
            "does not fit in",
            "FormatError",
        ),
        ("trailing byte", data + b"\0", "no table of chunks", "FormatError"),
        ("cut", data[:-1], "no table of chunks", "FormatError"),
        ("empty", b"", "expected a pack header", "FormatError"),
        (
            "header cut",
            data[: header - 1],
            "sealed key" if name == "sealed" else "expected a pack header",
            "FormatError",
        ),
        ("first chunks swapped", _swap(data, header), tag, "IntegrityError"),
    ):
        section.refuse(name, why, bad, message, error)
        section.refusals[-1]["kind"] = "pack"


def _swap(data: bytes, header: int) -> bytes:
    """Positions 0 (1 byte) and 1 (the zstd frame) of the pack, exchanged with their tags."""
    middle, end = header + 1 + 16, header + 1 + 16 + len(ZSTD_FRAME) + 16
    return data[:header] + data[middle:end] + data[header:middle] + data[end:]


def _headers(section: Section, data: bytes) -> None:
    section.structure("header", "pack-header", data[: packs.FIXED_HEADER_BYTES])
    section.refuse("header", "header cut", data[: packs.FIXED_HEADER_BYTES - 1], "expected a pack header of 116 bytes")


def _footers(section: Section) -> None:
    """A footer's table; its lengths have to add up to the pack's size."""
    rows = [(xof("row 0"), 0, 300, 300), (xof("row 1"), 1, 1000, 12)]
    args = {"header_size": 116, "pack_size": 65_536}
    section.structure("footer", "footer", packs.write_footer(rows), args)
    section.structure("footer of a full pack", "footer", packs.write_footer(rows), args | {"pack_size": 2**25})
    section.structure(
        "footer of another size",
        "footer",
        packs.write_footer([(xof("r"), 0, 65_536, 65_536)]),
        args | {"pack_size": 67_584},
    )
    data = packs.write_footer(rows)
    section.refuse("footer", "count over the table", b"\3" + data[1:], "footer lists 3 chunks")
    section.refuse("footer", "count under the table", b"\1" + data[1:], "footer lists 1 chunks")
    section.refuse("footer", "trailing byte", data + b"\0", "footer lists 2 chunks")
    section.refuse("footer", "no count", data[:3], "footer lists")
    size = "do not make a pack of 65536 bytes"
    section.refuse("footer", "lengths over the pack", packs.write_footer([(xof("r"), 0, 70_000, 70_000)]), size)
    for why, row in (
        ("form 2", (2, 300, 300)),
        ("raw form with another stored length", (0, 300, 299)),
        ("zstd that saves nothing", (1, 300, 300)),
        ("raw length 0", (0, 0, 0)),
        ("stored length 0", (1, 300, 0)),
        ("raw length over 4 MiB", (1, 2**22 + 1, 10)),
    ):
        section.refuse("footer", why, packs.write_footer([(xof("r"), *row)]), "footer has a chunk of form")


def _page_refs() -> list[tuple[PageRef, PackRef]]:
    one, two = pack_refs()[2], pack_refs()[1]
    return [
        (PageRef(xof("page 0"), 2000, 900, FORM_ZSTD, 0, 1, 116, 40, 123_456, b"a"), one),
        (PageRef(xof("page 1"), 700, 700, FORM_RAW, 1, 0, 1284, 10, 0, b"m/n"), two),
    ]


def _body(kept: KeptSeals, lists: list[bytes], pages: list[bytes]) -> Body:
    seed = derive(EPOCHS[2].metadata, b"datasync/v1/key-pair", 96)
    id_key = kept.seal("id key", HYBRID, seed, xof("writer's id key"), b"datasync/v1/id-key\0" + DATASET)
    return Body(
        DATASET,
        3,
        xof("snapshot 2"),
        TIME,
        2,
        (2, xof("stored keyset 2")),
        (2, xof("stored trust root 2")),
        Source("build-1", b"/data/set", "259:1", xof("source", 16)),
        "datasync 1.0",
        "première",
        "cdc",
        id_key,
        Root(0o755, TIME * 10**6, ((b"user.a", b"1"),)),
        Totals(50, 40, 9, 1, 123_456, 4096, 2),
        hash_all(pages),
        tuple(hash_bytes(item) for item in lists),
    )


def snapshot(kept: KeptSeals) -> Section:
    """Section 11."""
    section = Section(
        "11", dataset=DATASET.hex(), root_2=xof("root 2").hex(), writer_id_key=xof("writer's id key").hex()
    )
    refs = _page_refs()
    lists = write_page_lists(refs)
    section.structure("page list", "page-list", lists[0])
    body = section.structure("body", "snapshot", encode(_body(kept, lists, [ref.id for ref, _ in refs])))
    sealed_object(section, packs.SNAPSHOT, body, rest=lists)
    section.refuse_encodings("body")
    _refuse_bodies(section)
    section.refuse_encodings("page list")
    _refuse_page_lists(section)
    return section


def sealed_object(section: Section, type_: int, body: bytes, rest: list[bytes] | None = None) -> None:
    """Add a sealed control object: what goes in (by the case that has its bytes), and the hash of what comes out."""
    name, signer = "object", WRITER
    with randomness(f"{name} {type_}") as taken:
        data = seal_control(KEYRING.sealing(type_), type_, body, signer, rest)
    header = packs.read_header(data, name)
    section.add(
        name,
        kind="control",
        type=type_,
        signer_seed=xof("writer"),
        case=section.name_of(body),
        rest=[section.name_of(item) for item in rest or []],
        signature=signer.sign(SIGN_KINDS[type_], body),
        random=taken[0],
        header=header.encode(),
        size=len(data),
        object_hash=hash_bytes(data),
    )


def _refuse_bodies(section: Section) -> None:
    limits, parse = "a sequence number, message or root mode is out of range", "does not parse"
    for why, path, new, message in (
        ("seq 0", [1], 0, limits),
        ("seq of 64 bits", [1], 2**63, parse),
        ("message of 4,097 bytes", [9], "m" * 4097, limits),
        ("message of 4,098 bytes in 2,049 characters", [9], "é" * 2049, limits),
        ("root mode over 0o7777", [12, 0], 0o10000, limits),
        ("root time of 64 bits", [12, 1], 2**63, parse),
        (
            "root attributes not sorted",
            [12, 2],
            [[b"user.b", b""], [b"user.a", b""]],
            "the root directory has extended",
        ),
        ("epoch of 33 bits", [4], 2**32, parse),
        ("unknown chunker", [10], "rabin", parse),
        ("source id of 15 bytes", [7, 3], bytes(15), parse),
        ("source path as text", [7, 1], "/data/set", parse),
        ("keyset without a hash", [5], [2], parse),
        ("id key as nil", [11], None, parse),
        ("id key of 32 bytes", [11], bytes(32), "expected no id key or 1168"),
        ("totals of 6 fields", [13], lambda old: old[:-1], parse),
        ("negative total", [13, 4], -1, parse),
        ("root hash of 31 bytes", [14], bytes(31), parse),
        ("8 page lists", [15], [bytes(32)] * 8, parse),
    ):
        section.refuse_field("body", why, path, new, message)


def _refuse_page_lists(section: Section) -> None:
    out, order, parse = "a page reference is out of range", "expected a table of its packs", "does not parse"
    for why, path, new, message in (
        ("no pages", [1], [], parse),
        ("page id of 31 bytes", [1, 0, 0], bytes(31), parse),
        ("raw length 0", [1, 1, 1], 0, out),
        ("raw length over 2 MiB", [1, 0, 1], 2**21 + 1, out),
        ("stored length not the raw length", [1, 1, 2], 699, out),
        ("zstd that saves nothing", [1, 0, 2], 2000, out),
        ("form 2", [1, 0, 3], 2, out),
        ("no entries", [1, 0, 7], 0, out),
        ("no first path", [1, 0, 9], b"", out),
        ("offset out of range", [1, 0, 6], 2**25 + 1, out),
        ("offset of 33 bits", [1, 0, 6], 2**32, parse),
        ("pack not in the table", [1, 1, 4], 2, order),
        ("pack not in order of use", [1], lambda old: old[::-1], order),
        ("a pack that is not used", [1], lambda old: old[:1], order),
    ):
        section.refuse_field("page list", why, path, new, message)


def head() -> Section:
    """Section 12: heads."""
    section = Section("12, head", dataset=DATASET.hex(), root_2=xof("root 2").hex())
    value = Head(DATASET, 5, xof("head 4"), 3, xof("snapshot 3"), TIME, TIME + 30 * DAY)
    body = section.structure("head", "head", encode(value))
    sealed_object(section, packs.HEAD, body)
    section.refuse_encodings("head")
    for why, path, new in (
        ("dataset id of 31 bytes", [0], bytes(31)),
        ("negative number", [1], -1),
        ("number of 64 bits", [1], 2**63),
        ("previous as nil", [2], None),
        ("seq as a float", [3], 3.0),
        ("snapshot id of 33 bytes", [4], bytes(33)),
        ("time as text", [5], "2027"),
    ):
        section.refuse_field("head", why, path, new, "does not parse")
    return section


def tags() -> Section:
    """Section 12: tags."""
    section = Section("12, tags", dataset=DATASET.hex(), root_2=xof("root 2").hex())
    rows = []
    for name, seq in (("old", 0), ("prod", 3)):
        body = encode(TagAssignment(DATASET, name, seq, xof("snapshot 3") if seq else ZERO_ID, TIME))
        section.structure(f"assignment {name}", "tag", body)
        rows.append((name, write_signed(body, [signature(TAGGER, "tag", body)])))
        section.structure(f"assignment {name}, signed", "signed", rows[-1][1])
        section.add(f"assignment {name}, checked", kind="verify", sign_kind="tag", bytes=rows[-1][1])
    table = section.structure("table", "tags", encode(Tags(DATASET, 2, xof("tags 1"), TIME, tuple(rows))))
    section.structure("empty table", "tags", encode(Tags(DATASET, 1, ZERO_ID, TIME, ())))
    sealed_object(section, packs.TAGS, table)
    section.refuse_encodings("assignment prod")
    section.refuse_encodings("table")
    order = "expected tags sorted by name"
    section.refuse_field("table", "tags not sorted", [4], lambda old: old[::-1], order)
    section.refuse_field("table", "a tag twice", [4], lambda old: [old[0], old[0]], order)
    section.refuse_field("table", "assignment as text", [4, 0, 1], "x", "does not parse")
    section.refuse_field("assignment prod", "name as bytes", [1], b"prod", "does not parse")
    section.refuse_field("assignment prod", "negative seq", [2], -1, "does not parse")
    section.base("assignment prod, checked", rows[1][1])
    other = encode(TagAssignment(DATASET, "prod", 2, xof("snapshot 2"), TIME))
    moved = write_signed(other, [signature(TAGGER, "tags", other)])
    section.refuse("assignment prod, checked", "signed as a table", moved, "does not hold", "IntegrityError")
    return section


def relocations() -> Section:
    """Section 12: relocations."""
    section = Section("12, relocations", dataset=DATASET.hex(), root_2=xof("root 2").hex())
    rows = sorted((xof("moved 0"), xof("moved 1")))
    moved = (Relocation(rows[0], 12, 1, 0, 3, 116), Relocation(rows[1], 500, 0, 1, 0, 1284))
    page_ = section.structure("page", "relocation-page", encode(RelocationPage(tuple(pack_refs()[:2]), moved)))
    value = RelocationsHeader(DATASET, 1, ZERO_ID, TIME, 2, (hash_bytes(page_),))
    body = section.structure("header", "relocations", encode(value))
    sealed_object(section, packs.RELOCATIONS, body, rest=[page_])
    section.refuse_encodings("page")
    section.refuse_encodings("header")
    order, table = "expected relocations sorted by chunk id", "expected a table of its packs"
    section.refuse_field("page", "chunks not sorted", [1], lambda old: old[::-1], order)
    section.refuse_field("page", "a chunk twice", [1], lambda old: [old[0], [old[0][0], *old[1][1:]]], order)
    section.refuse_field("page", "pack not in the table", [1, 1, 3], 2, table)
    section.refuse_field("page", "a pack that is not used", [1], lambda old: old[:1], table)
    section.refuse_field("page", "a pack twice", [0, 1, 0], pack_refs()[0].id, table)
    section.refuse_field("page", "pack reference without a commitment", [0, 0, 5], b"", "an impossible header")
    section.refuse_field("page", "form 2", [1, 0, 2], 2, "bytes at position")
    section.refuse_field("page", "stored length 0", [1, 0, 1], 0, "bytes at position")
    section.refuse_field("page", "stored length over 4 MiB", [1, 0, 1], 2**22 + 1, "bytes at position")
    section.refuse_field("page", "position out of range", [1, 0, 4], 16_384, "bytes at position")
    section.refuse_field("page", "offset out of range", [1, 0, 5], 2**25, "bytes at position")
    section.refuse_field("header", "page hash of 31 bytes", [5, 0], bytes(31), "does not parse")
    section.refuse_field("header", "epoch of 33 bits", [4], 2**32, "does not parse")
    return section


def condemned() -> Section:
    """Section 12: condemned packs."""
    section = Section("12, condemned", dataset=DATASET.hex(), root_2=xof("root 2").hex())
    rows = tuple(sorted((xof(f"condemned {n}"), TIME + n) for n in range(3)))
    body = section.structure("list", "condemned", encode(Condemned(DATASET, 4, xof("condemned 3"), TIME, rows)))
    section.structure("empty", "condemned", encode(Condemned(DATASET, 1, ZERO_ID, TIME, ())))
    sealed_object(section, packs.CONDEMNED, body)
    section.refuse_encodings("list")
    order = "expected packs sorted by id"
    section.refuse_field("list", "packs not sorted", [4], lambda old: old[::-1], order)
    section.refuse_field("list", "a pack twice", [4], lambda old: [old[0], *old], order)
    section.refuse_field("list", "pack id of 31 bytes", [4, 0, 0], bytes(31), "does not parse")
    section.refuse_field("list", "row of one field", [4, 0], lambda old: old[:1], "does not parse")
    section.refuse_field("list", "negative time", [4, 0, 1], -1, "does not parse")
    return section
