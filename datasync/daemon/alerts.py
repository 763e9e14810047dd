"""Alerts: a webhook and a program are told when something begins to be wrong, and when it ends.

One alert per kind and subject until it ends, so a broken network makes one call, not thousands. Sending happens on a
thread of its own and is tried three times; what can not be sent is logged and counted. The webhook is https (http to
this machine alone), follows no redirect and takes a bounded answer. The program gets JSON on stdin and no shell.
"""

import json
import logging
import queue
import subprocess
import threading
import time
from collections.abc import Callable

from datasync.crypto.kms.http import Client, HttpLimits, Request, parse_endpoint
from datasync.daemon.journal import log
from datasync.daemon.metrics import Metrics
from datasync.errors import DatasyncError, StorageUnavailable
from datasync.service import daemon_settings

TRIES = 3
EXEC_SECONDS = 30
WAITING = 1000  # alerts not sent yet; more means that nobody takes any

Message = dict[str, str | float]


class Alerts:
    """What is wrong now, and the thread that tells."""

    def __init__(
        self,
        settings: daemon_settings.Alerts,
        metrics: Metrics,
        node: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings, self._metrics, self._node, self._sleep = settings, metrics, node, sleep
        self._open: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        self._queue: queue.Queue[Message | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        self._thread.start()

    def begin(self, kind: str, subject: str, text: str) -> None:
        """Tell that *subject* has this trouble, unless that was told."""
        with self._lock:
            if (kind, subject) in self._open:
                return
            self._open[kind, subject] = text
        self._put(kind, subject, text, "begin")

    def end(self, kind: str, subject: str) -> None:
        """Tell that the trouble is over, if it was told."""
        with self._lock:
            text = self._open.pop((kind, subject), None)
        if text is not None:
            self._put(kind, subject, text, "end")

    def current(self) -> list[dict[str, str]]:
        """Return what is wrong now."""
        with self._lock:
            return [{"kind": kind, "subject": subject, "text": text} for (kind, subject), text in self._open.items()]

    def close(self) -> None:
        """Send what waits, then end."""
        self._queue.put(None)
        self._thread.join(5)

    def _put(self, kind: str, subject: str, text: str, state: str) -> None:
        message: Message = {"kind": kind, "subject": subject, "text": text, "state": state, "node": self._node}
        log("alert", level=logging.WARNING if state == "begin" else logging.INFO, **message)
        try:
            self._queue.put_nowait(message | {"time": time.time()})
        except queue.Full:
            self._metrics.add("datasync_alerts_total", kind=kind, outcome="dropped")

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            if self.settings.webhook:
                self._try(message, self._post)
            if self.settings.exec:
                self._try(message, self._execute)

    def _try(self, message: Message, send: Callable[[bytes], None]) -> None:
        body, kind = json.dumps(message).encode(), str(message["kind"])
        for number in range(TRIES):
            try:
                send(body)
            except DatasyncError as error:
                log("alert not sent", level=logging.ERROR, kind=kind, error=str(error))
                self._sleep(2**number)
            else:
                self._metrics.add("datasync_alerts_total", kind=kind, outcome="sent")
                return
        self._metrics.add("datasync_alerts_total", kind=kind, outcome="failed")

    def _post(self, body: bytes) -> None:
        endpoint = parse_endpoint(self.settings.webhook, "[alerts] webhook")
        headers = {"Content-Type": "application/json"}
        limits = HttpLimits(total_seconds=10)
        answer = Client("webhook", endpoint, limits).send(Request("POST", endpoint.path or "/", headers, body))
        if not 200 <= answer.status < 300:
            raise StorageUnavailable(f"webhook: expected a status of 2xx, found {answer.status}")

    def _execute(self, body: bytes) -> None:
        try:
            done = subprocess.run(
                list(self.settings.exec), input=body, timeout=EXEC_SECONDS, capture_output=True, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StorageUnavailable(f"alert program {self.settings.exec[0]}: {type(error).__name__}") from None
        if done.returncode:
            raise StorageUnavailable(f"alert program {self.settings.exec[0]}: ended with {done.returncode}")
