"""Laws of the format: a parser returns a value with one encoding or refuses by name; sizes, order, packs."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from datasync.crypto.aead import open_box, seal_box
from datasync.crypto.hashing import hash_bytes, keyed_hash
from datasync.crypto.kdf import EpochKeys
from datasync.crypto.recipients import HYBRID, X25519, KeyPair, Recipient
from datasync.crypto.signatures import SigningKey, parse_signer
from datasync.errors import FormatError, IntegrityError, NewerFormat, UsageError, WrongKey
from datasync.format import pack as packs
from datasync.format.encoding import encode, padme
from datasync.format.names import numbered, parse_numbered
from datasync.format.page import check_order, read_page, write_page
from datasync.model.entries import DIRECTORY, FILE, FORM_RAW, ChunkRef, Entry, PackRef, sort_key
from datasync.model.limits import ENTRY_CHUNKS, ENTRY_HOLES, PACK_BYTES
from datasync.repository.compression import compress
from datasync.repository.control import open_control, seal_control
from datasync.repository.keyring import Keyring
from datasync.repository.packs import Piece, SealedPack, open_pack, seal_pack
from tests.vectors.codecs import CODECS
from tests.vectors.fixed import FOLDER
from tests.vectors.notation import to_bytes

FLOOR = 65_536
KEYRING = Keyring(bytes(32), {1: EpochKeys.from_root(1, b"r" * 32)}, 1)
ID_KEY = KEYRING.fixed.id_key
SIGNER = SigningKey(b"s" * 32)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Base = tuple[str, dict[str, Any], bytes]


def valid_encodings() -> list[Base]:
    """Return (parser, arguments, bytes) of every structure in the golden vectors."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        for case in json.loads(path.read_text(encoding="ascii"))["cases"]:
            if "read" in case:
                found.append((case["read"], case["args"], to_bytes(case["bytes"])))
    return found


BASES = valid_encodings()
LARGEST_OF_EACH = list({base[0]: base for base in sorted(BASES, key=lambda base: len(base[2]))}.values())
of_each_parser = pytest.mark.parametrize("base", LARGEST_OF_EACH, ids=lambda base: base[0])
STRUCTURES = [base for base in LARGEST_OF_EACH if base[2][0] >> 4 == 9 or base[2][0] == 0xDC]
of_each_structure = pytest.mark.parametrize("base", STRUCTURES, ids=lambda base: base[0])


def reads_or_refuses(base: Base, data: bytes) -> None:
    """Parse *data*: our own errors refuse it, or its value is written as the same bytes (a header: its start)."""
    name, args, _ = base
    try:
        value = CODECS[name].read(data, args)
    except (FormatError, NewerFormat):
        return
    written = CODECS[name].write(value, args)
    assert data.startswith(written) if name == "pack-header" else data == written


# parsers


def test_every_parser_has_a_valid_encoding() -> None:
    assert {base[0] for base in BASES} == set(CODECS)


@of_each_parser
@given(data=st.binary(max_size=400))
@QUICK
def test_any_bytes_are_refused_by_name_or_have_one_encoding(base: Base, data: bytes) -> None:
    reads_or_refuses(base, data)


@of_each_parser
@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
@QUICK
def test_one_changed_byte_is_refused_by_name_or_has_one_encoding(base: Base, place: float, change: int) -> None:
    data = bytearray(base[2])
    data[int(place * min(len(data), 8192))] ^= change
    reads_or_refuses(base, bytes(data))


@of_each_parser
@given(start=st.integers(0, 400), length=st.integers(0, 40), new=st.binary(max_size=40))
@QUICK
def test_a_replaced_range_is_refused_by_name_or_has_one_encoding(
    base: Base, start: int, length: int, new: bytes
) -> None:
    data = base[2]
    reads_or_refuses(base, data[:start] + new + data[start + length :])


LEAVES = st.one_of(
    st.sampled_from([-(2**63), -1, 0, 1, 2**8, 2**16, 2**25, 2**32, 2**63 - 1, 2**63, 2**64 - 1]),
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from([b"", b"/", b"..", b"\0", bytes(16), bytes(31), bytes(32), b"a" * 300]),
    st.lists(st.integers(-1, 40), max_size=3),
    st.dictionaries(st.integers(0, 3), st.integers(0, 3), max_size=2),
)


@of_each_structure
@given(data=st.data())
@QUICK
def test_any_value_in_any_field_is_refused_by_name_or_has_one_encoding(base: Base, data: st.DataObject) -> None:
    fields = msgspec.msgpack.decode(base[2])
    place = fields
    while True:
        index = data.draw(st.integers(0, len(place) - 1))
        if not isinstance(place[index], list) or not place[index] or data.draw(st.integers(0, 4)) == 0:
            break
        place = place[index]
    place[index] = data.draw(LEAVES)
    reads_or_refuses(base, encode(fields))


