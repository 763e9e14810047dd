"""The fault matrix: each fault, on each kind of store that speaks HTTP, in the middle of a push and of a warm.

The command recovers, or stops with the right exit code and one message, and the same line finishes the work later.
Whatever happens, what is stored is whole and what a view shows is right. Requests are counted: a fault costs a few, not
a storm.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from datasync.storage.azure import AzureOptions, AzureStore
from datasync.storage.gcs import GcsOptions, GcsStore
from datasync.storage.http import HttpOptions
from datasync.storage.location import parse_url
from datasync.storage.protocol import ObjectStore
from datasync.storage.s3 import S3Options, S3Store
from tests.attacks.conftest import fill
from tests.support import stores
from tests.support.fault_proxy import FAULTS, HOLE_SECONDS, Fault, Proxy, fault_proxy, is_read, is_write
from tests.support.machine import Machine, Ran, contents
from tests.support.stores import Running, Server

KINDS = tuple(
    kind for kind in stores.names() if kind not in ("memory", "local", "sftp", "fsspec")
)  # those that speak HTTP
DIALECTS = {"gcs": "gcs", "azure": "azure", "oss-oss2": "oss", "oss-v2": "oss", "cos": "cos"}
WHOLE = "seaweedfs"  # the kind that `make test` tries every fault on
SAMPLE = ("reset", "503")  # and the faults that it tries on every kind
STOPS = {"403": (6,), "404": (4,), "skewed": (6,), "expired": (6,), "stale": (0, 4)}
"""The exit codes; everything else is recovered from. Who has seen nothing yet can not tell that a listing is old."""
TRAILERS = ("trailer 400", "trailer 501")  # only S3's driver sends checksums that a server may not know
FAULT_REQUESTS = 12  # a burst of three costs at most these: three tries again, and a look at what is there
STORM_REQUESTS = 120
BIG_BYTES = 3_000_000

CASES = [
    pytest.param(kind, fault, marks=() if kind == WHOLE or fault in SAMPLE else pytest.mark.long)
    for kind in KINDS
    for fault in FAULTS
    if fault not in TRAILERS or kind not in DIALECTS
]


def waiting(kind: str, url: str, seconds: float) -> ObjectStore:
    """Return the driver for *url* as the command opens it, with less patience."""
    where, http = parse_url(url), HttpOptions(read_seconds=seconds)
    if kind == "gcs":
        return GcsStore(where, GcsOptions(http=http))
    if kind == "azure":
        return AzureStore(where, AzureOptions(http=http))
    if kind.startswith("oss"):
        from datasync.storage.oss import open_oss  # only tests that ask for it pay for the SDK

        return open_oss(where, options=http)
    if kind == "cos":
        from datasync.storage.cos import open_cos

        return open_cos(where, options=http)
    return S3Store(where, S3Options(read_seconds=seconds))


class Bench:
    """One repository behind a proxy, a source, and a node; every command counts its requests."""

    def __init__(self, kind: str, server: Server, proxy: Proxy, folder: Path) -> None:
        self.kind, self.proxy, self.folder = kind, proxy, folder
        url = proxy.through(server.make_bucket(f"f{os.urandom(6).hex()}"))
        self.owner = Machine.make(folder / "owner", url, server.environment())
        self.owner.must("init")
        self.source = fill(folder / "source")
        (self.source / "big").write_bytes(os.urandom(BIG_BYTES))
        self.node = self.owner.sibling(folder / "node", DATASYNC_CACHE=str(folder / "cache"))

    def run(self, machine: Machine, *arguments: str | Path, patient: bool = True) -> Ran:
        """Run a command through the real client; a client without patience gives up on silence."""
        self.proxy.requests.clear()
        if patient:
            return machine.run(*arguments)
        with mock.patch.dict(os.environ, machine.environment()):
            store = waiting(self.kind, machine.repository, HOLE_SECONDS / 3)
        with closing(store):
            return machine.run(*arguments, store=store)

    def spoilt(self, fault: str, chosen: object, machine: Machine, *arguments: str | Path) -> tuple[Ran, int]:
        """Run a command while *fault* spoils three of its requests; return how it ended and what it asked."""
        self.proxy.arm(FAULTS[fault], is_write if chosen is is_write else is_read)
        ran = self.run(machine, *arguments, patient=fault != "black hole")
        asked = len(self.proxy.requests)
        assert self.proxy.faults, "the fault met no request"
        self.proxy.heal()
        return ran, asked


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def bench(kind: str, running: Running, folder: Path) -> Iterator[Bench]:
    server = running.server(kind)
    endpoint: str = server.endpoint  # type: ignore[attr-defined]
    with fault_proxy(endpoint, DIALECTS.get(kind, "s3")) as proxy:
        yield Bench(kind, server, proxy, folder)


def ended_right(ran: Ran, fault: str) -> None:
    assert ran.code in STOPS.get(fault, (0,)), ran
    if ran.code:
        assert len(ran.err.splitlines()) == 1, ran.err
        assert "SECRET" not in ran.err
    if fault == "skewed":
        assert "clock is 3" in ran.err  # 3,600 seconds
        assert "ahead of the server's" in ran.err


@pytest.mark.parametrize(("kind", "fault"), CASES)
def test_a_push_and_a_warm_recover_or_stop_and_resume(bench: Bench, fault: str) -> None:
    push = ("push", bench.source, "--dataset", "data")
    pushed, asked = bench.spoilt(fault, is_write, bench.owner, *push)
    ended_right(pushed, fault)
    assert bench.run(bench.owner, *push).code == 0
    bench.owner.must("verify", "--read-data")

    warmed, asked_warm = bench.spoilt(fault, is_read, bench.node, "warm", "data")
    ended_right(warmed, fault)
    if warmed.code == 0:  # nothing silent: what is shown is right
        assert contents(Path(warmed.out.strip())) == contents(bench.source)
    again = bench.run(bench.node, "warm", "data")
    assert contents(Path(again.out.strip())) == contents(bench.source)

    fresh = bench.owner.sibling(bench.folder / "fresh", DATASYNC_CACHE=str(bench.folder / "fresh-cache"))
    assert bench.run(fresh, "warm", "data").code == 0
    assert asked_warm <= len(bench.proxy.requests) + FAULT_REQUESTS
    assert asked <= STORM_REQUESTS


@pytest.mark.parametrize("kind", [WHOLE, "gcs"])
@pytest.mark.parametrize("fault", ["500", "503", "reset"])
def test_an_outage_ends_in_one_message_without_a_storm(bench: Bench, fault: str) -> None:
    push = ("push", bench.source, "--dataset", "data")
    bench.proxy.arm(FAULTS[fault], is_write, count=10**6)
    ran = bench.run(bench.owner, *push)
    assert ran.code == 5, ran
    assert len(ran.err.splitlines()) == 1
    assert ("tried 48 times" if fault == "503" else "tried 8 times") in ran.err  # a busy store gets more patience
    assert len(bench.proxy.requests) <= STORM_REQUESTS
    bench.proxy.heal()
    assert bench.run(bench.owner, *push).code == 0
    bench.owner.must("verify", "--read-data")


@pytest.mark.parametrize("kind", [WHOLE, "gcs"])
def test_who_has_seen_more_refuses_the_answers_of_an_earlier_day(bench: Bench) -> None:
    bench.run(bench.owner, "push", bench.source, "--dataset", "data")
    assert bench.run(bench.owner, "ls", "data").code == 0  # the proxy remembers what it heard
    (bench.source / "text").write_bytes(b"newer")
    assert bench.run(bench.owner, "push", bench.source, "--dataset", "data").code == 0
    bench.proxy.arm(FAULTS["stale"], is_read, skip=0, count=10**6)
    ran = bench.run(bench.owner, "ls", "data")
    assert ran.code == 7, ran
    bench.proxy.heal()
    assert bench.run(bench.owner, "ls", "data").code == 0


def test_a_black_hole_is_left_after_the_time_out(running: Running, tmp_path: Path) -> None:
    """Connecting, sending and waiting have limits of their own; what never answers is unavailable, not for ever."""
    server = running.server("gcs")
    hole: Fault = FAULTS["black hole"]
    with fault_proxy(server.endpoint, "gcs") as proxy:  # type: ignore[attr-defined]
        made = Bench("gcs", server, proxy, tmp_path)
        proxy.arm(hole, is_write, count=10**6)
        ran = made.run(made.owner, "push", made.source, "--dataset", "data", patient=False)
        assert ran.code == 5, ran
        assert len(ran.err.splitlines()) == 1
