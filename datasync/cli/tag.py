"""datasync tag."""

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, shown
from datasync.config import Flags
from datasync.errors import UsageError
from datasync.repository.tags import read_all
from datasync.service.references import open_dataset, open_reference, parse_reference
from datasync.service.tag import set_tag


@click.command("tag")
@click.argument("reference")
@click.argument("tag", required=False)
@click.option("--delete", is_flag=True, help="Remove the tag.")
@common
def command(reference: str, tag: str | None, delete: bool, output: Output, flags: Flags) -> None:
    """Point TAG at the snapshot REFERENCE; without TAG list the dataset's tags."""
    if delete and tag is None:
        raise UsageError("tag --delete: expected the tag to remove, found none")
    with session(flags, output) as opened:
        if tag is None or delete:
            dataset = open_dataset(opened, parse_reference(reference).name)
            if tag is not None:
                known = tag in read_all(dataset.history)
                set_tag(opened, dataset, tag, None)
                output.note(f"{dataset.name}:{shown(tag)}: " + ("removed" if known else "there was no such tag"))
        else:
            dataset, snapshot = open_reference(opened, reference)
            set_tag(opened, dataset, tag, snapshot)
        found = read_all(dataset.history)
    for name, item in found.items():
        output.line(f"{dataset.name}:{shown(name)} -> @{item.seq} {item.snapshot.hex()[:16]}")
    output.result(dataset=dataset.name, tags={name: item.seq for name, item in found.items()})
