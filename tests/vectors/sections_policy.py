"""Vectors of docs/format.md, section 12: the policy."""

from datasync.format import pack as packs
from datasync.format.control import PolicyBundle
from datasync.format.encoding import encode
from datasync.model.ids import ZERO_ID
from tests.vectors.fixed import TIME, xof
from tests.vectors.section import Section
from tests.vectors.sections_plain import DATASET
from tests.vectors.sections_sealed import sealed_object


def policy() -> Section:
    """Section 12: the policy in force."""
    section = Section("12, policy", dataset=DATASET.hex(), root_2=xof("root 2").hex())
    files = (("guards.cedar", "// nothing\n"), ("policy.toml", '[users."olga-ö"]\n'), ("roles.toml", ""))
    body = section.structure("bundle", "policy", encode(PolicyBundle(DATASET, 3, xof("policy 2"), TIME, files)))
    section.structure("first", "policy", encode(PolicyBundle(DATASET, 1, ZERO_ID, TIME, files[1:2])))
    sealed_object(section, packs.POLICY, body)
    section.refuse_encodings("bundle")
    order = "expected files sorted by name"
    section.refuse_field("bundle", "files not sorted", [4], lambda old: old[::-1], order)
    section.refuse_field("bundle", "a file twice", [4], lambda old: [old[0], *old], order)
    section.refuse_field("bundle", "a file with a path", [4, 0, 0], "a/b", order)
    section.refuse_field("bundle", "no file", [4], [], "does not parse")
    section.refuse_field("bundle", "text as bytes", [4, 0, 1], b"x", "does not parse")
    section.refuse_field("bundle", "previous of 31 bytes", [2], bytes(31), "does not parse")
    section.refuse_field("bundle", "negative time", [3], -1, "does not parse")
    return section
