"""datasync warm."""

from dataclasses import replace
from pathlib import Path

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, size
from datasync.cli.transfer import reporter, waiter
from datasync.config import Flags
from datasync.service.session import Session
from datasync.service.warm import Warmed, warm


@click.command("warm")
@click.argument("references", nargs=-1, required=True)
@click.option(
    "--cache",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A cache directory; several disks: repeat it (or DATASYNC_CACHE, separated by colons).",
)
@common
def command(references: tuple[str, ...], cache: tuple[Path, ...], output: Output, flags: Flags) -> None:
    """Make each REFERENCE ready in the node's cache; print the path of each ready directory."""
    flags = replace(flags, caches=cache)
    with session(flags, output) as opened:
        done = [warm_one(opened, reference, output) for reference in references]
    for item in done:
        output.line(str(item.path))
    output.result(views=[fields(item) for item in done], **fields(done[0]))


def warm_one(opened: Session, reference: str, output: Output, *, lease: bool = False) -> Warmed:
    """Warm one reference and say what was done."""
    done = warm(opened, reference, reporter(output), waiter(output), lease=lease)
    result = done.result
    where = f"{done.dataset}@{done.snapshot.body.seq}"
    if result is None:
        output.note(f"{where}: ready before")
    else:
        output.note(
            f"{where}: ready, {plural(result.files, 'file')} fetched ({size(result.fetched_bytes)}), "
            f"{result.kept:,} shared, in {result.seconds:.1f} s"
        )
    return done


def fields(done: Warmed) -> dict[str, object]:
    """Return what --json tells of one view."""
    result = done.result
    return {
        "dataset": done.dataset,
        "seq": done.snapshot.body.seq,
        "snapshot": done.snapshot.id.hex(),
        "path": str(done.path),
        "files": result.files if result else 0,
        "kept": result.kept if result else done.snapshot.body.totals.files,
        "fetched_bytes": result.fetched_bytes if result else 0,
    }
