"""Spans of time on the command line: `90s`, `15m`, `12h`, `7d`."""

import re

from datasync.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def seconds(text: str) -> float:
    """Return the seconds of *text*; raise `UsageError`."""
    match = _SPAN.fullmatch(text.strip())
    if not match or not float(match[1]):
        raise UsageError(f"time {text!r}: expected a number with s, m, h or d, like 12h")
    return float(match[1]) * _UNITS[match[2]]
