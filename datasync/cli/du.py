"""datasync du."""

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, size
from datasync.config import Flags
from datasync.service.look import log, usage
from datasync.service.references import open_reference


@click.command("du")
@click.argument("reference")
@click.option("--all", "everything", is_flag=True, help="All snapshots of the dataset together.")
@common
def command(reference: str, everything: bool, output: Output, flags: Flags) -> None:
    """Show the sizes of a snapshot: its files, their unique chunks, and the packs that hold them."""
    with session(flags, output) as opened:
        dataset, snapshot = open_reference(opened, reference)
        found = usage(dataset, list(log(dataset)) if everything else [snapshot])
    output.line(f"{plural(found.snapshots, 'snapshot')}, {plural(found.files, 'file')}")
    output.line(f"raw          {size(found.raw):>12}")
    output.line(f"deduplicated {size(found.deduplicated):>12}")
    output.line(
        f"stored       {size(found.stored):>12} in {plural(found.packs, 'pack')} and the snapshots, padding included"
    )
    output.result(
        dataset=dataset.name,
        snapshots=found.snapshots,
        files=found.files,
        raw_bytes=found.raw,
        deduplicated_bytes=found.deduplicated,
        stored_bytes=found.stored,
        packs=found.packs,
    )
