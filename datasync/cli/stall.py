"""Tell what a command waits for when nothing has moved for a while: which request to which object, since when.

A thread looks once a second. Nothing has moved while no request was answered and the progress stands still. It speaks
after 20 s and then after twice as long each time; with --json an event `stalled` says the same. It says nothing when no
request is on the way and no progress is shown: then the command works, or waits for a person or a job.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from datasync.cli.output import Output, plural
from datasync.cli.pace import duration
from datasync.service.session import Session
from datasync.storage.meter import MeteredStore, Waiting

LOOK_SECONDS = 1.0
STALL_SECONDS = 20.0


@contextmanager
def told_stalls(session: Session, output: Output) -> Iterator[None]:
    """Watch while the block runs."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(session, output, ended), name="stalls", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(session: Session, output: Output, ended: threading.Event) -> None:
    watch = Watch(time.monotonic())
    while not ended.wait(LOOK_SECONDS):
        store = session.__dict__.get("store")  # not opened by looking
        if not isinstance(store, MeteredStore):
            continue
        waiting = store.waiting()
        stalled = watch.look(time.monotonic(), (store.snapshot(), output.moved), bool(waiting or output.waits_for))
        if stalled is not None:
            _tell(output, stalled, waiting)


class Watch:
    """When something stands still: pure, the caller says what time it is."""

    def __init__(self, now: float) -> None:
        self._seen: object = None
        self._since = now
        self._next = STALL_SECONDS

    def look(self, now: float, state: object, waits: bool) -> float | None:
        """Return the seconds that *state* has stood still when it is time to say so."""
        if state != self._seen or not waits:
            self._seen, self._since, self._next = state, now, STALL_SECONDS
            return None
        still = now - self._since
        if still < self._next:
            return None
        self._next = 2 * still
        return still


def _tell(output: Output, stalled: float, waiting: list[Waiting]) -> None:
    first = waiting[0] if waiting else None
    output.event(
        "stalled",
        seconds=round(stalled, 1),
        request=first.kind if first else None,
        object=first.name if first else None,
        since=first.since if first else None,
        requests=len(waiting),
        waits_for=None if first else output.waits_for,
    )
    if not output.as_json and not output.quiet:
        output.warn(f"nothing has moved for {duration(stalled)}: waiting for {_what(waiting, output.waits_for)}")


def _what(waiting: list[Waiting], otherwise: str) -> str:
    if not waiting:
        return otherwise
    first = waiting[0]
    more = f", and {plural(len(waiting) - 1, 'more request')}" if len(waiting) > 1 else ""
    return f"{first.kind} {first.name} since {time.strftime('%H:%M:%S', time.localtime(first.since))}{more}"
