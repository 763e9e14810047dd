"""All of a daemon but its server: settings, mirrors, warms, alerts; started, reloaded and stopped as one.

A reload reads the settings anew; when they do not parse, the old ones stay in force and the error is told. Threads of
tables that did not change go on.
"""

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from datasync.config import Config
from datasync.daemon.added import added_mirrors
from datasync.daemon.alerts import Alerts
from datasync.daemon.events import Bus
from datasync.daemon.journal import log
from datasync.daemon.metrics import Metrics
from datasync.daemon.mirror import MirrorRunner, MirrorStatus, Outside
from datasync.daemon.warm import WarmRunner
from datasync.errors import DatasyncError, NotFound
from datasync.service.certificates import ends_in
from datasync.service.daemon_settings import Mirror, Settings, read_settings, seconds, share
from datasync.service.heartbeat import HEARTBEAT_SECONDS, note_daemon

CHECK_SECONDS = 20.0
STOP_SECONDS = 15.0

Load = Callable[[], Config]


class Supervisor:
    """What runs, and what is known of it. *load* reads the configuration."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.config = load()
        self.settings = self._read(self.config)
        self.metrics = Metrics()
        self.bus = Bus()
        self.alerts = Alerts(self.settings.alerts, self.metrics, self.settings.control.node or socket.gethostname())
        self.outside = Outside(self.bus, self.metrics, self.alerts)
        self.started = time.time()
        self.on_reload: list[Callable[[], None]] = []
        self._mirrors: dict[str, MirrorRunner] = {}
        self._warm: WarmRunner | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._checker = threading.Thread(target=self._check, name="check", daemon=True)
        self.metrics.set("datasync_start_time_seconds", self.started)

    @staticmethod
    def _read(config: Config) -> Settings:
        return read_settings(config, added_mirrors(config))

    def start(self) -> None:
        """Begin all work; recorded, and nothing begins that can not be."""
        note_daemon(self.config, "start")
        with self._lock:
            self._mirrors = {item.dataset: self._begin(item) for item in self.settings.mirrors}
            self._begin_warm()
        self._checker.start()

    def _begin(self, mirror: Mirror) -> MirrorRunner:
        runner = MirrorRunner(self.config, mirror, self.outside)
        runner.start()
        return runner

    def _begin_warm(self) -> None:
        if self.settings.warms:
            self._warm = WarmRunner(self.config, self.settings.warms, self.outside)
            self._warm.start()

    def reload(self) -> None:
        """Read the settings anew; raise `UsageError` and leave all as it is when they do not parse."""
        config = self._load()
        settings = self._read(config)
        with self._lock:
            same = _without_tables(config) == _without_tables(self.config)
            before, self.config = self.settings, config
            self.settings = settings
            self.alerts.settings = settings.alerts
            wanted = {item.dataset: item for item in settings.mirrors}
            gone = [r for name, r in self._mirrors.items() if not same or wanted.get(name) != r.mirror]
            _stop_all(gone)
            kept = {name: runner for name, runner in self._mirrors.items() if runner not in gone}
            self._mirrors = {name: kept.get(name) or self._begin(item) for name, item in wanted.items()}
            if not same or (settings.warms, settings.control) != (before.warms, before.control):
                _stop_all([self._warm] if self._warm else [])
                self._warm = None
                self._begin_warm()
        note_daemon(config, "reload")
        for tell in self.on_reload:
            tell()
        log("reloaded", mirrors=len(self._mirrors), warms=len(settings.warms))

    def stop(self) -> None:
        """End all work, or leave it to the process's end after `STOP_SECONDS`."""
        self._stopping.set()
        self._note("stop")
        with self._lock:
            _stop_all([*self._mirrors.values(), *([self._warm] if self._warm else [])])
        self.alerts.close()

    # what the server asks

    def mirror(self, dataset: str) -> MirrorRunner:
        """Return the mirror of *dataset*; raise `NotFound`."""
        with self._lock:
            found = self._mirrors.get(dataset)
            names = ", ".join(sorted(self._mirrors)) or "none"
        if found is None:
            raise NotFound(f"mirror {dataset!r}: this daemon has no such mirror; it has {names}")
        return found

    def mirrors(self) -> list[MirrorStatus]:
        """Return the state of every mirror."""
        with self._lock:
            runners = list(self._mirrors.values())
        return [runner.status() for runner in runners]

    def warms(self) -> list[dict[str, Any]]:
        """Return the state of every subscription."""
        with self._lock:
            runner = self._warm
        return [msgspec.to_builtins(item) for item in runner.status()] if runner is not None else []

    def look_now(self) -> None:
        """Look for new snapshots at once."""
        with self._lock:
            if self._warm is not None:
                self._warm.look_now()

    def status(self) -> dict[str, Any]:
        """Return everything a person wants to see first."""
        alerts, mirrors = self.alerts.current(), self.mirrors()
        troubled = bool(alerts) or any(item.state in ("held", "failing") or item.degraded for item in mirrors)
        return {
            "state": "degraded" if troubled else "healthy",
            "pid": os.getpid(),
            "started": self.started,
            "repository": self.config.repository,
            "caches": [str(path) for path in self.config.caches],
            "mirrors": [msgspec.to_builtins(item) for item in mirrors],
            "warms": self.warms(),
            "alerts": alerts,
        }

    def measured(self) -> dict[str, float]:
        """Return gauges that are measured when they are asked for, and renew those of mirrors."""
        with self._lock:
            runners = list(self._mirrors.values())
        for runner in runners:
            self.metrics.set("datasync_mirror_behind_seconds", runner.behind(), dataset=runner.mirror.dataset)
        return {"datasync_resident_memory_bytes": float(resident_bytes())}

    # what no event tells

    def _check(self) -> None:
        beat = time.monotonic() + HEARTBEAT_SECONDS
        while not self._stopping.wait(CHECK_SECONDS):
            self.check()
            if time.monotonic() >= beat:
                beat = time.monotonic() + HEARTBEAT_SECONDS
                self._note("heartbeat")

    def _note(self, what: str) -> None:
        try:
            note_daemon(self.config, what)
        except DatasyncError as error:  # mirrors and warms meet the same trouble, and stop by themselves
            self._alert("audit-failing", "log", True, str(error))

    def check(self) -> None:
        """Look at ages, disks and certificates."""
        limit = seconds(self.settings.alerts.behind, "behind")
        with self._lock:
            runners = list(self._mirrors.values())
        for runner in runners:
            behind = runner.behind()
            self._alert("mirror-behind", runner.mirror.dataset, behind > limit, f"not pushed for {behind:.0f} s")
        least = share(self.settings.alerts.disk_free, "disk_free")
        for path in (self.config.state, *self.config.caches):
            if path.is_dir():
                usage = shutil.disk_usage(path)
                text = f"{usage.free:,} of {usage.total:,} bytes are free"
                self._alert("disk-near-full", str(path), usage.free < least * usage.total, text)
        self._check_certificate()

    def _check_certificate(self) -> None:
        path = self.settings.server.certificate
        if path:
            left = ends_in(Path(path))
            soon = left < seconds(self.settings.alerts.ending, "ending")
            self._alert("certificate-ending", path, soon, f"ends in {left / 86400:.1f} days")

    def _alert(self, kind: str, subject: str, wrong: bool, text: str) -> None:
        if wrong:
            self.alerts.begin(kind, subject, text)
        else:
            self.alerts.end(kind, subject)


def _stop_all(runners: Sequence[MirrorRunner | WarmRunner]) -> None:
    for runner in runners:
        runner.stop()
    deadline = time.monotonic() + STOP_SECONDS
    for runner in runners:
        runner.join(max(0.1, deadline - time.monotonic()))


def _without_tables(config: Config) -> Config:
    return replace(config, tables={})


def resident_bytes() -> int:
    """Return this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
