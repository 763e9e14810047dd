"""The background scrub: what a disk changed is found, set aside, told and warmed again; and reading is held back."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from datasync.config import Config, Flags, load_config
from datasync.daemon.alerts import Alerts
from datasync.daemon.events import Bus
from datasync.daemon.metrics import Metrics
from datasync.daemon.mirror import Outside
from datasync.daemon.scrub import ScrubRunner
from datasync.errors import UsageError
from datasync.service.daemon_settings import Alerts as AlertSettings
from datasync.service.daemon_settings import Scrub, read_settings
from datasync.service.scrub import at_once
from datasync.service.scrubber import Throttle, last_round, scrub_all
from tests.support.machine import Machine

WAIT_SECONDS = 60


@pytest.fixture
def node(machine: Machine, source: Path, scratch: Path) -> Config:
    """A node with one view that is ready."""
    made = Machine.make(machine.home, machine.repository, {"DATASYNC_CACHE": str(scratch / "cache")})
    made.must("push", source)
    made.must("warm", "source")
    return load_config(Flags(), made.environment())


def flip(path: Path) -> None:
    """Change a byte as a disk does: neither size nor times tell."""
    times = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"\xff")
    path.chmod(times.st_mode & 0o777)
    os.utime(path, ns=(times.st_mtime_ns, times.st_mtime_ns))


def in_view(config: Config, name: str) -> Path:
    return next(config.caches[0].glob(f"views/source/*-*/{name}"))


def no_damage(dataset: str, text: str) -> None:
    pytest.fail(f"{dataset}: {text}")


def test_a_clean_cache_is_read_once_at_the_pace_that_was_asked_for(node: Config) -> None:
    read: list[int] = []
    warnings: list[str] = []
    done = scrub_all(node, read.append, no_damage, warnings.append)
    assert (done.views, done.damaged, done.aside, done.unchecked) == (1, 0, 0, 0)
    assert sum(read) == sum(path.stat().st_size for path in node.caches[0].glob("objects/??/*"))
    assert warnings == []
    assert last_round(node) > 0


def test_damage_is_told_and_the_view_goes(node: Config) -> None:
    flip(in_view(node, "d1/f1"))
    told: list[str] = []
    done = scrub_all(node, at_once, lambda dataset, text: told.append(f"{dataset}: {text}"), print)
    assert done.damaged == 1
    assert len(told) == 1
    assert told[0].startswith("source: 1 entries of source@")
    assert not list(node.caches[0].glob("views/source/*.READY.json"))
    assert len(list((node.caches[0] / "quarantine").iterdir())) == 1


def test_an_object_that_no_view_shows_is_set_aside_before_a_view_takes_it(node: Config, machine: Machine) -> None:
    """As with reflinks, where objects and views have inodes of their own."""
    victim = in_view(node, "d1/f1")
    inode = victim.stat().st_ino
    (stored,) = [path for path in node.caches[0].glob("objects/??/*") if path.stat().st_ino == inode]
    body, times = stored.read_bytes(), stored.stat()
    stored.unlink()
    stored.write_bytes(body)
    os.utime(stored, ns=(times.st_mtime_ns, times.st_mtime_ns))
    stored.chmod(0o444)
    flip(stored)
    done = scrub_all(node, at_once, no_damage, print)
    assert (done.damaged, done.aside) == (0, 1)
    assert not stored.exists()
    assert victim.read_bytes() == body


def test_a_view_that_can_not_be_checked_is_told_and_the_round_goes_on(node: Config, machine: Machine) -> None:
    os.rename(machine.repository, machine.repository + ".away")
    warnings: list[str] = []
    done = scrub_all(node, at_once, no_damage, warnings.append)
    assert (done.views, done.unchecked) == (1, 1)
    assert len(warnings) == 1
    assert warnings[0].startswith("source@1: not scrubbed: ")


def test_a_node_without_a_cache_has_nothing_to_scrub_and_gets_none(machine: Machine, scratch: Path) -> None:
    config = load_config(Flags(), {**machine.environment(), "DATASYNC_CACHE": str(scratch / "none")})
    assert scrub_all(config, at_once, no_damage, print).views == 0
    assert not (scratch / "none").exists()


def test_the_pace_keeps_the_average() -> None:
    now, slept = [0.0], list[float]()

    def wait(pause: float) -> None:
        slept.append(pause)
        now[0] += pause

    pace = Throttle(1000.0, wait, lambda: now[0])
    for _ in range(5):
        pace(500)
    assert slept == [0.0, 0.5, 0.5, 0.5, 0.5]
    now[0] += 100.0  # what was not used is not saved up
    pace(500)
    pace(500)
    assert slept[5:] == [0.0, 0.5]


def runner(config: Config, every: str, again: Callable[[], None]) -> tuple[ScrubRunner, Alerts]:
    alerts = Alerts(AlertSettings(), Metrics(), "node")
    return ScrubRunner(config, Scrub(every=every), Outside(Bus(), Metrics(), alerts), again), alerts


def test_the_thread_tells_damage_and_has_it_warmed_again(node: Config) -> None:
    flip(in_view(node, "d0/f0"))
    again = threading.Event()
    thread, alerts = runner(node, "1d", again.set)
    thread.start()
    assert again.wait(WAIT_SECONDS)
    thread.stop()
    thread.join(WAIT_SECONDS)
    assert [(item["kind"], item["subject"]) for item in alerts.current()] == [("cache-damaged", "source")]


def test_a_round_that_was_made_is_not_made_again_at_the_next_start(node: Config) -> None:
    scrub_all(node, at_once, no_damage, print)
    before = last_round(node)
    flip(in_view(node, "d0/f0"))
    thread, alerts = runner(node, "1d", threading.Event().set)
    thread.start()
    thread.join(0.5)
    assert last_round(node) == before
    thread.stop()
    thread.join(WAIT_SECONDS)
    assert alerts.current() == []


@pytest.mark.parametrize("table", [{"every": "soon"}, {"rate": "50%"}, {"rate": "0"}, {"window": "22"}, {"evry": "1d"}])
def test_wrong_settings_are_refused(node: Config, table: dict[str, str]) -> None:
    node.tables["scrub"] = table  # type: ignore[index]
    with pytest.raises(UsageError, match="scrub"):
        read_settings(node)


def test_never_is_a_setting(node: Config) -> None:
    node.tables["scrub"] = {"every": ""}  # type: ignore[index]
    assert read_settings(node).scrub.every == ""
