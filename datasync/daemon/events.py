"""What happens in the daemon, told to whoever listens: progress and states, from any thread.

A listener has a bounded queue of its own; of what a slow one does not take in time the oldest is dropped for it and
counted, so no listener holds a push back, and it learns how things ended. Each event has a number; a listener that lost
some sees the gap.
"""

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from datasync.errors import DatasyncError

QUEUE_EVENTS = 256  # waiting for one listener

Event = dict[str, Any]


class Listener:
    """One queue of events; `wake` is called after each put."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._queue: queue.Queue[Event] = queue.Queue(QUEUE_EVENTS)
        self._wake = wake
        self.dropped = 0

    def put(self, event: Event) -> None:
        """Take *event*, for the oldest one when the queue is full; called by one thread at a time."""
        if self._queue.full():
            with suppress(queue.Empty):  # the listener may have taken it just now
                self._queue.get_nowait()
                self.dropped += 1
        self._queue.put_nowait(event)
        self._wake()

    def take(self) -> list[Event]:
        """Return what has come since the last call."""
        found = []
        while not self._queue.empty():
            found.append(self._queue.get_nowait())
        return found


class Bus:
    """Passes events to all listeners."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def tell(self, type_: str, **fields: Any) -> None:
        """Pass an event on."""
        with self._lock:
            event = {"type": type_, "number": next(self._numbers), **fields}
            for listener in self._listeners:
                listener.put(event)

    @contextmanager
    def listen(self, wake: Callable[[], None]) -> Iterator[Listener]:
        """Yield a listener for what happens from now on."""
        listener = Listener(wake)
        with self._lock:
            self._listeners.append(listener)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners.remove(listener)


def failure_of(error: Exception) -> dict[str, Any]:
    """Return what an event or an answer says of *error*: the nearest class that errors.py has, words, exit code."""
    if not isinstance(error, DatasyncError):
        return {"error": "DatasyncError", "message": f"unexpected {type(error).__name__}", "exit": 1}
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "datasync.errors")
    return {"error": kind.__name__, "message": str(error), "exit": error.exit_code}
