"""A mirror: one thread that pushes one folder whenever it has changed, for as long as the daemon lives.

States: `waiting` (nothing to do, or not yet), `pushing`, `held` (a person has to look: the source vanished, lost too
much, or is another tree), `failing` (tried again with growing pauses, without end). What is known here is only for
status: after a crash the next push compares the tree with the record and goes on.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasync.config import Config
from datasync.daemon.alerts import Alerts
from datasync.daemon.events import Bus, failure_of
from datasync.daemon.journal import LOG, log
from datasync.daemon.metrics import Metrics
from datasync.daemon.timing import Pace, Seen, due_in
from datasync.daemon.watch import OVERFLOW, Watcher
from datasync.errors import DatasyncError, IntegrityError, NotFound, StorageUnavailable
from datasync.push.guard import SourceChanged, SourceLost
from datasync.push.options import Progress
from datasync.service.daemon_settings import Mirror, seconds, window
from datasync.service.mirror import Allowed, mirror_once
from datasync.service.push import Pushed
from datasync.storage.limit import second_of_day

FAILURES_TOLD = 3  # tries in vain before an alert

Push = Callable[[Config, Mirror, Allowed, Callable[[Progress], None], Callable[[str], None]], Pushed]


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """What a mirror tells of itself; times in Unix seconds, None where there is none."""

    dataset: str
    path: str
    state: str = "waiting"
    seq: int | None = None
    snapshot: str | None = None
    pushed_at: float | None = None
    behind_since: float | None = None
    degraded: str | None = None
    held: str | None = None
    error: str | None = None
    next_try_in: float | None = None
    pushes: int = 0
    skipped: int = 0
    unsettled: int = 0


@dataclass(frozen=True, slots=True)
class Outside:
    """Whom a mirror tells."""

    bus: Bus
    metrics: Metrics
    alerts: Alerts


class MirrorRunner:
    """The thread of one mirror."""

    def __init__(self, config: Config, mirror: Mirror, outside: Outside, push: Push = mirror_once) -> None:
        self.mirror = mirror
        self._config, self._outside, self._push = config, outside, push
        name = f"[[mirror]] {mirror.dataset}"
        self._pace = Pace(
            seconds(mirror.debounce, name),
            seconds(mirror.rescan, name),
            seconds(mirror.scan, name),
            window(mirror.window, name),
        )
        self._seen = Seen()
        self._status = MirrorStatus(mirror.dataset, mirror.path)
        self._allowed = Allowed()
        self._lock = threading.Condition()
        self._stopping = False
        self._watcher: Watcher | None = None
        self._watch_again = 0.0  # when a folder that could not be watched is tried again
        self._runs = 0  # that have begun
        self._thread = threading.Thread(target=self._run, name=f"mirror-{mirror.dataset}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the request on the way; a push in between is abandoned and goes on with the next start."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout)

    def push_now(self, *, confirm: bool) -> int:
        """Push all that is there now, and return the number of that run; with *confirm* the loss that is held back is
        meant.
        """
        with self._lock:
            self._seen = replace(self._seen, asked=True)
            self._allowed = Allowed(loss=confirm or self._allowed.loss, unsettled=True)
            self._lock.notify_all()
            return self._runs + 1

    def status(self) -> MirrorStatus:
        """Return what is known now."""
        with self._lock:
            wait = self._due_in()
            return replace(self._status, next_try_in=None if self._status.state == "pushing" else round(wait, 1))

    def behind(self) -> float:
        """Return the age of the oldest change that is not pushed, in seconds."""
        since = self.status().behind_since
        return max(0.0, time.time() - since) if since is not None else 0.0

    # hints

    def _hint(self) -> None:
        now = time.monotonic()
        with self._lock:
            first = self._seen.first_hint is None
            self._seen = replace(self._seen, first_hint=now if first else self._seen.first_hint, last_hint=now)
            if self._status.behind_since is None:
                self._status = replace(self._status, behind_since=time.time())
            if first:
                self._lock.notify_all()

    def _trouble(self, reason: str) -> None:
        with self._lock:
            told = self._status.degraded == reason
            self._seen = replace(self._seen, scanning=True)
            self._status = replace(self._status, degraded=reason)
        if not told:
            log("mirror degraded", dataset=self.mirror.dataset, reason=reason)
            self._outside.bus.tell("degraded", dataset=self.mirror.dataset, reason=reason)
        self._outside.metrics.set("datasync_mirror_degraded", 1, dataset=self.mirror.dataset)
        self._hint()

    def _watch(self) -> None:
        """Watch the folder that is there now, anew when it is another one or events could not be relied on."""
        path = Path(self.mirror.path)
        if self._watcher is not None and self._watcher.still_there(path):
            lasting = self._watcher.why_not not in (None, OVERFLOW)
            if self._watcher.why_not is None or (lasting and time.monotonic() < self._watch_again):
                return
        if self._watcher is not None:
            self._watcher.stop()
        self._watch_again = time.monotonic() + self._pace.rescan
        self._watcher = watcher = Watcher(path, self._hint, self._trouble)
        with self._lock:  # a complaint sets `why_not` first, so none is overwritten here
            healthy, before = watcher.why_not is None, self._status.degraded
            if healthy:
                self._seen = replace(self._seen, scanning=False)
                self._status = replace(self._status, degraded=None)
        if healthy:
            self._outside.metrics.set("datasync_mirror_degraded", 0, dataset=self.mirror.dataset)
            if before is not None:
                log("mirror healthy", dataset=self.mirror.dataset)
                self._outside.bus.tell("healthy", dataset=self.mirror.dataset)

    # the thread

    def _due_in(self) -> float:
        return due_in(self._pace, self._seen, time.monotonic(), second_of_day())

    def _run(self) -> None:
        while self._wait():
            self._begin()
            error: Exception | None = None
            try:
                error = self._once()
            except Exception as unforeseen:  # noqa: BLE001 (the thread outlives it, and tells it)
                LOG.exception("mirror failed", extra={"fields": {"dataset": self.mirror.dataset}})
                error = unforeseen
                self._failed(f"unexpected {type(error).__name__}: {error}")
            self._ran(error)
        if self._watcher is not None:
            self._watcher.stop()

    def _wait(self) -> bool:
        """Wait until a push is due; False at the end."""
        with self._lock:
            while not self._stopping:
                wait = self._due_in()
                if wait <= 0:
                    return True
                self._lock.wait(wait)
        return False

    def _begin(self) -> None:
        self._watch()  # before the scan: what changes after a look is seen
        with self._lock:
            self._seen = replace(self._seen, first_hint=None, last_hint=None, last_run=time.monotonic(), asked=False)
            self._status = replace(self._status, state="pushing")
            self._runs += 1

    def _once(self) -> DatasyncError | None:
        """Push; return what went wrong."""
        with self._lock:
            allowed, self._allowed = self._allowed, Allowed()
            since, started = self._status.behind_since, time.time()
        try:
            done = self._push(self._config, self.mirror, allowed, self._report, self._warn)
        except DatasyncError as error:
            self._stopped_by(error)
            return error
        self._done(done, since, started)
        return None

    def _stopped_by(self, error: DatasyncError) -> None:
        vanished = isinstance(error, NotFound) and not Path(self.mirror.path).is_dir()
        if vanished or isinstance(error, SourceLost | SourceChanged):
            self._held(str(error))
        elif not self._stopping:
            if isinstance(error, IntegrityError):
                self._outside.alerts.begin("integrity-failure", self.mirror.dataset, str(error))
            self._failed(str(error))

    def _ran(self, error: Exception | None) -> None:
        """Tell whoever waits for this run how it ended."""
        failure = failure_of(error) if error is not None else {}
        self._outside.bus.tell("ran", dataset=self.mirror.dataset, run=self._runs, **failure)

    def _report(self, progress: Progress) -> None:
        if self._stopping:
            raise StorageUnavailable("the daemon stops: the next start goes on")
        self._outside.bus.tell(
            "push",
            dataset=self.mirror.dataset,
            entries=progress.entries,
            read_bytes=progress.read_bytes,
            sent_bytes=progress.sent_bytes,
        )

    def _warn(self, text: str) -> None:
        log("mirror warning", dataset=self.mirror.dataset, text=text)

    # how it ended

    def _done(self, done: Pushed, since: float | None, started: float) -> None:
        result, snapshot, name = done.result, done.result.snapshot, self.mirror.dataset
        with self._lock:
            waits = self._seen.first_hint is not None
            if result.unsettled:
                now = time.monotonic()
                self._seen = replace(self._seen, first_hint=self._seen.first_hint or now, last_hint=now)
            self._seen = replace(self._seen, failures=0, scanning=self._status.degraded is not None)
            behind = started if waits and not result.unsettled else since or started
            self._status = replace(
                self._status,
                state="waiting",
                seq=snapshot.body.seq if snapshot else None,
                snapshot=snapshot.id.hex() if snapshot else None,
                pushed_at=time.time(),
                behind_since=behind if waits or result.unsettled else None,
                held=None,
                error=None,
                pushes=self._status.pushes + int(result.created),
                skipped=len(result.skipped),
                unsettled=result.unsettled,
            )
        if snapshot is not None:
            self._outside.metrics.set("datasync_mirror_seq", snapshot.body.seq, dataset=name)
        self._outside.metrics.set("datasync_mirror_held", 0, dataset=name)
        self._count("created" if result.created else "unchanged", result.seconds)
        self._outside.metrics.add("datasync_push_sent_bytes_total", result.progress.sent_bytes, dataset=name)
        self._outside.alerts.end("deletion-held", name)
        self._outside.alerts.end("push-failed", name)
        self._tell("pushed", created=result.created, seq=self._status.seq, skipped=len(result.skipped))
        if self._status.degraded == OVERFLOW and self._watcher is not None:
            self._watcher.why_not = self._watcher.why_not or OVERFLOW  # watch anew with the next run
            with self._lock:
                self._seen = replace(self._seen, first_hint=time.monotonic(), last_hint=time.monotonic())

    def _held(self, why: str) -> None:
        with self._lock:
            told = self._status.held == why
            self._seen = replace(self._seen, failures=0, scanning=True)
            since = self._status.behind_since or time.time()
            self._status = replace(self._status, state="held", held=why, error=None, behind_since=since)
        self._outside.metrics.set("datasync_mirror_held", 1, dataset=self.mirror.dataset)
        if not told:
            self._count("held", 0)
            self._tell("held", reason=why)
            self._outside.alerts.begin("deletion-held", self.mirror.dataset, why)

    def _failed(self, why: str) -> None:
        with self._lock:
            failures = self._seen.failures + 1
            self._seen = replace(self._seen, failures=failures, failed_at=time.monotonic())
            since = self._status.behind_since or time.time()
            self._status = replace(self._status, state="failing", error=why, behind_since=since)
        self._count("failed", 0)
        self._tell("failed", reason=why, failures=failures)
        if failures == FAILURES_TOLD:
            self._outside.alerts.begin("push-failed", self.mirror.dataset, why)

    def _count(self, outcome: str, took: float) -> None:
        self._outside.metrics.add("datasync_push_total", dataset=self.mirror.dataset, outcome=outcome)
        self._outside.metrics.add("datasync_push_seconds_total", took, dataset=self.mirror.dataset)

    def _tell(self, what: str, **fields: Any) -> None:
        log(f"mirror {what}", dataset=self.mirror.dataset, **fields)
        self._outside.bus.tell(what, dataset=self.mirror.dataset, **fields)
