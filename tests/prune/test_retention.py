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
NOW = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000)  # no snapshot is of a time to come
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
    decided = list(decide(snapshots, rule, NOW))
    assert [item for item, _ in decided] == snapshots
    assert {item.seq for item, kept in decided if kept} == model(snapshots, rule)


@given(histories(), rules)
def test_what_was_kept_once_is_kept_when_the_rest_is_gone(snapshots: list[Dated], rule: KeepRules) -> None:
    kept = [item for item, why in decide(snapshots, rule, NOW) if why]
    assert [item for item, why in decide(kept, rule, NOW) if why] == kept


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Kiritimati"])
def test_days_are_those_of_utc_in_every_zone_and_over_summer_time(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        began = datetime(2026, 3, 7, tzinfo=UTC)  # summer time begins in New York on the 8th, ends on November 1st
        hours = [began + timedelta(hours=n) for n in range(24 * 4)]
        snapshots = [Dated(n, bytes(32), int(at.timestamp() * 1000)) for n, at in enumerate(hours, 1)][::-1]
        kept = [item.seq for item, why in decide(snapshots, KeepRules(daily=4), NOW) if why]
        assert kept == [96, 72, 48, 24]  # 23:00 UTC of each day
    finally:
        monkeypatch.undo()
        time.tzset()
    assert set(PERIODS) == set(FORMATS)
    assert os.environ.get("TZ") != zone or zone == "UTC"


def dated(*days: float) -> list[Dated]:
    """Return snapshots, newest first, made so many days after `START`."""
    return [Dated(len(days) - n, bytes([n]) * 32, START + int(day * 24 * HOUR)) for n, day in enumerate(days)]


def test_a_newest_snapshot_of_a_clock_that_is_ahead_takes_nothing_out_of_within() -> None:
    now, rule = START + 30 * 24 * HOUR, KeepRules(within=10 * 24 * HOUR)
    assert [item.seq for item, why in decide(dated(400, 29, 21, 19), rule, now) if why] == [4, 3, 2]
    assert [item.seq for item, why in decide(dated(29, 20, 18), rule, now) if why] == [3, 2]


def test_a_period_counts_once_though_times_go_back() -> None:
    kept = [item.seq for item, why in decide(dated(3.1, 2, 3, 1), KeepRules(daily=3), NOW) if why]
    assert kept == [4, 3, 1]


def test_a_time_without_a_date_is_the_last_one() -> None:
    far = Dated(2, bytes(32), 2**63 - 1)
    assert [item.seq for item, why in decide([far, *dated(1)], KeepRules(yearly=2, within=HOUR), NOW) if why] == [2, 1]


@pytest.mark.parametrize(
    ("rule", "days", "kept"),
    [
        (KeepRules(weekly=10), ("2026-01-01", "2025-12-29", "2025-12-28", "2024-12-30", "2024-12-29"), (5, 3, 2, 1)),
        (KeepRules(monthly=10), ("2024-03-01", "2024-02-29", "2024-02-01", "2024-01-31"), (4, 3, 1)),
        (KeepRules(yearly=10), ("2025-01-01", "2024-12-31", "2024-02-29", "2023-12-31"), (4, 3, 1)),
    ],
)
def test_borders_of_iso_weeks_leap_months_and_years(
    rule: KeepRules, days: tuple[str, ...], kept: tuple[int, ...]
) -> None:
    times = [int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp() * 1000) for day in days]
    snapshots = [Dated(len(days) - n, bytes([n]) * 32, at) for n, at in enumerate(times)]
    found = decide(snapshots, rule, NOW)
    assert tuple(item.seq for item, why in found if set(why) - {"newest"}) == kept
