"""All of a daemon but its server: settings, mirrors, warms, alerts; started, reloaded and stopped as one.

A reload reads the settings anew; when they do not parse, the old ones stay in force and the error is told. Threads of
tables that did not change go on.
"""

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from datasync.config import Config
from datasync.daemon.added import added_mirrors
from datasync.daemon.alerts import Alerts
from datasync.daemon.events import Bus
from datasync.daemon.journal import LOG, log
from datasync.daemon.metrics import Metrics
from datasync.daemon.mirror import MirrorRunner, MirrorStatus, Outside
from datasync.daemon.scrub import ScrubRunner
from datasync.daemon.ship import ShipRunner
from datasync.daemon.warm import WarmRunner
from datasync.errors import DatasyncError, NotFound
from datasync.service.daemon_settings import Mirror, Server, Settings, read_settings, seconds, share
from datasync.service.endings import CERTIFICATE, GRANT, Ending, certificates, grants, tokens
from datasync.service.heartbeat import HEARTBEAT_SECONDS, note_daemon
from datasync.service.record import recorded

CHECK_SECONDS = 20.0
MIRROR_ALERTS = ("push-failed", "mirror-behind", "deletion-held", "integrity-failure")
AT_START = ("listen", "socket", "group", "client_ca")  # of [daemon]: read when the daemon starts and never again
STOP_SECONDS = 15.0

Load = Callable[[], Config]


