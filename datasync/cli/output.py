"""What a command prints: data on stdout, messages on stderr, NDJSON events with --json, progress on a terminal only.

Control characters of names from outside never reach the terminal.
"""

import json
import os
import sys
import time
from typing import Any

BAR_SECONDS = 0.2


class Output:
    """One command's output."""

    def __init__(self, *, as_json: bool, quiet: bool, verbose: int) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose
        self._drawn = False
        self._next = 0.0
        self._bar = sys.stderr.isatty() and not as_json and not quiet

    def line(self, text: str = "") -> None:
        """Print data, unless --json prints it as events."""
        self._clear()
        if not self.as_json:
            print(text)

    def note(self, text: str) -> None:
        """Tell a person something; nothing with --quiet."""
        self._clear()
        if not self.quiet and not self.as_json:
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        """Tell a person something that matters, --quiet or not."""
        self._clear()
        print(f"datasync: {text}", file=sys.stderr)

    def event(self, type_: str, /, **fields: Any) -> None:
        """Print one NDJSON event, with --json only."""
        if self.as_json:
            print(json.dumps({"type": type_, **fields}), flush=True)

    def progress(self, text: str, **fields: Any) -> None:
        """Show how far the work is."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (1.0 if self.as_json else BAR_SECONDS)
        if self.as_json:
            self.event("progress", **fields)
        elif self._bar:
            width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            sys.stderr.write(f"\r\x1b[K{text[:width]}")
            sys.stderr.flush()
            self._drawn = True

    def result(self, **fields: Any) -> None:
        """Print the last line of --json; `exit` is 0 unless it is given."""
        self._clear()
        self.event("result", **{"exit": 0, **fields})

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            self._drawn = False


def fail(text: str, kind: str, code: int, *, as_json: bool) -> None:
    """Print why a command failed: one line on stderr, and the result of --json."""
    printable = " ".join(shown(text).split("\n"))
    if as_json:
        print(json.dumps({"type": "result", "exit": code, "error": kind, "message": printable}), flush=True)
    print(f"datasync: {printable}", file=sys.stderr)


def shown(text: str | bytes) -> str:
    """Return *text* with everything that is not printable escaped."""
    decoded = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
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
