"""Progress of push, and of pull, warm and run: a share and a time of arrival only where a total is known."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from datasync.cli.output import Output, path_text, size
from datasync.cli.pace import Pace, duration, percent

if TYPE_CHECKING:  # a warm needs no part of push, a push none of pull
    from datasync.pull.pipeline import Progress
    from datasync.push.options import Progress as PushProgress


def reporter(output: Output) -> "Callable[[Progress], None]":
    """Return what shows a transfer's progress."""
    pace = Pace()

    def report(progress: "Progress") -> None:
        pace.add(time.monotonic(), progress.bytes, progress.files)
        left = pace.left(0, progress.total_bytes)
        parts = [] if not progress.total_bytes else [f"{percent(progress.bytes, progress.total_bytes)} %"]
        parts += [] if left is None else [f"{duration(left)} left"]
        parts += [
            f"{size(progress.bytes)} of {size(progress.total_bytes)}",
            f"{progress.files:,} of {progress.total_files:,} files",
            *_rates(pace, "files"),
        ]
        output.progress(
            *parts,
            stage="fetching",
            files=progress.files,
            total_files=progress.total_files,
            bytes=progress.bytes,
            total_bytes=progress.total_bytes,
            fetched_bytes=progress.fetched_bytes,
            **_paces(pace, left),
        )

    return report


def push_reporter(output: Output) -> "Callable[[PushProgress], None]":
    """Return what shows a push's progress."""
    pace = Pace()

    def report(progress: "PushProgress") -> None:
        passed = progress.kept_bytes + progress.read_bytes
        pace.add(time.monotonic(), passed, progress.entries)
        total, reads = progress.total_bytes, progress.stage in ("scanning", "reading")
        left = None if total is None or not reads else pace.left(0, total)
        parts = [f"{percent(passed, total)} %"] if total and reads else []
        parts += [] if left is None else [f"{duration(left)} left"]
        parts += [
            f"read {size(progress.read_bytes)}",
            f"sent {size(progress.sent_bytes)}",
            f"{progress.entries:,}"
            + (f" of {progress.total_entries:,}" if progress.total_entries else "")
            + " entries",
            *_rates(pace, "entries"),
            f"new {size(progress.new_bytes)}",
        ]
        output.progress(
            *parts,
            stage=progress.stage,
            waits_for=f"reading {path_text(progress.reading)}" if progress.reading else "",
            entries=progress.entries,
            total_entries=progress.total_entries,
            read_bytes=progress.read_bytes,
            kept_bytes=progress.kept_bytes,
            total_bytes=total,
            new_bytes=progress.new_bytes,
            sent_bytes=progress.sent_bytes,
            **_paces(pace, left),
        )

    return report


def _rates(pace: Pace, things: str) -> list[str]:
    bytes_, count = pace.rate(0), pace.rate(1)
    return [] if bytes_ is None or count is None else [f"{size(int(bytes_))}/s", f"{count:,.0f} {things}/s"]


def _paces(pace: Pace, left: float | None) -> dict[str, Any]:
    rate = pace.rate(0)
    return {
        "bytes_per_second": None if rate is None else round(rate),
        "eta_seconds": None if left is None else round(left, 1),
    }


def waiter(output: Output) -> Callable[[], None]:
    """Return what tells, once, that another process makes the view."""
    told: list[bool] = []

    def waiting() -> None:
        if not told:
            told.append(True)
            output.note("another process on this node is warming this snapshot: waiting for it")
            output.event("waiting")

    return waiting
