"""Times on the command line: spans (`90s`, `15m`, `12h`, `7d`), and moments (a date, a time, a span from now)."""

import re
import time
from datetime import UTC, datetime

from datasync.errors import UsageError

LAST_MS = 253_402_300_799_000  # the end of the year 9999, in Unix ms: later ones have no date
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def seconds(text: str) -> float:
    """Return the seconds of *text*; raise `UsageError`."""
    match = _SPAN.fullmatch(text.strip())
    if not match or not 0 < float(match[1]) * _UNITS[match[2]] < LAST_MS / 1000:
        raise UsageError(f"time {text[:40]!r}: expected a number with s, m, h or d, like 12h")
    return float(match[1]) * _UNITS[match[2]]


def parse_until(text: str) -> int:
    """Return the moment in *text* as Unix time in ms: ISO 8601 (UTC unless it says otherwise), or a span from now."""
    until = _moment(text.strip())
    if until <= time.time() * 1000:
        raise UsageError(f"time {text[:40]!r}: expected a time to come, found one that is over")
    if until > LAST_MS:
        raise UsageError(f"time {text[:40]!r}: expected a time before the year 10000, found a later one")
    return until


def _moment(text: str) -> int:
    if _SPAN.fullmatch(text):
        return int((time.time() + seconds(text)) * 1000)
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(
            f"time {text[:40]!r}: expected a date like 2026-12-31, a time like 2026-12-31T18:00Z, or a span like 30d"
        ) from None
