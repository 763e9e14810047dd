"""The background scrub: one thread that reads the node's cache again, a little at a time, every `[scrub] every`.

Damage is an alert, and what was damaged is warmed again at once. A failure is told and tried with the next round.
"""

import threading
import time
from collections.abc import Callable

from datasync.config import Config
from datasync.daemon.journal import LOG, log
from datasync.daemon.mirror import Outside
from datasync.daemon.timing import wait_for_window
from datasync.errors import DatasyncError, StorageUnavailable
from datasync.service.daemon_settings import Scrub, rate, seconds, window
from datasync.service.scrubber import Throttle, last_round, scrub_all
from datasync.storage.limit import second_of_day

AGAIN_SECONDS = 3600.0  # after a round that could not be made


class ScrubRunner:
    """The thread; *again* is called after damage, so that the views that went are made anew."""

    def __init__(self, config: Config, settings: Scrub, outside: Outside, again: Callable[[], None]) -> None:
        self._config, self._outside = config, outside
        self._every = seconds(settings.every, "every")
        self._window = window(settings.window, "window")
        self._pace = Throttle(rate(settings.rate, "rate"), self._rest)
        self._again = again
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrub", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End with the next read."""
        self._stopping.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout)

    def _rest(self, pause: float) -> None:
        if self._stopping.wait(pause) if pause else self._stopping.is_set():
            raise StorageUnavailable("the daemon stops: the next start scrubs again")

    def _run(self) -> None:
        due = last_round(self._config) + self._every - time.time()
        while not self._stopping.wait(max(due, 0.0) + wait_for_window(self._window, second_of_day())):
            due = self._every if self._round() else AGAIN_SECONDS

    def _round(self) -> bool:
        try:
            done = scrub_all(self._config, self._pace, self._damaged, self._warn)
        except DatasyncError as error:
            if not self._stopping.is_set():
                self._warn(str(error))
                self._outside.metrics.add("datasync_scrub_total", outcome="failed")
            return False
        except Exception:  # noqa: BLE001 (the thread outlives what nobody foresaw, and tells it)
            LOG.exception("scrub failed")
            return False
        outcome = "damaged" if done.damaged or done.aside else "clean"
        self._outside.metrics.add("datasync_scrub_total", outcome=outcome)
        log("scrubbed", views=done.views, damaged=done.damaged, aside=done.aside, unchecked=done.unchecked)
        if not done.damaged:
            for item in self._outside.alerts.current():
                if item["kind"] == "cache-damaged":
                    self._outside.alerts.end("cache-damaged", item["subject"])
        return True

    def _damaged(self, dataset: str, text: str) -> None:
        self._outside.alerts.begin("cache-damaged", dataset, text)
        self._again()

    def _warn(self, text: str) -> None:
        log("scrub warning", text=text)
