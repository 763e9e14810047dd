"""Which snapshots a set of rules keeps. Pure: dated snapshots in, reasons out; does no I/O, knows no clock.

Each rule keeps on its own, and what one keeps stays. Periods are those of UTC, whatever zone a machine is in: an hour,
a day, an ISO week, a month or a year has the same borders everywhere, summer time or not. Of each of the newest N
periods that have a snapshot the newest snapshot stays. `within` counts back from the newest snapshot's own time, so a
wrong clock, or a source that is pushed no more, forgets nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    """Return the time *ms* in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def decide(snapshots: Iterable[Dated], rules: KeepRules) -> Iterator[tuple[Dated, tuple[str, ...]]]:
    """Yield each of *snapshots*, given the newest first, with the rules that keep it: none means that it may go."""
    newest: Dated | None = None
    seen: dict[str, tuple[int, ...]] = {}
    left = {name: getattr(rules, name) for name in PERIODS}
    for number, item in enumerate(snapshots):
        newest = newest or item
        kept = ["newest"] if number == 0 else []
        kept += ["last"] if number < rules.last else []
        for name, period in PERIODS.items():
            if left[name] and seen.get(name) != (at := period(moment(item.created))):
                seen[name] = at
                left[name] -= 1
                kept.append(name)
        kept += ["within"] if rules.within and item.created >= newest.created - rules.within else []
        kept += [f"tag {tag}" for tag in item.tags if any(fnmatchcase(tag, glob) for glob in rules.tags)]
        yield item, tuple(kept)