class Supervisor:
    """What runs, and what is known of it. *load* reads the configuration; *arguments* say the same to a command."""

    def __init__(self, load: Load, arguments: Sequence[str] = ()) -> None:
        self._load, self.arguments = load, arguments
        self.config = load()
        self.settings = self._read(self.config)
        self.metrics = Metrics()
        self.bus = Bus()
        self.alerts = Alerts(self.settings.alerts, self.metrics, self.settings.control.node or socket.gethostname())
        self.outside = Outside(self.bus, self.metrics, self.alerts)
        self.started = time.time()
        self.on_reload: list[Callable[[Config, Settings], None]] = []
        self.server: Server = self.settings.server  # as it was when the daemon started
        self._mirrors: dict[str, MirrorRunner] = {}
        self._warm: WarmRunner | None = None
        self._scrub: ScrubRunner | None = None
        self._ship: ShipRunner | None = None
        self._lock, self._reloading = threading.Lock(), threading.Lock()
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
            self._begin_scrub()
            self._begin_ship()
        self._checker.start()

    def _begin(self, mirror: Mirror) -> MirrorRunner:
        runner = MirrorRunner(self.config, mirror, self.outside)
        runner.start()
        return runner

    def _begin_warm(self) -> None:
        if self.settings.warms:
            self._warm = WarmRunner(self.config, self.settings.warms, self.outside)
            self._warm.start()

    def _begin_ship(self) -> None:
        if self.config.audit.ship or self.config.audit.watch:
            self._ship = ShipRunner(self.config, self.outside)
            self._ship.start()

    def _begin_scrub(self) -> None:
        if self.settings.scrub.every:
            self._scrub = ScrubRunner(self.config, self.settings.scrub, self.outside, self.look_now)
            self._scrub.start()

    def reload(self) -> list[str]:
        """Read the settings anew and return those that wait for a restart; raise `UsageError` and leave all as it is
        when they do not parse, or name files that can not be read. Recorded.
        """
        with self._reloading, recorded(self.config, "daemon.reload"):
            config = self._load()
            settings = self._read(config)
            for renew in self.on_reload:
                renew(config, settings)
            self._apply(config, settings)
        restart = [f"[daemon] {key}" for key in AT_START if getattr(settings.server, key) != getattr(self.server, key)]
        log("reloaded", mirrors=len(settings.mirrors), warms=len(settings.warms), restart=restart)
        return restart

    def _apply(self, config: Config, settings: Settings) -> None:
        """Stop what changed or is gone, outside of the lock that every answer takes; begin what is new."""
        same, before = _without_tables(config) == _without_tables(self.config), self.settings
        wanted = {item.dataset: item for item in settings.mirrors}
        gone = [item for name, item in self._mirrors.items() if not same or wanted.get(name) != item.mirror]
        rewarm = not same or (settings.warms, settings.control) != (before.warms, before.control)
        rescrub = rewarm or settings.scrub != before.scrub
        stopped = (self._warm if rewarm else None, self._scrub if rescrub else None, None if same else self._ship)
        _stop_all([*gone, *_there(*stopped)])
        with self._lock:
            self.config, self.settings, self.alerts.settings = config, settings, settings.alerts
            kept = {name: item for name, item in self._mirrors.items() if item not in gone}
            self._mirrors = {name: kept.get(name) or self._begin(item) for name, item in wanted.items()}
            if rewarm:
                self._warm = None
                self._begin_warm()
            if rescrub:
                self._scrub = None
                self._begin_scrub()
            if not same:
                self._ship = None
                self._begin_ship()
        for item in gone:
            if item.mirror.dataset not in wanted:
                self._forget(item.mirror.dataset)

    def _forget(self, dataset: str) -> None:
        """What was wrong with a mirror that is gone is nobody's trouble any more."""
        for item in self.alerts.current():
            if item["kind"] in MIRROR_ALERTS and item["subject"] == dataset:
                self.alerts.end(item["kind"], dataset)
        self.metrics.forget("datasync_mirror_", dataset=dataset)

    def stop(self) -> None:
        """End all work, or leave it to the process's end after `STOP_SECONDS`."""
        self._stopping.set()
        self._note("stop")
        with self._reloading:
            _stop_all([*self._mirrors.values(), *_there(self._warm, self._scrub, self._ship)])
        self.alerts.close()

    # what the server asks

    @property
    def stopping(self) -> bool:
        """Tell whether the end has begun: work for clients is given up."""
        return self._stopping.is_set()

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
            try:
                self.check()
            except Exception:  # noqa: BLE001 (the thread outlives what nobody foresaw, and tells it)
                LOG.exception("check failed")
            if time.monotonic() >= beat:
                beat = time.monotonic() + HEARTBEAT_SECONDS
                self._note("heartbeat")

    def _note(self, what: str) -> None:
        try:
            note_daemon(self.config, what)
        except DatasyncError as error:  # mirrors and warms meet the same trouble, and stop by themselves
            self._alert("audit-failing", "log", True, str(error))
        else:
            self.alerts.end("audit-failing", "log")

    def check(self) -> None:
        """Look at ages, disks, and what ends."""
        limit = seconds(self.settings.alerts.behind, "behind")
        with self._lock:
            runners = list(self._mirrors.values())
        for runner in runners:
            behind = runner.behind()
            self._alert("mirror-behind", runner.mirror.dataset, behind > limit, f"not pushed for {behind:.0f} s")
        least = share(self.settings.alerts.disk_free, "disk_free")
        for path in (self.config.state, *self.config.caches):
            self._alert("disk-near-full", str(path), *_nearly_full(path, least))
        with self._lock:
            warm = self._warm
        self._check_ends(CERTIFICATE, certificates(self.settings))
        lent = warm.endings() if warm is not None else ()
        self._check_ends(GRANT, grants(self.config), tokens(self.config), lent)

    def _check_ends(self, kind: str, *sources: Iterable[Ending]) -> None:
        """Tell what ends soon; what was renewed, or is over, is told no more."""
        within = seconds(self.settings.alerts.ending, "ending")
        wrong: dict[str, str] = {}
        for source in sources:
            try:
                wrong |= {item.subject: item.text for item in source if item.soon(within)}
            except DatasyncError as error:
                wrong["settings"] = str(error)
        for item in self.alerts.current():
            if item["kind"] == kind and item["subject"] not in wrong:
                self.alerts.end(kind, item["subject"])
        for subject, text in wrong.items():
            self.alerts.begin(kind, subject, text)

    def _alert(self, kind: str, subject: str, wrong: bool, text: str) -> None:
        if wrong:
            self.alerts.begin(kind, subject, text)
        else:
            self.alerts.end(kind, subject)


Runner = MirrorRunner | WarmRunner | ScrubRunner | ShipRunner


def _there(*runners: Runner | None) -> list[Runner]:
    return [item for item in runners if item is not None]


def _stop_all(runners: Sequence[Runner]) -> None:
    for runner in runners:
        runner.stop()
    deadline = time.monotonic() + STOP_SECONDS
    for runner in runners:
        runner.join(max(0.1, deadline - time.monotonic()))


def _nearly_full(path: Path, least: float) -> tuple[bool, str]:
    """Tell whether less than the share *least* of the disk of *path* is free, or it does not even say."""
    try:
        usage = shutil.disk_usage(path)
    except FileNotFoundError:
        return False, ""
    except OSError as error:
        return True, f"the disk does not answer: {error.strerror}"
    return usage.free < least * usage.total, f"{usage.free:,} of {usage.total:,} bytes are free"


def _without_tables(config: Config) -> Config:
    return replace(config, tables={})


def resident_bytes() -> int:
    """Return this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
