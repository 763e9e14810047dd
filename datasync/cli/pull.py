"""datasync pull."""

from pathlib import Path

import click

from datasync.cli.common import common, dry_option, session
from datasync.cli.output import Output, plural, size
from datasync.cli.transfer import reporter
from datasync.config import Flags
from datasync.service.warm import pull


@click.command("pull")
@click.argument("reference")
@click.argument("target", type=click.Path(path_type=Path, readable=False))
@dry_option
@common
def command(reference: str, target: Path, dry_run: bool, output: Output, flags: Flags) -> None:
    """Restore the snapshot REFERENCE into the directory TARGET; files that are there and the same are left alone."""
    if dry_run:
        from datasync.cli.plan import plan_one_pull  # a pull loads none of it

        plan_one_pull(reference, target, output, flags)
        return
    with session(flags, output) as opened:
        done = pull(opened, reference, target, reporter(output))
    result, snapshot = done.result, done.snapshot
    output.note(
        f"{done.dataset}@{snapshot.body.seq} in {target}: {plural(result.files, 'file')} written "
        f"({size(result.written_bytes)}), {result.kept:,} were there, in {result.seconds:.1f} s"
    )
    output.result(
        dataset=done.dataset,
        seq=snapshot.body.seq,
        snapshot=snapshot.id.hex(),
        path=str(target),
        files=result.files,
        kept=result.kept,
        bytes=result.written_bytes,
        fetched_bytes=result.fetched_bytes,
        seconds=round(result.seconds, 3),
    )
