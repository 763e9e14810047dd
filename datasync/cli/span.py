"""Times on the command line: spans (`90s`, `15m`, `12h`, `7d`), and moments (a date, a time, a span from now)."""

import re
import time
from datetime import UTC, datetime

from datasync.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def seconds(text: str) -> float:
    """Return the seconds of *text*; raise `UsageError`."""
    match = _SPAN.fullmatch(text.strip())
    if not match or not float(match[1]):
        raise UsageError(f"time {text!r}: expected a number with s, m, h or d, like 12h")
    return float(match[1]) * _UNITS[match[2]]


def parse_until(text: str) -> int:
    """Return the moment in *text* as Unix time in ms: ISO 8601 (UTC unless it says otherwise), or a span from now."""
    if _SPAN.fullmatch(text.strip()):
        return int((time.time() + seconds(text)) * 1000)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"time {text!r}: expected a date like 2026-12-31, a time like 2026-12-31T18:00Z, or a span like 30d"
        ) from None
    until = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if until <= time.time() * 1000:
        raise UsageError(f"time {text!r}: expected a time to come, found one that is over")
    return until
