"""Scrubs all that this node has ready, slowly: for the daemon, whose jobs need the disk more.

One round looks at every cache directory that is there: each object against its record, then each view against its
snapshot. Keys are this machine's own or lent. A round's end is noted beside the state, so a restart does not begin a
new one. Raises as a scrub does; what keeps one view from being checked is told and the others go on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from datasync.cache.space import Limits
from datasync.config import Config
from datasync.errors import DatasyncError
from datasync.service.borrow import Lender
from datasync.service.caches import open_caches
from datasync.service.local_views import LocalView, local_views
from datasync.service.scrub import Pace, first_look, scrub, set_aside

Tell = Callable[[str, str], None]
"""Dataset, and what is wrong."""
NOTE = "scrubbed"


class Throttle:
    """A pace of *rate* bytes a second on average; *wait* sleeps, and raises when the work shall end."""

    def __init__(self, rate: float, wait: Callable[[float], None], now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._wait, self._now = rate, wait, now
        self._free = now()

    def __call__(self, count: int) -> None:
        """Wait until *count* more bytes may be read."""
        start = max(self._free, self._now())
        self._free = start + count / self._rate
        self._wait(max(0.0, start - self._now()))


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did: views checked, views with damage, objects set aside, views that could not be checked."""

    views: int
    damaged: int
    aside: int
    unchecked: int


def last_round(config: Config) -> float:
    """Return when the last round ended (Unix time), 0 for never."""
    path = config.state / NOTE
    return path.stat().st_mtime if path.exists() else 0.0


def scrub_all(config: Config, pace: Pace, damaged: Tell, warn: Callable[[str], None]) -> Round:
    """Make one round."""
    there = tuple(path for path in config.caches if path.is_dir())
    views = bad = aside = unchecked = 0
    lender, limits = Lender(config), Limits(config.cache_max, config.cache_reserve)
    if there:
        with open_caches(there, warn) as caches:
            for cache in caches:
                look = first_look(cache, pace)
                items = local_views([cache], limits, warn)
                for item in items:
                    try:
                        bad += _one(config, lender, item, look.clean, pace, damaged, warn)
                    except DatasyncError as error:
                        unchecked += 1
                        warn(f"{item.ready.dataset}@{item.ready.seq}: not scrubbed: {error}")
                views += len(items)
                aside += set_aside(config, cache, look.damaged)
    config.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    (config.state / NOTE).touch()
    return Round(views, bad, aside, unchecked)


def _one(
    config: Config,
    lender: Lender,
    item: LocalView,
    clean: frozenset[int],
    pace: Pace,
    damaged: Tell,
    warn: Callable[[str], None],
) -> bool:
    reference = f"{item.ready.dataset}@{item.ready.snapshot.hex()}"
    session = lender.session(config, reference, warn)
    try:
        done = scrub(session, item, clean=clean, pace=pace)
    finally:
        session.close()
    if done.damages:
        left = "" if done.removed else "; a job holds it, so it stays"
        damaged(item.ready.dataset, f"{len(done.damages)} entries of {reference[:40]}… are damaged{left}")
    return bool(done.damages)
