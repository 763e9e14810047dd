"""Vectors of section 12 that came with forget and prune: forgotten snapshots, and packs that relocations emptied."""

from datasync.crypto.hashing import hash_bytes
from datasync.format import pack as packs
from datasync.format.control import (
    EmptiedPage,
    ForgottenEntry,
    ForgottenHeader,
    ForgottenPage,
    Relocation,
    RelocationPage,
    RelocationsHeader,
)
from datasync.format.encoding import encode
from datasync.model.ids import ZERO_ID
from tests.vectors.fixed import TIME, xof
from tests.vectors.section import Section
from tests.vectors.sections_pages import pack_refs
from tests.vectors.sections_plain import DATASET
from tests.vectors.sections_sealed import sealed_object


def forgotten() -> Section:
    """Forgotten snapshots: a page of entries, the header, an object without pages."""
    section = Section("12, forgotten", dataset=DATASET.hex(), root_2=xof("root 2").hex())
    entries = tuple(ForgottenEntry(seq, xof(f"snapshot {seq}"), xof(f"header {seq}", 300)) for seq in (1, 2, 7))
    page = section.structure("page", "forgotten-page", encode(ForgottenPage(entries)))
    body = section.structure(
        "header", "forgotten", encode(ForgottenHeader(DATASET, 1, ZERO_ID, TIME, (hash_bytes(page),)))
    )
    section.structure("without pages", "forgotten", encode(ForgottenHeader(DATASET, 2, xof("forgotten 1"), TIME, ())))
    sealed_object(section, packs.FORGOTTEN, body, rest=[page])
    section.refuse_encodings("page")
    section.refuse_encodings("header")
    order, parse = "expected snapshots sorted by number and id", "does not parse"
    section.refuse_field("page", "snapshots not sorted", [0], lambda old: old[::-1], order)
    section.refuse_field("page", "a snapshot twice", [0], lambda old: [old[0], *old], order)
    section.refuse_field("page", "no snapshot", [0], [], parse)
    section.refuse_field("page", "seq 0", [0, 0, 0], 0, parse)
    section.refuse_field("page", "seq of 64 bits", [0, 0, 0], 2**63, parse)
    section.refuse_field("page", "snapshot id of 31 bytes", [0, 0, 1], bytes(31), parse)
    section.refuse_field("page", "header as text", [0, 0, 2], "x", parse)
    section.refuse_field("page", "entry of two fields", [0, 0], lambda old: old[:2], parse)
    section.refuse_field("header", "page hash of 31 bytes", [4, 0], bytes(31), parse)
    section.refuse_field("header", "dataset id of 33 bytes", [0], bytes(33), parse)
    section.refuse_field("header", "negative time", [3], -1, parse)
    return section


def emptied() -> Section:
    """Relocations that also name the packs that they emptied."""
    section = Section("12, relocations that empty packs", dataset=DATASET.hex(), root_2=xof("root 2").hex())
    moved = (Relocation(xof("moved 0"), 12, 1, 0, 3, 116),)
    places = section.structure("places", "relocation-page", encode(RelocationPage(tuple(pack_refs()[:1]), moved)))
    packs_ = tuple(sorted(xof(f"emptied {number}") for number in range(3)))
    page = section.structure("page", "emptied-page", encode(EmptiedPage(packs_)))
    value = RelocationsHeader(DATASET, 1, ZERO_ID, TIME, 2, (hash_bytes(places), hash_bytes(page)))
    body = section.structure("header", "relocations", encode(value))
    sealed_object(section, packs.RELOCATIONS, body, rest=[places, page])
    section.refuse_encodings("page")
    order, parse = "expected packs sorted by id", "does not parse"
    section.refuse_field("page", "packs not sorted", [0], lambda old: old[::-1], order)
    section.refuse_field("page", "a pack twice", [0], lambda old: [old[0], *old], order)
    section.refuse_field("page", "no pack", [0], [], parse)
    section.refuse_field("page", "pack id of 31 bytes", [0, 0], bytes(31), parse)
    section.refuse("page", "a page of places", places, parse)
    return section
