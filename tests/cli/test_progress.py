"""Progress says what is known: a share and a time of arrival where there is a total; and what a stall waits for."""

import fcntl
import json
import os
import pty
import struct
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.cli import stall
from datasync.cli.output import Output, fit
from datasync.cli.pace import WINDOW_SECONDS, Pace, duration, percent
from datasync.cli.stall import STALL_SECONDS, Watch
from datasync.cli.transfer import push_reporter
from datasync.push.options import Progress, PushOptions
from datasync.service.push import push_directory
from datasync.storage.memory import MemoryStore
from datasync.storage.meter import MeteredStore
from datasync.storage.protocol import Created
from tests.support.cli import Machine

# the pace


def test_the_rate_is_that_of_the_last_thirty_seconds() -> None:
    pace = Pace()
    for second in range(100):
        pace.add(second, 10 * min(second, 60), second)
    assert pace.rate(0) == 0.0  # it stood still for longer than the window
    assert pace.rate(1) == 1.0
    assert pace.left(1, 199) == 100.0
    assert pace.left(0, 10_000) is None


def test_nothing_is_foretold_from_nothing() -> None:
    pace = Pace()
    assert pace.rate(0) is None
    pace.add(0.0, 5)
    pace.add(1.0, 10)
    assert pace.left(0, 100) is None


@given(st.lists(st.floats(min_value=0.25, max_value=5), min_size=10, max_size=200))
def test_old_samples_do_not_gather(steps: list[float]) -> None:
    pace, now = Pace(), 0.0
    for step in steps:
        now += step
        pace.add(now, now)
    assert len(pace._samples) <= WINDOW_SECONDS / 0.25 + 1
    rate = pace.rate(0)
    assert rate is None or rate == pytest.approx(1.0)


@given(st.integers(min_value=0, max_value=10**15), st.integers(min_value=1, max_value=10**15))
def test_a_hundred_percent_means_all(done: int, total: int) -> None:
    assert (percent(done, total) == 100) == (done >= total)


def test_durations_for_people() -> None:
    assert [duration(seconds) for seconds in (0.4, 59, 60, 61, 3600, 5400, 90_000)] == [
        "0 s", "59 s", "1 min", "1 min 1 s", "1 h", "1 h 30 min", "1 d 1 h",
    ]  # fmt: skip


@given(st.text(max_size=12), st.lists(st.text(max_size=20), max_size=6), st.integers(min_value=0, max_value=80))
def test_a_line_fits_and_keeps_the_first_parts(stage: str, parts: list[str], width: int) -> None:
    line = fit(stage, parts, width)
    assert len(line) <= width
    whole = fit(stage, parts, 10_000)
    assert whole.startswith(line)


# what a push says


def said(capsys: pytest.CaptureFixture[str], *steps: Progress) -> list[dict[str, object]]:
    output = Output(as_json=True, quiet=False, verbose=0)
    report = push_reporter(output)
    for step in steps:
        output._next = 0.0
        report(step)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_no_total_is_claimed_before_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    walking, known = said(
        capsys, Progress(5, 100, 50, 0, stage="scanning"), Progress(9, 200, 50, 0, 300, 9, 500, stage="reading")
    )
    assert (walking["total_bytes"], walking["total_entries"], walking["eta_seconds"]) == (None, None, None)
    assert (known["total_bytes"], known["kept_bytes"], known["read_bytes"], known["stage"]) == (
        500,
        300,
        200,
        "reading",
    )


def test_a_push_knows_its_total_when_its_walk_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("DATASYNC_", "XDG_"))]:
        monkeypatch.delenv(name)
    machine, source = Machine(tmp_path, str(tmp_path / "repository")), tmp_path / "data"
    source.mkdir()
    for number in range(300):
        (source / f"{number}").write_bytes(b"x" * 1000)
    seen: list[Progress] = []
    with machine.session() as session:
        session.initialise()
        push_directory(session, source, "data", PushOptions(), tag=None, report=seen.append)
    assert seen[-1].stage == "committing"
    assert (seen[-1].total_entries, seen[-1].total_bytes) == (300, 300_000)
    assert seen[-1].kept_bytes + seen[-1].read_bytes == 300_000
    assert all(item.total_bytes is None for item in seen if item.stage == "scanning")


# a terminal


def terminal(monkeypatch: pytest.MonkeyPatch) -> int:
    """Make stderr a terminal of 40 columns; return the other end."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    monkeypatch.setattr("sys.stderr", os.fdopen(there, "w"))
    return here


def test_a_narrow_terminal_gets_one_line_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    here = terminal(monkeypatch)
    output = Output(as_json=False, quiet=False, verbose=0)
    for stage in ("scanning", "scanning", "sending"):
        output._next = 0.0
        output.progress("12 %", "read 1.0 GiB", "sent 1.0 GiB", "some more that has no room", stage=stage)
    print("END", end="", file=sys.stderr, flush=True)
    drawn = ""
    while not drawn.endswith("END"):  # a terminal hands over what was written in pieces
        drawn += os.read(here, 4096).decode()
    lines = [line.rpartition("\x1b[K")[2] for line in drawn.removesuffix("END").replace("\r\n", "\n").split("\n")]
    assert lines == ["scanning: 12 %, read 1.0 GiB", "sending: 12 %, read 1.0 GiB"]
    assert output.shows_progress


def test_off_a_terminal_a_long_work_prints_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    output = Output(as_json=False, quiet=False, verbose=0)
    for _ in range(120):
        now[0] += 1
        output.progress("1 %", stage="reading")
    assert capsys.readouterr().err == "reading: 1 %\n" * 4
    assert not output.shows_progress


# stalls


def test_a_stall_is_told_later_and_later() -> None:
    watch = Watch(0.0)
    told = [now for now in range(1, 200) if watch.look(float(now), "same", True) is not None]
    assert told == [21, 41, 81, 161]
    assert watch.look(200.0, "other", True) is None
    assert watch.look(200.0 + STALL_SECONDS - 1, "other", True) is None


def test_who_waits_for_nothing_has_not_stalled() -> None:
    watch = Watch(0.0)
    assert all(watch.look(float(now), "same", False) is None for now in range(1000))


class Stuck(MemoryStore):
    """A store whose puts take until somebody lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        assert self.free.wait(30)
        return super().put_if_absent(name, data)


def test_a_stall_names_the_request_and_the_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(stall, "STALL_SECONDS", 0.05)
    stuck = Stuck()
    store = MeteredStore(stuck)

    class Session:
        pass

    session = Session()
    session.store = store  # type: ignore[attr-defined]
    with stall.told_stalls(session, Output(as_json=True, quiet=False, verbose=0)):  # type: ignore[arg-type]
        put = threading.Thread(target=store.put_if_absent, args=("d/packs/ab/abcd", b"data"))
        put.start()
        told = ""
        while not told:
            told = capsys.readouterr().out
            time.sleep(0.01)
        stuck.free.set()
        put.join()
    event = json.loads(told.splitlines()[0])
    assert (event["type"], event["request"], event["object"], event["requests"]) == (
        "stalled", "put", "d/packs/ab/abcd", 1,
    )  # fmt: skip
    assert store.waiting() == []
