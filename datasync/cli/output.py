"""What a command prints: data on stdout, messages on stderr, NDJSON events with --json; progress as one line for each
stage on a terminal, and as a plain line now and then where stderr is a file.

Control characters of names from outside never reach the terminal.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

BAR_SECONDS = 0.2
EVENT_SECONDS = 1.0
PLAIN_SECONDS = 30.0  # a log of a long push stays short
PLAIN_COLUMNS = 200


class Output:
    """One command's output."""

    def __init__(self, *, as_json: bool, quiet: bool, verbose: int) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose
        self._drawn = False
        self._stage = ""
        self._bar = sys.stderr.isatty() and not as_json and not quiet
        self._next = 0.0 if self._bar or as_json else time.monotonic() + PLAIN_SECONDS
        self._lock = threading.RLock()  # the watchdog prints too
        self.moved: object = None
        """Changes whenever the work has got on; None while no progress is shown."""
        self.waits_for = ""
        """What the work waits for where that is no request to the store."""

    @property
    def shows_progress(self) -> bool:
        """True where somebody sees it while it happens."""
        return self._bar or self.as_json

    def line(self, text: str = "") -> None:
        """Print data, unless --json prints it as events."""
        self._end()
        if not self.as_json:
            print(text)

    def note(self, text: str) -> None:
        """Tell a person something; nothing with --quiet."""
        self._end()
        if not self.quiet and not self.as_json:
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        """Tell a person something that matters, --quiet or not."""
        with self._lock:
            self._clear()
            print(f"datasync: {text}", file=sys.stderr)

    def event(self, type_: str, /, **fields: Any) -> None:
        """Print one NDJSON event, with --json only."""
        if self.as_json:
            with self._lock:
                print(json.dumps({"type": type_, **fields}), flush=True)

    def progress(self, *parts: str, stage: str = "", waits_for: str = "", **fields: Any) -> None:
        """Show how far the work is: *parts* for people, the most important first; *fields* for programs."""
        self.waits_for = waits_for
        self.moved = (
            stage,
            {name: value for name, value in fields.items() if not name.endswith(("_second", "_seconds"))},
        )
        now = time.monotonic()
        if now < self._next and (stage == self._stage or not self._bar):
            return
        self._next = now + (EVENT_SECONDS if self.as_json else BAR_SECONDS if self._bar else PLAIN_SECONDS)
        if self.as_json:
            self.event("progress", **({"stage": stage} if stage else {}), **fields)
        elif self._bar:
            self._draw(stage, parts)
        elif not self.quiet:
            print(fit(stage, parts, PLAIN_COLUMNS), file=sys.stderr, flush=True)

    def _draw(self, stage: str, parts: Sequence[str]) -> None:
        width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
        with self._lock:
            if self._drawn and stage != self._stage:
                sys.stderr.write("\n")  # the line of the stage that is over stays
            sys.stderr.write(f"\r\x1b[K{fit(stage, parts, width)}")
            sys.stderr.flush()
            self._drawn, self._stage = True, stage

    def result(self, **fields: Any) -> None:
        """Print the last line of --json; `exit` is 0 unless it is given."""
        self._end()
        self.event("result", **{"exit": 0, **fields})

    def _end(self) -> None:
        """What was in progress is over."""
        self.moved, self.waits_for = None, ""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            self._drawn = False


class Relay(Output):
    """The output of a command that a daemon runs for a client: each call is one JSON object a line, for `replay`."""

    def __init__(self, *, verbose: int) -> None:
        super().__init__(as_json=False, quiet=False, verbose=verbose)
        self._next = 0.0

    @property
    def shows_progress(self) -> bool:
        """Somebody may see it."""
        return True

    def _tell(self, type_: str, **fields: Any) -> None:
        with self._lock:
            print(json.dumps({"type": type_, **fields}), flush=True)

    def line(self, text: str = "") -> None:
        """Pass data on."""
        self._end()
        self._tell("line", text=text)

    def note(self, text: str) -> None:
        """Pass on what a person is told."""
        self._end()
        self._tell("note", text=text)

    def warn(self, text: str) -> None:
        """Pass on what matters."""
        self._tell("warning", text=text)

    def event(self, type_: str, /, **fields: Any) -> None:
        """Pass an event on."""
        self._tell("event", name=type_, fields=fields)

    def progress(self, *parts: str, stage: str = "", waits_for: str = "", **fields: Any) -> None:
        """Pass on how far the work is, a few times a second."""
        self.moved, self.waits_for = (stage, fields), waits_for
        now = time.monotonic()
        if now >= self._next:
            self._next = now + BAR_SECONDS
            self._tell("progress", parts=parts, stage=stage, waits_for=waits_for, fields=fields)

    def result(self, **fields: Any) -> None:
        """End."""
        self._end()
        self._tell("result", fields=fields)


def replay(events: Iterable[dict[str, Any]], output: Output) -> bool:
    """Print what a `Relay` passed on; tell whether its result came."""
    for item in events:
        match item:
            case {"type": "line", "text": str(text)}:
                output.line(text)
            case {"type": "note", "text": str(text)}:
                output.note(text)
            case {"type": "warning", "text": str(text)}:
                output.warn(text)
            case {"type": "event", "name": str(name), "fields": dict(fields)}:
                output.event(name, **fields)
            case {"type": "progress", "parts": list(parts), "stage": str(stage), "fields": dict(fields)}:
                output.progress(*parts, stage=stage, waits_for=str(item.get("waits_for", "")), **fields)
            case {"type": "result", "fields": dict(fields)}:
                output.result(**fields)
                return True
    return False


def fit(stage: str, parts: Sequence[str], width: int) -> str:
    """Return one line of at most *width* columns: the stage, and as many of *parts*, from the first, as there is room
    for."""
    line = stage
    for part in parts:
        longer = f"{line}{': ' if line == stage and stage else ', ' if line else ''}{part}"
        if len(longer) > width:
            break
        line = longer
    return line[: max(width, 0)]


def fail(text: str, kind: str, code: int, *, as_json: bool, relayed: bool = False) -> None:
    """Print why a command failed: one line on stderr, and the result of --json."""
    printable = " ".join(shown(text).split("\n"))
    if relayed:
        print(json.dumps({"type": "error", "exit": code, "error": kind, "message": printable}), flush=True)
    elif as_json:
        print(json.dumps({"type": "result", "exit": code, "error": kind, "message": printable}), flush=True)
    print(f"datasync: {printable}", file=sys.stderr)


def shown(text: str | bytes) -> str:
    """Return *text* with everything that is not printable escaped."""
    decoded = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    if decoded.isprintable():
        return decoded
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in decoded)


def path_text(path: bytes) -> str:
    """Return a path of a dataset for one line."""
    return shown(path).replace("\n", "\\n")


def size(count: int) -> str:
    """Return *count* bytes for people, in binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def plural(count: int, word: str) -> str:
    """Return the count with its word."""
    many = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{count:,} {word if count == 1 else many}"
