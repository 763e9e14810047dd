"""The daemon's own life is in the audit log, and a heartbeat makes silence visible."""

import json
import time
from pathlib import Path

import pytest

from datasync.config import Config, Flags, load_config
from datasync.daemon import supervisor as module
from datasync.daemon.supervisor import Supervisor
from datasync.errors import DatasyncError

PATIENCE_SECONDS = 30


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(Flags(), {"HOME": str(tmp_path)})


def actions(config: Config) -> list[str]:
    """Return what the log of this machine holds, oldest first."""
    segments = sorted((config.evidence.parent / "audit").rglob("*.ndjson"))
    events = [json.loads(line) for path in segments for line in path.read_text().splitlines() if '"action"' in line]
    return [event["action"] for event in events if "action" in event]


def test_start_heartbeats_reload_and_stop_are_recorded(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    running = Supervisor(lambda: config)
    running.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "daemon.heartbeat" not in actions(config) and time.monotonic() < deadline:
        time.sleep(0.05)
    running.reload()
    running.stop()
    found = actions(config)
    assert found[0] == "daemon.start"
    assert {"daemon.heartbeat", "daemon.reload", "daemon.stop"} <= set(found)


def test_a_daemon_that_can_not_record_does_not_begin(config: Config) -> None:
    root = config.evidence.parent / "audit"
    root.parent.mkdir(parents=True)
    root.write_text("a file where the log belongs")
    with pytest.raises(DatasyncError, match="audit"):
        Supervisor(lambda: config).start()
