"""A node's log leaves it while it lives, and a control side that watches misses what was cut."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from datasync.config import Config, Flags, load_config
from datasync.daemon import ship as module
from datasync.daemon.alerts import Alerts
from datasync.daemon.events import Bus
from datasync.daemon.metrics import Metrics
from datasync.daemon.mirror import Outside
from datasync.daemon.ship import ShipRunner
from datasync.service.daemon_settings import Alerts as AlertSettings
from tests.support.machine import Machine

PATIENCE_SECONDS = 60


@pytest.fixture
def config(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(module, "SHIP_SECONDS", 0.1)
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.1)
    return load_config(Flags(), machine.environment())


def wanting(config: Config, *, ship: bool = False, watch: bool = False) -> tuple[ShipRunner, Alerts]:
    alerts = Alerts(AlertSettings(), Metrics(), "node")
    wanted = replace(config, audit=replace(config.audit, ship=ship, watch=watch))
    return ShipRunner(wanted, Outside(Bus(), Metrics(), alerts)), alerts


def wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def parcels(machine: Machine) -> list[Path]:
    return sorted(Path(machine.repository).glob("audit/*/lines/*"), reverse=True)


def end(runner: ShipRunner) -> None:
    runner.stop()
    runner.join(PATIENCE_SECONDS)


def test_a_log_is_shipped_again_and_again(config: Config, machine: Machine) -> None:
    runner, alerts = wanting(config, ship=True)
    runner.start()
    wait_until(lambda: len(parcels(machine)) >= 2)
    end(runner)
    assert alerts.current() == []
    machine.must("audit", "verify", "--remote")


def test_what_was_cut_is_an_alert_until_it_is_back(config: Config, machine: Machine) -> None:
    machine.must("audit", "ship")
    machine.must("audit", "ship")
    runner, alerts = wanting(config, watch=True)
    runner.start()
    wait_until(lambda: any(Path(config.evidence.parent / "audit" / "seen").glob("*-*")))
    newest = parcels(machine)[-1]
    kept = newest.read_bytes()
    newest.unlink()
    wait_until(lambda: bool(alerts.current()))
    (alert,) = alerts.current()
    assert (alert["kind"], alert["subject"]) == ("integrity-failure", "audit")
    assert "the tail was cut" in alert["text"]
    newest.write_bytes(kept)
    wait_until(lambda: not alerts.current())
    end(runner)


def test_a_ship_that_fails_is_an_alert(config: Config, machine: Machine) -> None:
    Path(machine.repository).rename(machine.repository + ".away")
    runner, alerts = wanting(config, ship=True)
    runner.start()
    wait_until(lambda: bool(alerts.current()))
    end(runner)
    assert [(item["kind"], item["subject"]) for item in alerts.current()] == [("audit-failing", "ship")]


def test_nothing_is_sent_that_nobody_asked_for(config: Config, machine: Machine) -> None:
    runner, alerts = wanting(config)
    runner.start()
    runner.join(0.5)
    end(runner)
    assert parcels(machine) == []
    assert alerts.current() == []
