"""Which ranges a transfer asks for, in what order, and what is made of them."""

from contextlib import closing
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from datasync.model.entries import FILE, Entry, PackRef, StoredChunk
from datasync.model.limits import MIB
from datasync.pull.plan import JOB_CHUNKS, JOB_FILES, Plan, small_files

PACK_BYTES = 200 * MIB
STEP_BYTES = 20 * MIB  # more than one range takes


def pack_of(n: int) -> PackRef:
    return PackRef(bytes([n]) * 32, PACK_BYTES, 0, 1, bytes(16), bytes(32), bytes(100))


def want(plan: Plan, name: bytes, *chunks: StoredChunk) -> None:
    size = sum(chunk.raw for chunk in chunks)
    plan.want(Entry(name, FILE, 0o644, 0, size, (), b"", b"", (), (), ()), name * 4, list(chunks))


def planned(ranges: list[int], abreast: int) -> list[tuple[int, int]]:
    """Return (pack, start) of each range in order, for packs that have so many *ranges* each."""
    with closing(Plan()) as plan:
        for n, count in enumerate(ranges):
            for at in range(count):
                chunk = StoredChunk(bytes([n, at]) * 16, 1000, 1000, 0, pack_of(n), at, 1000 + at * STEP_BYTES)
                want(plan, b"%03d-%03d" % (n, at), chunk)
        return [(job.pack.id[0], job.start) for job in plan.jobs(abreast)]


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


def test_a_chunk_of_many_files_is_fetched_once_and_so_is_one_of_a_small_and_a_large_file() -> None:
    first, second = (StoredChunk(bytes([n]) * 32, 1000, 1000, 0, pack_of(0), n, 1000 + 1016 * n) for n in range(2))
    with closing(Plan()) as plan:
        for n in range(JOB_CHUNKS + 10):
            want(plan, b"%08d" % n, first)
        want(plan, b"large", first, second)
        (job,) = plan.jobs()
    files = small_files(job.small)
    assert {small.file.path for small in files} == {b"%08d" % n for n in range(JOB_CHUNKS + 10)}
    assert {small.chunk.id for small in files} == {first.id}
    assert [(ref.id, [(file.path, at) for file, at in targets]) for ref, targets in job.wanted] == [
        (first.id, [(b"large", 0)]),
        (second.id, [(b"large", 1000)]),
    ]


def test_more_files_of_one_chunk_than_a_range_may_have_take_another_range() -> None:
    chunk = StoredChunk(bytes(32), 1000, 1000, 0, pack_of(0), 0, 1000)
    with closing(Plan()) as plan:
        for n in range(JOB_FILES + 1):
            want(plan, b"%08d" % n, chunk)
        assert [len(small_files(job.small)) for job in plan.jobs()] == [JOB_FILES, 1]


def test_a_range_has_no_more_chunks_than_the_limit() -> None:
    with closing(Plan()) as plan:
        for n in range(JOB_CHUNKS + 1):
            want(plan, b"%08d" % n, StoredChunk(n.to_bytes(32, "big"), 100, 100, 0, pack_of(0), n, 1000 + 116 * n))
        assert [len(small_files(job.small)) for job in plan.jobs()] == [JOB_CHUNKS, 1]


def test_a_small_file_keeps_the_hole_before_its_bytes() -> None:
    chunk = StoredChunk(bytes(32), 1000, 1000, 0, pack_of(0), 0, 1000)
    with closing(Plan()) as plan:
        plan.want(Entry(b"sparse", FILE, 0o600, 5, 5096, (), b"", b"", (), ((0, 4096),), ()), bytes(32), [chunk])
        (job,) = plan.jobs()
    (small,) = small_files(job.small)
    assert (small.at, small.file.size, small.file.mode, small.file.mtime) == (4096, 5096, 0o600, 5)
    assert not small.file.dense
