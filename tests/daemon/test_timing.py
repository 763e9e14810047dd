"""When a mirror pushes: laws of the pure rule."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from datasync.daemon.timing import BACK_OFF_SECONDS, BATCHES, Pace, Seen, due_in, pause, wait_for_window

PACE = Pace(debounce=5, rescan=900, scan=30)
SECONDS = st.floats(0, 1e6)


def test_the_first_push_comes_at_once() -> None:
    assert due_in(PACE, Seen(), 1000, 0) == 0


def test_many_small_saves_make_one_push() -> None:
    """Each save moves it on, until the batch is as old as it may become."""
    starts = []
    seen = Seen(last_run=0)
    for second in range(60):
        now = float(second)
        if due_in(PACE, seen, now, 0) <= 0:
            starts.append(now)
            seen = replace(seen, first_hint=None, last_hint=None, last_run=now)
        seen = replace(seen, first_hint=seen.first_hint if seen.first_hint is not None else now, last_hint=now)
    assert starts == [BATCHES * 5.0]


def test_quiet_after_a_save_pushes_when_the_debounce_is_over() -> None:
    assert due_in(PACE, Seen(first_hint=100, last_hint=102, last_run=50), 104, 0) == 3


@given(SECONDS, SECONDS)
def test_a_rescan_comes_however_quiet_it_is(last_run: float, later: float) -> None:
    assert due_in(PACE, Seen(last_run=last_run), last_run + later, 0) <= PACE.rescan


def test_without_events_the_folder_is_scanned_often() -> None:
    assert due_in(PACE, Seen(last_run=0, scanning=True), 10, 0) == 20


@given(st.integers(1, 10_000))
def test_it_never_gives_up_and_never_waits_longer_than_the_limit(failures: int) -> None:
    assert 0 < pause(failures) <= BACK_OFF_SECONDS
    assert pause(failures + 1) >= pause(failures)


@given(st.integers(1, 50), st.integers(0, 10**6))
def test_failures_hold_hints_back(failures: int, now: int) -> None:
    """A burst of saves while the store is down makes no burst of tries."""
    seen = Seen(first_hint=now, last_hint=now, last_run=now, failures=failures, failed_at=now)
    assert due_in(PACE, seen, now, 0) == pause(failures)


def test_what_a_person_asks_for_comes_at_once_outside_the_window_too() -> None:
    pace = replace(PACE, window=(22 * 3600, 6 * 3600))
    assert due_in(pace, Seen(last_run=0, asked=True), 1, 12 * 3600) == 0


def test_a_window_over_midnight() -> None:
    night = (22 * 3600, 6 * 3600)
    assert wait_for_window(night, 23 * 3600) == wait_for_window(night, 3600) == 0
    assert wait_for_window(night, 12 * 3600) == 10 * 3600


@given(st.integers(0, 86399), st.integers(0, 86399), st.integers(0, 86399))
def test_a_window_opens_within_a_day(start: int, end: int, now: int) -> None:
    wait = wait_for_window((start, end), now)
    assert 0 <= wait < 86400
    assert wait_for_window((start, end), (now + wait) % 86400) == 0 or start == end
