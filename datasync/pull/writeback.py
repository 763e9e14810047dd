"""Write out what a transfer placed while it still fetches, so that the flush at its end is short.

One thread, one flush of the file system at a time. An error of the disk is reported once by the kernel, so it must not
be lost here: it is raised by the next `note`, or by `close`.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from datasync.model.limits import MIB

STEP_BYTES = 128 * MIB  # written since the last flush began


class WriteBack:
    """Calls *flush* for every `STEP_BYTES`; used by one thread."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write-back")
        self._running: Future[None] | None = None
        self._begun_at = 0

    def note(self, written: int) -> None:
        """Say that *written* bytes were placed so far."""
        if self._running is not None and self._running.done():
            running, self._running = self._running, None
            running.result()
        if self._running is None and written - self._begun_at >= STEP_BYTES:
            self._begun_at = written
            self._running = self._thread.submit(self._flush)

    def close(self) -> None:
        """Wait for the flush that runs."""
        self._thread.shutdown()
        if self._running is not None:
            running, self._running = self._running, None
            running.result()
