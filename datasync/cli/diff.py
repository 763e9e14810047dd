"""datasync diff."""

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, path_text
from datasync.config import Flags
from datasync.errors import UsageError
from datasync.service.look import difference
from datasync.service.references import open_reference

MARKS = {"added": "+", "removed": "-", "changed": "M", "metadata": "U"}


@click.command("diff")
@click.argument("before")
@click.argument("after")
@common
def command(before: str, after: str, output: Output, flags: Flags) -> None:
    """Show what differs from the snapshot BEFORE to AFTER: + added, - removed, M content changed, U metadata only."""
    counts = dict.fromkeys(MARKS, 0)
    with session(flags, output) as opened:
        dataset, old = open_reference(opened, before)
        other, new = open_reference(opened, after)
        if other.id != dataset.id:
            raise UsageError(
                f"diff: {before} and {after} are of different datasets: ids are keyed, so nothing can be compared"
            )
        for item in difference(dataset, old, new):
            counts[item.kind] += 1
            output.line(f"{MARKS[item.kind]} {path_text(item.path)}")
            output.event("difference", kind=item.kind, path=path_text(item.path))
    output.note(", ".join(f"{count:,} {kind}" for kind, count in counts.items()))
    output.result(dataset=dataset.name, before=old.id.hex(), after=new.id.hex(), **counts)
