"""`datasync doctor` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from datasync.crypto.identity import Identity
from datasync.crypto.identity_file import write_identity
from datasync.storage.clauses import CLAUSES
from tests.support import stores
from tests.support.servers import S3Server, free_ports
from tests.support.stores import Running

PROJECT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 120


class Node:
    """One home with a cache of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.extra = home, dict[str, str]()

    @property
    def cache(self) -> Path:
        return self.home / "node cache"

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("DATASYNC_", "XDG_", "SLURM_"))}
        own = {"HOME": str(self.home), "DATASYNC_CACHE": str(self.cache), "PYTHONPATH": str(PROJECT)}
        return subprocess.Popen(
            [sys.executable, "-m", "datasync.cli.main", "doctor", *arguments],
            env=kept | own | self.extra,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=WAIT_SECONDS)
        return process.returncode, stdout, stderr

    def run(self, *arguments: str, expect: int = 0) -> tuple[str, str]:
        code, stdout, stderr = self.end(*arguments)
        assert code == expect, f"{stdout}\n{stderr}"
        return stdout, stderr

    def events(self, *arguments: str, expect: int | None = 0) -> list[dict[str, Any]]:
        """Return what it tells as JSON; it ends with *expect*, None: with the code that it tells."""
        code, stdout, stderr = self.end("--json", *arguments)
        assert expect in (None, code), f"{stdout}\n{stderr}"
        found = [json.loads(line) for line in stdout.splitlines()]
        assert found[-1]["type"] == "result"
        assert found[-1]["exit"] == code
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    home = tmp_path / "home"
    home.mkdir()
    return Node(home)


def leftovers(node: Node) -> set[Path]:
    """Return what stays: surveys of other tests make such directories too, for as long as they run."""
    found, deadline = scratch(node), time.monotonic() + WAIT_SECONDS
    while found and time.monotonic() < deadline:
        time.sleep(0.1)
        found &= scratch(node)
    return found


def scratch(node: Node) -> set[Path]:
    places = (node.home, Path("/"), Path("/dev/shm"), Path("/tmp"))
    return {path for place in places for path in place.glob(".datasync-doctor-*")}


def test_the_node_part_says_which_directory_to_use(node: Node) -> None:
    stdout, _ = node.run("--quick", "--min-free", "0")
    assert "\nuse " in stdout
    assert "DATASYNC_CACHE=" in stdout or "configured already" in stdout
    assert list(node.home.iterdir()) == []
    assert leftovers(node) == set()


def test_the_node_part_speaks_json(node: Node) -> None:
    events = node.events("--quick", "--min-free", "0")
    directories = [event for event in events if event["type"] == "directory"]
    assert directories[0]["path"] == str(node.cache)
    assert directories[0]["usable"]
    assert directories[0]["write_bytes_per_second"] > 0
    assert {event["check"] for event in events if event["type"] == "check"} == {
        "identity", "openat2", "open files", "python", "libraries",
    }  # fmt: skip
    assert events[-1]["cache"] in [event["path"] for event in directories]
    assert events[-1]["line"].startswith("export DATASYNC_CACHE=")


def test_a_directory_can_be_named(node: Node) -> None:
    events = node.events("--quick", "--cache", str(node.home / "other"))
    assert events[5]["path"] == str(node.home / "other")
    assert not (node.home / "other").exists()


def test_an_identity_that_others_may_read_is_to_be_mended(node: Node) -> None:
    path = node.home / ".config" / "datasync" / "identity"
    write_identity(path, Identity.generate())
    path.chmod(0o644)
    events = node.events("--quick", expect=3)
    assert events[-1]["failed"] == ["identity"]
    path.chmod(0o600)
    assert node.events("--quick")[-1]["failed"] == []


def test_bench_needs_a_store(node: Node) -> None:
    assert "--bench" in node.run("--bench", expect=2)[1]


@pytest.mark.parametrize("url", ["new/deep/repo", "memory://trial"])
def test_a_store_that_has_everything(node: Node, url: str) -> None:
    events = node.events(url, "--quick", "--bench")
    assert [event["ok"] for event in events if event["type"] == "clause"] == [True] * len(CLAUSES)
    assert events[-1]["missing"] == events[-1]["left"] == []
    assert events[-1]["put_bytes_per_second"] > 0
    assert list(node.home.iterdir()) == []


@pytest.mark.parametrize("kind", stores.names(stores.PROCESSES, stores.BUCKETS))
def test_a_server_is_told_exactly_what_it_lacks(node: Node, kind: str, running: Running) -> None:
    server = running.server(kind)
    bucket = f"doctor{os.urandom(4).hex()}"
    url = server.make_bucket(bucket)
    node.extra = server.environment()
    events = node.events(url, "--quick", expect=None)
    lacks = [stores.PUT_IF_ABSENT] if stores.PUT_IF_ABSENT in stores.lacks(kind) else []
    if not lacks and stores.ONE_WINNER in stores.lacks(kind):  # whether a race shows it is chance
        found = [event["found"] for event in events if event["type"] == "clause" and not event["ok"]]
        lacks = [stores.PUT_IF_ABSENT] if any("puts at the same time" in saw for saw in found) else []
    assert events[-1]["missing"] == lacks
    assert events[-1]["exit"] == (3 if lacks else 0)
    assert list(server.open(bucket).list("")) == []


def test_errors_keep_their_exit_codes(node: Node, seaweedfs: S3Server) -> None:
    node.extra = seaweedfs.environment()
    node.run(seaweedfs.url("no-such-bucket"), expect=4)
    url = seaweedfs.make_bucket(f"doctor-{os.urandom(4).hex()}")
    node.extra["AWS_SECRET_ACCESS_KEY"] = "a-wrong-secret"
    assert "a-wrong-secret" not in node.run(url, expect=6)[1]
    (port,) = free_ports(1)
    node.run(f"s3://bucket?endpoint=http://127.0.0.1:{port}", expect=5)
    node.run("https://host/x", expect=2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_survey_leaves_nothing(node: Node, number: signal.Signals) -> None:
    codes = [_stop_when(node, lambda: any(node.home.glob(".datasync-doctor-*")), number) for _ in range(3)]
    assert 128 + number in codes
    assert list(node.home.iterdir()) == []
    assert leftovers(node) == set()


def test_a_stopped_conformance_run_leaves_nothing_even_when_it_is_told_twice(node: Node) -> None:
    packs = node.home / "repo"
    code = _stop_when(node, lambda: any(packs.glob("probe/*/packs/*/*")), signal.SIGTERM, "repo", again=True)
    assert code == 143
    assert list(node.home.iterdir()) == []


def _stop_when(node: Node, seen: Any, number: signal.Signals, *arguments: str, again: bool = False) -> int:
    process = node.start(*arguments)
    deadline = time.monotonic() + WAIT_SECONDS
    while not seen() and process.poll() is None:
        assert time.monotonic() < deadline, "the command did not begin"
        time.sleep(0.001)
    process.send_signal(number)
    if again:
        time.sleep(0.02)
        process.send_signal(number)
    process.communicate(timeout=WAIT_SECONDS)
    return process.returncode
