"""Which snapshots rules keep: against a model that is written the other way round, by sets of all periods."""

import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.repository.retention import PERIODS, Dated, KeepRules, decide

HOUR = 3_600_000
START = int(datetime(2023, 12, 20, tzinfo=UTC).timestamp() * 1000)  # weeks, months and years end in the range
FORMATS = {"hourly": "%Y%m%d%H", "daily": "%Y%m%d", "weekly": "%G-%V", "monthly": "%Y%m", "yearly": "%Y"}

counts = st.integers(0, 5)
rules = st.builds(
    KeepRules,
    last=counts,
    hourly=counts,
    daily=counts,
    weekly=counts,
    monthly=counts,
    yearly=counts,
    within=st.integers(0, 400) | st.just(0),
    tags=st.lists(st.sampled_from(("prod", "rel-*", "x")), max_size=2).map(tuple),
)
tagged = st.lists(st.sampled_from(("prod", "rel-1", "other")), max_size=2).map(tuple)


@st.composite
def histories(draw: st.DrawFn) -> list[Dated]:
    """Snapshots, newest first, times never going back."""
    steps = draw(st.lists(st.sampled_from((0, 1, 20, 24 * 60, 9 * 24 * 60, 70 * 24 * 60)), max_size=40))
    found, now = [], START + draw(st.integers(0, 400)) * HOUR
    for number, minutes in enumerate(steps, 1):
        now += minutes * 60_000
        found.append(Dated(number, number.to_bytes(32, "big"), now, draw(tagged)))
    return found[::-1]


def model(snapshots: list[Dated], rule: KeepRules) -> set[int]:
    """Return the numbers that stay."""
    if not snapshots:
        return set()
    by_number = {item.seq: item for item in snapshots}
    kept = {max(by_number)} | set(sorted(by_number)[len(by_number) - min(rule.last, len(by_number)) :])
    for name, pattern in FORMATS.items():
        newest: dict[str, int] = {}
        for item in sorted(snapshots, key=lambda item: item.seq):
            newest[datetime.fromtimestamp(item.created / 1000, UTC).strftime(pattern)] = item.seq
        count = getattr(rule, name)
        kept |= set(sorted(newest.values())[len(newest) - min(count, len(newest)) :])
    edge = by_number[max(by_number)].created - rule.within
    kept |= {item.seq for item in snapshots if rule.within and item.created >= edge}
    for glob in rule.tags:
        kept |= {
            item.seq
            for item in snapshots
            if any(tag == glob or (glob == "rel-*" and tag.startswith("rel-")) for tag in item.tags)
        }
    return kept


@given(histories(), rules)
def test_rules_keep_what_the_model_keeps(snapshots: list[Dated], rule: KeepRules) -> None:
    decided = list(decide(snapshots, rule))
    assert [item for item, _ in decided] == snapshots
    assert {item.seq for item, kept in decided if kept} == model(snapshots, rule)


@given(histories(), rules)
def test_what_was_kept_once_is_kept_when_the_rest_is_gone(snapshots: list[Dated], rule: KeepRules) -> None:
    kept = [item for item, why in decide(snapshots, rule) if why]
    assert [item for item, why in decide(kept, rule) if why] == kept


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Kiritimati"])
def test_days_are_those_of_utc_in_every_zone_and_over_summer_time(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        began = datetime(2026, 3, 7, tzinfo=UTC)  # summer time begins in New York on the 8th, ends on November 1st
        hours = [began + timedelta(hours=n) for n in range(24 * 4)]
        snapshots = [Dated(n, bytes(32), int(at.timestamp() * 1000)) for n, at in enumerate(hours, 1)][::-1]
        kept = [item.seq for item, why in decide(snapshots, KeepRules(daily=4)) if why]
        assert kept == [96, 72, 48, 24]  # 23:00 UTC of each day
    finally:
        monkeypatch.undo()
        time.tzset()
    assert set(PERIODS) == set(FORMATS)
    assert os.environ.get("TZ") != zone or zone == "UTC"
