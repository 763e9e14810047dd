"""While the rest is planned the first ranges are fetched: nothing of them is placed too early, and nothing waits for
them in vain.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from datasync.cache.space import Space
from datasync.errors import StorageUnavailable
from datasync.pull import plan as plans
from datasync.pull.fetch import Fetcher
from datasync.pull.pipeline import WORKERS
from datasync.pull.plan import Job
from tests.node.datasets import broken, receipts
from tests.node.planned import Site, compare
from tests.support.daemons import wait_until
from tests.support.machine import Machine
from tests.support.trees import KIB, survey


@pytest.fixture
def site(machine: Machine, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A dataset whose packs have several ranges."""
    monkeypatch.setattr(plans, "JOB_BYTES", 64 * KIB)
    return Site.make(machine, scratch)


@pytest.mark.parametrize("words", [("warm", "data"), ("pull", "data", "target")])
def test_they_are_among_what_is_planned(site: Site, scratch: Path, words: tuple[str, ...]) -> None:
    arguments = [scratch / word if word == "target" else word for word in words]
    planned = site.plan("plan", "data") if words[0] == "warm" else site.plan(*arguments, "-n")
    assert planned["ranges"] > WORKERS
    compare(site, planned, *arguments)


def test_nothing_of_them_is_placed_before_there_is_room(
    site: Site, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[Job] = []
    fetch, reserve = Fetcher.fetch, Space.reserve

    def noted(self: Fetcher, job: Job, buffer: memoryview) -> memoryview:
        found = fetch(self, job, buffer)
        fetched.append(job)
        return found

    def checked(self: Space, *arguments: object) -> object:
        wait_until("the first ranges", lambda: fetched)
        assert not [path for path in (scratch / "cache" / "views").rglob("*.bin") if path.is_file()]
        assert not list((scratch / "cache" / "objects").glob("??/*"))
        return reserve(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Fetcher, "fetch", noted)
    monkeypatch.setattr(Space, "reserve", checked)
    site.machine.must("warm", "data")
    assert broken(scratch / "cache", {"data/1": survey(site.source)}) == []


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Job]]:
    """Let no fetch end before the test does; yield those that began."""
    over, begun = threading.Event(), []

    def hang(self: Fetcher, job: Job, buffer: memoryview) -> memoryview:
        begun.append(job)
        over.wait()
        raise StorageUnavailable("too late")

    with monkeypatch.context() as patch:
        patch.setattr(Fetcher, "fetch", hang)
        yield begun
        over.set()


def test_a_warm_without_room_does_not_wait_for_them(site: Site, scratch: Path, hanging: list[Job]) -> None:
    tight = replace(site.machine, extra={**site.machine.extra, "DATASYNC_CACHE_MAX": "1MiB"})
    ran = tight.run("warm", "data")
    assert ran.code == 8
    assert hanging
    assert receipts(scratch / "cache") == []


def test_one_that_fails_stops_the_warm_and_the_same_line_finishes(
    site: Site, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Fetcher, job: Job, buffer: memoryview) -> memoryview:
        raise StorageUnavailable("the line is cut; try again")

    with monkeypatch.context() as patch:
        patch.setattr(Fetcher, "fetch", fail)
        assert site.machine.run("warm", "data").code == 5
    assert receipts(scratch / "cache") == []
    site.machine.must("warm", "data")
    assert broken(scratch / "cache", {"data/1": survey(site.source)}) == []
