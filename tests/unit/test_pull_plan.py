"""In what order a transfer asks for its ranges."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from datasync.model.entries import FILE, Entry, PackRef, StoredChunk
from datasync.model.limits import MIB
from datasync.pull.plan import Plan

PACK_BYTES = 200 * MIB
STEP_BYTES = 20 * MIB  # more than one range takes


def planned(ranges: list[int], abreast: int) -> list[tuple[int, int]]:
    """Return (pack, start) of each range in order, for packs that have so many *ranges* each."""
    plan = Plan()
    try:
        for n, count in enumerate(ranges):
            pack = PackRef(bytes([n]) * 32, PACK_BYTES, 0, 1, bytes(16), bytes(32), bytes(100))
            for at in range(count):
                chunk = StoredChunk(bytes([n, at]) * 16, 1000, 1000, 0, pack, at, 1000 + at * STEP_BYTES)
                name = b"%03d-%03d" % (n, at)
                entry = Entry(name, FILE, 0o644, 0, chunk.raw, (), b"", b"", (), (), ())
                plan.want(entry, chunk.id, [chunk])
        return [(job.pack.id[0], job.start) for job in plan.jobs(abreast)]
    finally:
        plan.close()


counts = st.lists(st.integers(1, 8), min_size=1, max_size=9)


@given(counts, st.integers(1, 5))
def test_packs_abreast_lose_no_range_and_double_none(ranges: list[int], abreast: int) -> None:
    in_turn = planned(ranges, abreast)
    assert sorted(in_turn) == planned(ranges, 1) == sorted(set(in_turn))


@given(counts, st.integers(1, 5))
def test_each_pack_is_read_from_its_start_to_its_end(ranges: list[int], abreast: int) -> None:
    for pack in range(len(ranges)):
        starts = [start for its, start in planned(ranges, abreast) if its == pack]
        assert starts == sorted(starts)


@given(st.lists(st.integers(2, 8), min_size=2, max_size=9), st.integers(2, 5))
def test_two_requests_in_a_row_go_to_different_packs_while_there_are_others(ranges: list[int], abreast: int) -> None:
    order = [pack for pack, _ in planned(ranges, abreast)]
    left = list(ranges)
    for before, after in pairwise(order):
        left[before] -= 1
        others = [pack for pack, count in enumerate(left) if count and pack != before]
        assert before != after or not others


@given(counts, st.integers(1, 5))
def test_no_more_packs_than_asked_for_are_begun_and_unfinished(ranges: list[int], abreast: int) -> None:
    left = list(ranges)
    for pack, _ in planned(ranges, abreast):
        left[pack] -= 1
        begun = [n for n, count in enumerate(left) if 0 < count < ranges[n]]
        assert len(begun) <= abreast
