"""When a mirror pushes next: pure, so that no test needs a clock.

Events are hints: a push begins when none came for `debounce`, or when the first of them is `BATCHES` times as old, so
constant writing is still pushed. A rescan is the truth: it comes however quiet it was. After a failure the pause
doubles up to `BACK_OFF_SECONDS`, without end. All times are seconds of one clock.
"""

from dataclasses import dataclass

BATCHES = 6  # debounce times that constant writing may hold a push back
BACK_OFF_SECONDS = 600.0
FIRST_PAUSE_SECONDS = 1.0
DAY_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Pace:
    """What a mirror's settings say, in seconds; `scan` is the rescan where no events come."""

    debounce: float
    rescan: float
    scan: float
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What has happened: hints since the last push began, when it began, and how many tries have failed since."""

    first_hint: float | None = None
    last_hint: float | None = None
    last_run: float | None = None
    failures: int = 0
    failed_at: float = 0.0
    asked: bool = False
    scanning: bool = False


def pause(failures: int) -> float:
    """Return the seconds between the last of so many failures and the next try."""
    doublings = min(failures - 1, 16)
    return float(min(BACK_OFF_SECONDS, FIRST_PAUSE_SECONDS * 2**doublings)) if failures else 0.0


def wait_for_window(window: tuple[int, int] | None, second_of_day: float) -> float:
    """Return the seconds until *window* opens, 0 inside it."""
    if window is None:
        return 0.0
    start, end = window
    inside = start <= second_of_day < end if start < end else second_of_day >= start or second_of_day < end
    return 0.0 if inside else (start - second_of_day) % DAY_SECONDS


def due_in(pace: Pace, seen: Seen, now: float, second_of_day: float) -> float:
    """Return the seconds until the next push begins, 0 for now."""
    if seen.asked:
        return 0.0
    return max(_work_in(pace, seen, now), wait_for_window(pace.window, second_of_day))


def _work_in(pace: Pace, seen: Seen, now: float) -> float:
    if seen.last_run is None:
        return max(0.0, seen.failed_at + pause(seen.failures) - now)
    rescan = seen.last_run + (min(pace.scan, pace.rescan) if seen.scanning else pace.rescan)
    candidates = [rescan]
    if seen.failures:
        candidates = [seen.failed_at + pause(seen.failures)]
    elif seen.first_hint is not None and seen.last_hint is not None:
        candidates.append(min(seen.last_hint + pace.debounce, seen.first_hint + BATCHES * pace.debounce))
    return max(0.0, min(candidates) - now)
