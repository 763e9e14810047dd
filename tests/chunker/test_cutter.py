"""Cut points: every byte once, the same however the input is read, stable around an edit, and pinned by vectors."""

import json
import random
import subprocess
import sys
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from pyfastcdc.py import FastCDC as PlainFastCDC

from datasync.chunker import CDC_AVERAGE, CDC_MAXIMUM, CDC_MINIMUM, FIXED_LENGTH, Cutter, cdc, fixed

MIB = 1 << 20
SEED = 0x0123456789ABCDEF
VECTORS = Path(__file__).parents[1] / "vectors" / "chunker.json"


@cache
def noise(length: int, label: str = "noise") -> bytes:
    made: bytes = blake3(label.encode()).digest(length=length)
    return made


def cutter_of(name: str) -> Cutter:
    return fixed() if name == "fixed" else cdc(SEED)


def cut_through_windows(cutter: Cutter, data: bytes, reads: list[int]) -> list[int]:
    """Cut *data* as a reader does that gets *reads* bytes at a time, over and over, in an 8 MiB window."""
    lengths: list[int] = []
    start = end = step = 0
    while True:
        end = min(len(data), start + 8 * MIB, end + reads[step % len(reads)])
        step += 1
        final = end == len(data)
        cuts = cutter.cuts(memoryview(data)[start:end], final=final)
        lengths += cuts
        start += sum(cuts)
        if final:
            return lengths


def ends(lengths: list[int]) -> set[int]:
    return set(accumulate(lengths))


@pytest.mark.parametrize("name", ["cdc", "fixed"])
@given(length=st.integers(0, 6 * MIB), start=st.integers(0, 2 * MIB))
@settings(max_examples=25, deadline=None)
def test_chunks_cover_the_input_within_the_limits(name: str, length: int, start: int) -> None:
    cutter = cutter_of(name)
    lengths = cutter.cuts(memoryview(noise(8 * MIB))[start : start + length], final=True)
    assert sum(lengths) == length
    assert all(0 < chunk <= cutter.maximum for chunk in lengths)
    least = FIXED_LENGTH if name == "fixed" else CDC_MINIMUM
    assert all(chunk >= least for chunk in lengths[:-1])


@pytest.mark.parametrize("name", ["cdc", "fixed"])
@given(
    reads=st.lists(st.one_of(st.integers(1, 5000), st.integers(MIB, 5 * MIB)), max_size=5),
    length=st.one_of(st.integers(0, CDC_MAXIMUM), st.integers(CDC_MAXIMUM, 14 * MIB)),
)
@settings(max_examples=25, deadline=None)
def test_cuts_do_not_depend_on_how_the_input_is_read(name: str, reads: list[int], length: int) -> None:
    cutter, data = cutter_of(name), noise(14 * MIB)[:length]
    assert cut_through_windows(cutter, data, [*reads, 700_001]) == cutter.cuts(data, final=True)


@given(offset=st.integers(0, 12 * MIB), inserted=st.binary(min_size=1, max_size=2000))
@settings(max_examples=15, deadline=None)
def test_an_insert_changes_only_nearby_cuts(offset: int, inserted: bytes) -> None:
    data = noise(24 * MIB)
    cutter = cdc(SEED)
    before = cutter.cuts(data, final=True)
    after = cutter.cuts(data[:offset] + inserted + data[offset:], final=True)
    assert {end for end in ends(before) if end <= offset - 64} <= ends(after)
    shifted = {end + len(inserted) for end in ends(before) if end >= offset + 9 * MIB}
    assert shifted <= ends(after)


def test_equal_to_the_plain_implementation() -> None:
    draw = random.Random(7)
    inputs = [noise(3 * MIB + 1), draw.randbytes(CDC_MINIMUM + 3), bytes(CDC_AVERAGE + 7), b"abcdefg" * 200_000]
    for seed in (1, (1 << 63) - 1):
        plain = PlainFastCDC(CDC_AVERAGE, min_size=CDC_MINIMUM, max_size=CDC_MAXIMUM, normalized_chunking=1, seed=seed)
        for data in inputs:
            assert cdc(seed).cuts(data, final=True) == [chunk.length for chunk in plain.cut_buf(data)]


def test_a_full_window_always_yields_a_chunk_and_less_never_does_before_the_end() -> None:
    for data in (noise(CDC_MAXIMUM), bytes(CDC_MAXIMUM)):
        assert cdc(SEED).cuts(data, final=False)
        assert cdc(SEED).cuts(data[:-1], final=False) == []
    assert fixed().cuts(bytes(FIXED_LENGTH), final=False) == [FIXED_LENGTH]
    assert fixed().cuts(bytes(FIXED_LENGTH - 1), final=False) == []


@pytest.mark.parametrize("name", ["cdc", "fixed"])
def test_an_empty_window_has_no_chunk(name: str) -> None:
    for final in (True, False):
        assert cutter_of(name).cuts(b"", final=final) == []


def test_a_cutter_keeps_nothing_of_the_window() -> None:
    buffer = bytearray(noise(6 * MIB))
    cutter = cdc(SEED)
    with memoryview(buffer) as window:
        first = cutter.cuts(window, final=True)
    buffer += b"x"  # raises BufferError while anything still looks at it
    assert cutter.cuts(bytes(buffer[:-1]), final=True) == first


def test_another_seed_cuts_elsewhere() -> None:
    one, other = (ends(cdc(seed).cuts(noise(24 * MIB), final=True)) for seed in (SEED, SEED ^ (1 << 40)))
    assert len(one & other) < len(one) // 2


@pytest.mark.parametrize("seed", [0, -1, 1 << 63, 1 << 64])
def test_a_seed_out_of_range_is_refused_and_not_shown(seed: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to") as caught:
        cdc(seed)
    assert str(1 << 64) not in str(caught.value)


def described(source: dict[str, Any]) -> bytes:
    if source["kind"] == "xof":
        data = noise(source["bytes"], source["label"])
    else:
        pattern = bytes.fromhex(source["pattern"])
        data = (pattern * (source["bytes"] // len(pattern) + 1))[: source["bytes"]]
    edit = source.get("edit")
    return data if edit is None else data[: edit["offset"]] + bytes(edit["zeros"]) + data[edit["offset"] :]


def test_the_cuts_are_those_of_the_vectors() -> None:
    cases = json.loads(VECTORS.read_text(encoding="ascii"))["cases"]
    assert len(cases) >= 20
    for case in cases:
        cutter = fixed() if case["chunker"] == "fixed" else cdc(int(case["seed"], 16))
        assert cut_through_windows(cutter, described(case["input"]), [3 * MIB]) == case["cuts"]


def test_the_library_is_loaded_only_when_something_is_cut_by_content() -> None:
    script = """
import sys, datasync.chunker as chunker
chunker.fixed()
assert "pyfastcdc" not in sys.modules
chunker.cdc(1)
assert "pyfastcdc" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
