"""Which snapshots a set of rules keeps. Pure: dated snapshots in, reasons out; does no I/O, knows no clock.

Each rule keeps on its own, and what one keeps stays. Periods are those of UTC, whatever zone a machine is in: an hour,
a day, an ISO week, a month or a year has the same borders everywhere, summer time or not. Of each of the newest N
periods that have a snapshot the newest snapshot stays. `within` counts back from the newest snapshot's own time, or
from now where that comes first: a source that is pushed no more loses nothing, nor does one that was pushed by a clock
that was ahead.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_000  # the end of the year 9999: later times have no date


@dataclass(frozen=True, slots=True)
class Dated:
    """A snapshot: its number, id, when it was made (ms), and its tags."""

    seq: int
    id: bytes
    created: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeepRules:
    """How many of the newest snapshots and periods to keep, for how long before the newest (ms), and which tags."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0
    within: int = 0
    tags: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """True when at least one rule is set."""
        return any(getattr(self, item.name) for item in fields(self))


def _period(name: str) -> Callable[[datetime], tuple[int, ...]]:
    lengths = {"hourly": 4, "daily": 3, "monthly": 2, "yearly": 1}
    if name == "weekly":
        return lambda moment: tuple(moment.isocalendar()[:2])
    return lambda moment: tuple(moment.timetuple()[: lengths[name]])


PERIODS = {name: _period(name) for name in ("hourly", "daily", "weekly", "monthly", "yearly")}


def moment(ms: int) -> datetime:
    """Return the time *ms* in UTC, the last one that has a date for any later one."""
    return _EPOCH + timedelta(milliseconds=min(ms, _LAST_MS))


def decide(snapshots: Iterable[Dated], rules: KeepRules, now: int) -> Iterator[tuple[Dated, tuple[str, ...]]]:
    """Yield each of *snapshots*, given the newest first, with the rules that keep it: none means that it may go.

    *now* (ms) is this machine's clock. Times may go back from a snapshot to the next: clocks of several machines.
    """
    edge = 0
    seen: dict[str, set[tuple[int, ...]]] = {name: set() for name in PERIODS}
    for number, item in enumerate(snapshots):
        edge = edge if number else min(item.created, now) - rules.within
        kept = ["newest"] if number == 0 else []
        kept += ["last"] if number < rules.last else []
        for name, period in PERIODS.items():
            if len(seen[name]) < getattr(rules, name) and (at := period(moment(item.created))) not in seen[name]:
                seen[name].add(at)
                kept.append(name)
        kept += ["within"] if rules.within and item.created >= edge else []
        kept += [f"tag {tag}" for tag in item.tags if any(fnmatchcase(tag, glob) for glob in rules.tags)]
        yield item, tuple(kept)
