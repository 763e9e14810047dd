"""Progress of pull, warm and run, in one form."""

from collections.abc import Callable

from datasync.cli.output import Output, size
from datasync.pull.pipeline import Progress


def reporter(output: Output) -> Callable[[Progress], None]:
    """Return what shows a transfer's progress."""

    def report(progress: Progress) -> None:
        share = f" ({100 * progress.bytes // progress.total_bytes} %)" if progress.total_bytes else ""
        text = (
            f"{progress.files:,} of {progress.total_files:,} files, "
            f"{size(progress.bytes)} of {size(progress.total_bytes)}{share}"
        )
        output.progress(
            text,
            files=progress.files,
            total_files=progress.total_files,
            bytes=progress.bytes,
            total_bytes=progress.total_bytes,
            fetched_bytes=progress.fetched_bytes,
        )

    return report


def waiter(output: Output) -> Callable[[], None]:
    """Return what tells, once, that another process makes the view."""
    told: list[bool] = []

    def waiting() -> None:
        if not told:
            told.append(True)
            output.note("another process on this node is warming this snapshot: waiting for it")
            output.event("waiting")

    return waiting
