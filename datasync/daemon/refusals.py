"""Refused requests, told to the audit log as a sum: a stranger must not be able to fill a disk with events."""

import threading

from datasync.config import Config
from datasync.daemon.journal import log
from datasync.service.record import recorded

ADDRESSES = 64  # told apart in one sum


class Refusals:
    """Counts until `flush`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, address: str) -> None:
        """Count one."""
        with self._lock:
            key = address if address in self._counts or len(self._counts) < ADDRESSES else "others"
            self._counts[key] = self._counts.get(key, 0) + 1

    def flush(self) -> None:
        """Record the sum since the last call, if there is one."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        worst = max(counts, key=lambda item: counts[item])
        total = sum(counts.values())
        with recorded(self._config, "auth.refused", refused=total, addresses=len(counts), worst=worst) as event:
            event.outcome("denied", f"{total} requests without a known token, certificate or peer")
        log("requests refused", count=total, addresses=len(counts))
