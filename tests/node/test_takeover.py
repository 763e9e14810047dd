"""One transfer for all processes of a node; when it is killed another goes on where it stood."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.node.datasets import broken, fetches, fill, kill_all, receipts, start_counted
from tests.support.machine import Machine, finish
from tests.support.trees import KIB, MIB, survey

RANKS = 8
FILE_BYTES = 40 * KIB
PACK_BYTES = 32 * MIB
IN_FLIGHT = 4  # ranges of one transfer, each of one pack at most
SLACK_BYTES = 2 * MIB  # pages, and the seals of chunks


@pytest.mark.parametrize("files", [5_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_another_takes_over_when_the_one_that_transfers_is_killed(machine: Machine, scratch: Path, files: int) -> None:
    source = fill(scratch / "data", files, FILE_BYTES)
    machine.must("push", source)
    log, cache = scratch / "log", scratch / "cache"
    ranks = [start_counted(machine, log, 0.3, "warm", "data", "--json") for _ in range(RANKS)]
    try:
        while len([size for _, size in fetches(log) if size > MIB]) <= IN_FLIGHT:  # so one range at least is placed
            assert all(rank.poll() is None for rank in ranks)
            time.sleep(0.005)
        assert receipts(cache) == []
        (first,) = {pid for pid, _ in fetches(log)}
        placed = len(list(cache.glob("objects/??/*")))
        victim = next(rank for rank in ranks if rank.pid == first)
        victim.kill()
        victim.communicate()
        rest = [finish(rank) for rank in ranks if rank is not victim]
    finally:
        kill_all(ranks)
    assert [(ran.code, ran.err) for ran in rest] == [(0, "")] * (RANKS - 1)
    assert len({ran.result["path"] for ran in rest}) == 1
    (second,) = [ran.result for ran in rest if ran.result["fetched_bytes"]]
    assert second["kept"] >= placed > 0
    assert second["files"] + second["kept"] == files
    total = sum(size for _, size in fetches(log))
    assert files * FILE_BYTES <= total <= files * FILE_BYTES + IN_FLIGHT * PACK_BYTES + SLACK_BYTES
    assert len(by_process(fetches(log))) == 2
    assert broken(cache, {"data/1": survey(source)}) == []
    assert len(receipts(cache)) == 1
    assert machine.must("warm", "data", "--json").result["fetched_bytes"] == 0


def by_process(found: list[tuple[int, int]]) -> dict[int, int]:
    """Return the bytes that each process fetched."""
    sums: Counter[int] = Counter()
    for pid, size in found:
        sums[pid] += size
    return dict(sums)


def test_who_waits_says_so_and_who_will_not_wait_is_told(machine: Machine, scratch: Path) -> None:
    machine.must("push", fill(scratch / "data", 20, MIB))
    log = scratch / "log"
    first = start_counted(machine, log, 1.0, "warm", "data")
    try:
        while not fetches(log):
            assert first.poll() is None
            time.sleep(0.005)
        refused = machine.run("warm", "data", "--no-wait")
        assert refused.code == 11
        assert "another process is making it" in refused.message
        second = machine.must("warm", "data", "--json")
        assert finish(first).code == 0
    finally:
        kill_all([first])
    kinds = [json.loads(line)["type"] for line in second.out.splitlines()]
    assert kinds.count("waiting") == 1
    assert second.result["fetched_bytes"] == 0
