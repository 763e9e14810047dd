"""Access lists as bytes: vectors written by hand, laws, and everything that is refused."""

import os
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datasync.cache.acl import ATTRIBUTE, ENTRIES, AccessList, encode_acl, parse_acl
from datasync.errors import FormatError

# user::rwx user:1000:r-x user:65534:--- group::--- group:2000:r-x mask::r-x other::---
VECTOR = bytes.fromhex(
    "02000000"
    "01000700ffffffff"
    "02000500e8030000"
    "02000000feff0000"
    "04000000ffffffff"
    "08000500d0070000"
    "10000500ffffffff"
    "20000000ffffffff"
)
LIST = AccessList(7, 0, 0, ((1000, 5), (65534, 0)), ((2000, 5),), 5)
PLAIN = bytes.fromhex("0200000001000600ffffffff04000400ffffffff20000000ffffffff")

permissions = st.integers(0, 7)
named = st.dictionaries(st.integers(0, 2**32 - 2), permissions, max_size=8).map(
    lambda found: tuple(sorted(found.items()))
)


@st.composite
def lists(draw: st.DrawFn) -> AccessList:
    users, groups = draw(named), draw(named)
    mask = draw(permissions if users or groups else st.none() | permissions)
    return AccessList(draw(permissions), draw(permissions), draw(permissions), users, groups, mask)


def test_the_vector() -> None:
    assert encode_acl(LIST) == VECTOR
    assert parse_acl(VECTOR) == LIST
    assert parse_acl(PLAIN) == AccessList(6, 4, 0)


@given(lists())
def test_a_list_has_one_encoding_and_comes_back(acl: AccessList) -> None:
    assert parse_acl(encode_acl(acl)) == acl


@given(st.binary(max_size=80) | st.binary(max_size=40).map(lambda tail: VECTOR + tail))
@example(VECTOR)
def test_what_parses_encodes_to_the_same_bytes(data: bytes) -> None:
    try:
        acl = parse_acl(data)
    except FormatError:
        return
    assert encode_acl(acl) == data


@given(st.integers(4, len(VECTOR) - 1), st.integers(1, 255))
def test_a_changed_byte_is_another_list_or_refused(at: int, change: int) -> None:
    changed = bytearray(VECTOR)
    changed[at] ^= change
    try:
        assert parse_acl(bytes(changed)) != LIST
    except FormatError:
        return


def entry(tag: int, rights: int, number: int = 0xFFFFFFFF) -> bytes:
    return struct.pack("<HHI", tag, rights, number)


OWNER, OWNING, MASK, OTHERS = entry(1, 7), entry(4, 5), entry(0x10, 5), entry(0x20, 0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "found none"),
        (OWNER + OWNING, "tag 0x20"),
        (OWNING + OTHERS, "tag 0x01"),
        (OWNER + OTHERS, "tag 0x04"),
        (OWNER + OWNER + OWNING + OTHERS, "out of order, or twice"),
        (OWNING + OWNER + OTHERS, "out of order"),
        (OWNER + entry(2, 5, 7) + entry(2, 5, 7) + OWNING + MASK + OTHERS, "twice"),
        (OWNER + entry(2, 5, 8) + entry(2, 5, 7) + OWNING + MASK + OTHERS, "out of order"),
        (OWNER + entry(2, 5, 7) + OWNING + OTHERS, "expected a mask"),
        (OWNER + entry(2, 5) + OWNING + MASK + OTHERS, "none where one does"),
        (entry(1, 7, 7) + OWNING + OTHERS, "where none belongs"),
        (entry(1, 8) + OWNING + OTHERS, "three bits"),
        (OWNER + OWNING + OTHERS + entry(0x40, 0), "unknown tag 0x40"),
        (OWNER + OWNING + OTHERS[:-1], "whole entries"),
        (entry(1, 7) * (ENTRIES + 1), "at most"),
    ],
)
def test_what_is_no_list_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_acl(struct.pack("<I", 2) + body)


@pytest.mark.parametrize("version", [0, 1, 3, 2**32 - 1])
def test_another_version_is_refused(version: int) -> None:
    with pytest.raises(FormatError, match="version 2"):
        parse_acl(struct.pack("<I", version) + VECTOR[4:])


def test_no_bytes_are_no_list() -> None:
    with pytest.raises(FormatError, match="found 0 bytes"):
        parse_acl(b"")


def test_the_kernel_takes_and_returns_these_bytes(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    try:
        os.setxattr(place, ATTRIBUTE, VECTOR)
    except OSError as error:
        pytest.skip(f"this file system keeps no access lists: {error.strerror}")
    assert os.getxattr(place, ATTRIBUTE) == VECTOR
    assert place.stat().st_mode & 0o777 == 0o750  # the group bits are the mask's
    assert subprocess.run(["ls", "-ld", place], capture_output=True, text=True, check=True).stdout[10] == "+"
