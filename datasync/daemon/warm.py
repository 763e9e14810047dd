"""Keeps subscriptions ready: one thread that looks at each in turn, the most important first, and warms what is new.

A failure is tried again with growing pauses, without end; the view that is ready stays, and is never evicted while a
job holds it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from datasync.config import Config
from datasync.daemon.journal import LOG, log
from datasync.daemon.mirror import FAILURES_TOLD, Outside
from datasync.daemon.timing import pause, wait_for_window
from datasync.errors import DatasyncError, IntegrityError, StorageUnavailable, WrongKey
from datasync.pull.pipeline import Progress
from datasync.service.borrow import Lender
from datasync.service.daemon_settings import Warm, seconds, window
from datasync.service.endings import GRANT, Ending
from datasync.service.references import parse_reference
from datasync.service.warmer import Keeper, Kept
from datasync.storage.brokers import LONGEST_SECONDS
from datasync.storage.limit import second_of_day


@dataclass(frozen=True, slots=True)
class WarmStatus:
    """What a subscription tells of itself; times in Unix seconds."""

    reference: str
    state: str = "waiting"
    seq: int | None = None
    snapshot: str | None = None
    path: str | None = None
    ready_at: float | None = None
    error: str | None = None
    failures: int = 0


LENT_AGAIN_SECONDS = LONGEST_SECONDS - 60.0  # a key that lives as long as any is renewed; another one's end is final


class Subscription:
    """One reference with what is known of it and when it is looked at next."""

    def __init__(self, config: Config, settings: Warm, lender: Lender) -> None:
        self.settings = settings
        self.every = seconds(settings.every, "every")
        self.window = window(settings.window, "window")
        self.status = WarmStatus(settings.dataset)
        self.next_look = 0.0
        self.lender = lender
        self.name = parse_reference(settings.dataset).name
        self._lent: tuple[int, float] | None = None  # when the lent key ends (ms), and when that was first seen
        self.keeper = Keeper(config, settings.dataset, settings.subset, lender, self._warn)

    def _warn(self, text: str) -> None:
        log("warm warning", reference=self.settings.dataset, text=text)

    def ending(self) -> Ending | None:
        """Return the end of the key that was lent last, unless it is renewed until somebody ends that."""
        until, now = self.lender.until(self.name), time.time()
        if until is not None and (self._lent is None or self._lent[0] != until):
            self._lent = until, now
        if self._lent is None:
            return None
        end, seen = self._lent[0] / 1000, self._lent[1]
        life = end - seen
        return Ending(GRANT, f"key lent for {self.name}", end - now, life) if life < LENT_AGAIN_SECONDS else None


class WarmRunner:
    """The thread of all subscriptions."""

    def __init__(self, config: Config, settings: tuple[Warm, ...], outside: Outside) -> None:
        ordered = sorted(settings, key=lambda item: -item.priority)
        lender = Lender(config)
        self._subscriptions = [Subscription(config, item, lender) for item in ordered]
        self._outside = outside
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="warm", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon; a warm in between is abandoned and goes on with the next start."""
        self._stopping = True
        self._wake.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout)

    def status(self) -> list[WarmStatus]:
        """Return what is known of each."""
        return [item.status for item in self._subscriptions]

    def endings(self) -> list[Ending]:
        """Return the ends of what was lent to this node."""
        found = {item.name: item.ending() for item in self._subscriptions}
        return [item for item in found.values() if item is not None]

    def look_now(self) -> None:
        """Look at all at once."""
        for item in self._subscriptions:
            item.next_look = 0.0
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            now = time.monotonic()
            due = [item for item in self._subscriptions if item.next_look <= now]
            for item in due:
                if not self._stopping:
                    self._step(item)
            soonest = min((item.next_look for item in self._subscriptions), default=now + 3600)
            self._wake.wait(max(0.05, soonest - time.monotonic()))
            self._wake.clear()
        for item in self._subscriptions:
            item.keeper.close()

    def _step(self, item: Subscription) -> None:
        closed = wait_for_window(item.window, second_of_day())
        if closed:
            item.next_look = time.monotonic() + closed
            return
        try:
            self._done(item, item.keeper.step(self._reporter(item)))
        except DatasyncError as error:
            self._failed(item, str(error), error)
        except Exception as error:  # noqa: BLE001 (the thread outlives what nobody foresaw, and tells it)
            LOG.exception("warm failed", extra={"fields": {"reference": item.settings.dataset}})
            self._failed(item, f"unexpected {type(error).__name__}: {error}", error)

    def _reporter(self, item: Subscription) -> Callable[[Progress], None]:
        def report(progress: Progress) -> None:
            if self._stopping:
                raise StorageUnavailable("the daemon stops: the next start goes on")
            item.status = replace(item.status, state="warming")
            self._outside.bus.tell("warm", reference=item.settings.dataset, **_progress(progress))

        return report

    def _done(self, item: Subscription, kept: Kept) -> None:
        new = kept.seq != item.status.seq
        item.status = WarmStatus(
            item.settings.dataset, "ready", kept.seq, kept.snapshot.hex(), str(kept.path), time.time()
        )
        item.next_look = time.monotonic() + item.every
        self._outside.metrics.set("datasync_warm_seq", kept.seq, dataset=kept.dataset)
        self._outside.alerts.end("warm-failed", item.settings.dataset)
        if kept.fetched_bytes is not None:
            self._outside.metrics.add("datasync_warm_total", dataset=kept.dataset, outcome="warmed")
            self._outside.metrics.add("datasync_warm_fetched_bytes_total", kept.fetched_bytes, dataset=kept.dataset)
        if new:
            log("warm ready", reference=item.settings.dataset, seq=kept.seq, fetched_bytes=kept.fetched_bytes or 0)
            self._outside.bus.tell("ready", reference=item.settings.dataset, seq=kept.seq, path=str(kept.path))

    def _failed(self, item: Subscription, why: str, error: Exception) -> None:
        if self._stopping:
            return
        if isinstance(error, WrongKey):
            item.lender.forget(item.name)  # the epoch moved on, or the time is over: ask anew
        failures = item.status.failures + 1
        item.status = replace(item.status, state="failing", error=why, failures=failures)
        item.next_look = time.monotonic() + pause(failures)
        self._outside.metrics.add("datasync_warm_total", dataset=item.name, outcome="failed")
        log("warm failed", reference=item.settings.dataset, reason=why, failures=failures)
        if failures == FAILURES_TOLD:
            self._outside.alerts.begin("warm-failed", item.settings.dataset, why)
        if isinstance(error, IntegrityError):
            self._outside.alerts.begin("integrity-failure", item.settings.dataset, why)


def _progress(progress: Progress) -> dict[str, int]:
    return {
        "files": progress.files,
        "total_files": progress.total_files,
        "bytes": progress.bytes,
        "total_bytes": progress.total_bytes,
        "fetched_bytes": progress.fetched_bytes,
    }