@pytest.mark.parametrize("depth", [100, 1100, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    for base in STRUCTURES:
        with pytest.raises(FormatError):
            CODECS[base[0]].read(b"\x91" * depth + b"\x90", base[1])
    with pytest.raises(FormatError, match="hash does not match"):
        CODECS["marker"].read(b"[" * depth, {})


@given(st.text(max_size=100) | st.from_regex(r"[0-9]{20}(-[0-9a-f]{64})?", fullmatch=True))
@QUICK
def test_a_numbered_name_is_refused_or_has_one_form(name: str) -> None:
    try:
        number, digest = parse_numbered(name)
    except FormatError:
        return
    assert numbered(number, digest) == name


@given(st.integers(1, 10**20 - 1), st.integers(1, 10**20 - 1))
def test_the_newest_number_sorts_first(one: int, other: int) -> None:
    assume(one != other)
    assert (numbered(one) < numbered(other)) == (one > other)


@given(st.text(max_size=80) | st.text("dsrh1x234567abc=", max_size=80).map("dsr1x".__add__))
@QUICK
def test_any_text_is_no_public_key_or_refused_by_name(text: str) -> None:
    for parse in (Recipient.parse, parse_signer):
        with pytest.raises(UsageError):
            parse(text)


# sealed bytes


@given(box=st.binary(max_size=200))
def test_any_bytes_are_no_box(box: bytes) -> None:
    with pytest.raises(IntegrityError):
        open_box(bytes(32), "name", b"", box)


@given(plaintext=st.binary(max_size=200), place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_a_box_with_one_changed_byte_does_not_open(plaintext: bytes, place: float, change: int) -> None:
    box = bytearray(seal_box(bytes(32), "name", b"", plaintext))
    assert open_box(bytes(32), "name", b"", bytes(box)) == plaintext
    box[int(place * len(box))] ^= change
    with pytest.raises(IntegrityError):
        open_box(bytes(32), "name", b"", bytes(box))


@given(sealed=st.binary(max_size=100) | st.binary(min_size=1168, max_size=1168) | st.binary(min_size=80, max_size=80))
@QUICK
def test_any_bytes_are_no_sealed_key(sealed: bytes) -> None:
    for kem in (HYBRID, X25519):
        with pytest.raises(WrongKey):
            KeyPair(bytes(range(96))).open(kem, sealed, b"")


@given(public=st.binary(max_size=40) | st.sampled_from([bytes(1216), b"\xff" * 1216, bytes(32), b"\1" + bytes(31)]))
@QUICK
def test_a_bad_public_key_is_refused_by_name_or_sealed_to(public: bytes) -> None:
    for kem in (HYBRID, X25519):
        try:
            sealed = Recipient(kem, public).seal(bytes(32), b"")
        except FormatError:
            continue
        assert len(sealed) in (80, 1168)


PACK = seal_pack(
    KEYRING.sealing(packs.DATA),
    packs.DATA,
    [Piece(keyed_hash(ID_KEY, raw), FORM_RAW, len(raw), raw) for raw in (b"one", b"two" * 300)],
    memoryview(bytearray(FLOOR)),
    full=False,
)
HEAD = seal_control(KEYRING.sealing(packs.HEAD), packs.HEAD, b"body", SIGNER)


def _read_whole(data: bytes) -> None:
    opened = open_pack(KEYRING, data, packs.DATA, "pack")
    opened.check_padding("pack")
    for row, raw in opened.chunks("pack"):
        assert keyed_hash(ID_KEY, bytes(raw)) == row.id


def _read_head(data: bytes) -> None:
    open_control(KEYRING, packs.HEAD, data, "head")


@given(data=st.binary(max_size=300), keep=st.integers(0, 200))
@QUICK
def test_any_bytes_after_a_valid_start_are_no_pack(data: bytes, keep: int) -> None:
    with pytest.raises(IntegrityError):
        _read_whole(bytes(PACK.data[:keep]) + data)
    with pytest.raises(IntegrityError):
        _read_head(HEAD[:keep] + data)


@given(
    place=st.integers(0, FLOOR - 1) | st.integers(0, 300) | st.integers(FLOOR - 200, FLOOR - 1), bit=st.integers(0, 7)
)
@QUICK
def test_a_pack_with_one_changed_bit_is_refused(place: int, bit: int) -> None:
    for good in (bytes(PACK.data), HEAD):
        data = bytearray(good)
        data[place] ^= 1 << bit
        with pytest.raises((IntegrityError, WrongKey)):
            _read_head(bytes(data)) if good is HEAD else _read_whole(bytes(data))


@st.composite
def raw_chunks(draw: st.DrawFn) -> list[bytes]:
    count = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(1, 30_000), min_size=count, max_size=count))
    return [(draw(st.binary(min_size=1, max_size=24)) * length)[:length] for length in lengths]


@given(raws=raw_chunks(), type_=st.sampled_from([packs.DATA, packs.METADATA, packs.SNAPSHOT]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_pack_gives_back_its_chunks(raws: list[bytes], type_: int) -> None:
    made = _seal(raws, type_)
    data = bytes(made.data)
    assert made.ref.id == hash_bytes(data)
    assert len(data) == made.ref.size == padme(len(data))
    opened = open_pack(KEYRING, data, type_, "pack")
    opened.check_padding("pack")
    chunks = [(row, bytes(raw)) for row, raw in opened.chunks("pack")]
    assert [chunks[position][1] for position, _ in made.places] == raws
    assert [chunks[position][0].offset for position, _ in made.places] == [offset for _, offset in made.places]
    if type_ == packs.SNAPSHOT:
        assert [position for position, _ in made.places] == list(range(len(raws)))


def _seal(raws: list[bytes], type_: int) -> SealedPack:
    pieces = []
    for raw in raws:
        form, stored = compress(raw)
        pieces.append(Piece(keyed_hash(ID_KEY, raw), form, len(raw), stored))
    return seal_pack(KEYRING.sealing(type_), type_, pieces, memoryview(bytearray(1 << 20)), full=False)


def test_a_full_pack_is_exactly_32_mib() -> None:
    raws = [b"x" * 1000]
    piece = Piece(keyed_hash(ID_KEY, raws[0]), FORM_RAW, 1000, raws[0])
    made = seal_pack(KEYRING.sealing(packs.DATA), packs.DATA, [piece], memoryview(bytearray(PACK_BYTES)), full=True)
    assert len(made.data) == PACK_BYTES
    _read_whole(bytes(made.data))


# sizes and order


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_padme_is_monotone_and_its_own_fixed_point(one: int, other: int) -> None:
    assert (padme(one) <= padme(other)) or one > other
    assert padme(padme(one)) == padme(one) >= max(one, FLOOR)


@given(st.integers(FLOOR, 2**40))
def test_padme_adds_at_most_12_percent(length: int) -> None:
    assert (padme(length) - length) * 100 <= 12 * length


COMPONENTS = st.lists(
    st.binary(min_size=1, max_size=3).filter(lambda part: not set(part) & set(b"/\0")), min_size=1, max_size=4
)
TREES = st.lists(COMPONENTS, max_size=12)


def walk(tree: dict[bytes, Any], above: tuple[bytes, ...] = ()) -> list[bytes]:
    found = []
    for name in sorted(tree):
        found += [b"/".join((*above, name)), *walk(tree[name], (*above, name))]
    return found


@given(TREES)
def test_sort_key_is_the_order_of_a_depth_first_walk(paths: list[list[bytes]]) -> None:
    tree: dict[bytes, Any] = {}
    for path in paths:
        place = tree
        for name in path:
            place = place.setdefault(name, {})
    found = walk(tree)
    assert found == sorted(found, key=sort_key)
    for before, after in pairwise(found):
        check_order(before, after, "pages")
        with pytest.raises(FormatError, match="expected paths in order"):
            check_order(after, before, "pages")


# limits that are too large for the vectors


REF = PackRef(bytes(32), PACK_BYTES, packs.DERIVED, 1, bytes(32), bytes(32), b"")


def _file(chunks: int) -> bytes:
    refs = tuple(ChunkRef(bytes(32), 1, 1, FORM_RAW, 0, n, 116) for n in range(chunks))
    return write_page([REF], [Entry(b"f", FILE, 0o644, 0, chunks, (), b"", b"", refs, (), ())])


def test_an_entry_has_at_most_1024_chunks() -> None:
    assert len(read_page(_file(ENTRY_CHUNKS), "page").entries[0].chunks) == ENTRY_CHUNKS
    with pytest.raises(FormatError, match="more chunks or holes"):
        read_page(_file(ENTRY_CHUNKS + 1), "page")


def test_an_entry_has_at_most_16384_holes() -> None:
    holes = tuple((2 * n, 1) for n in range(ENTRY_HOLES + 1))
    entry = Entry(b"f", FILE, 0o644, 0, 2 * ENTRY_HOLES + 2, (), b"", b"", (), holes, ())
    with pytest.raises(FormatError, match="more chunks or holes"):
        read_page(write_page([], [entry]), "page")
    fewer = msgspec.structs.replace(entry, holes=holes[:-1])
    with pytest.raises(FormatError, match="its chunks and holes"):
        read_page(write_page([], [fewer]), "page")


def test_a_page_has_at_most_2_mib() -> None:
    xattrs = ((b"user.a", b"v" * 60_000),)
    entries = [Entry(b"%03d" % n, DIRECTORY, 0o755, 0, 0, xattrs, b"", b"", (), (), ()) for n in range(35)]
    assert len(read_page(write_page([], entries[:34]), "page").entries) == 34
    with pytest.raises(FormatError, match="expected at most 2097152 bytes"):
        read_page(write_page([], entries), "page")
