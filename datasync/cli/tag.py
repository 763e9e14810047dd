"""datasync tag."""

import click

from datasync.cli.common import common, dry_option, session
from datasync.cli.output import Output, shown
from datasync.config import Flags
from datasync.errors import UsageError
from datasync.format.control import TagAssignment
from datasync.repository.snapshots import Snapshot
from datasync.repository.tags import read_all
from datasync.service.references import open_dataset, open_reference, parse_reference
from datasync.service.tag import check_tag, set_tag


@click.command("tag")
@click.argument("reference")
@click.argument("tag", required=False)
@click.option("--delete", is_flag=True, help="Remove the tag.")
@dry_option
@common
def command(reference: str, tag: str | None, delete: bool, dry_run: bool, output: Output, flags: Flags) -> None:
    """Point TAG at the snapshot REFERENCE; without TAG list the dataset's tags."""
    if delete and tag is None:
        raise UsageError("tag --delete: expected the tag to remove, found none")
    with session(flags, output) as opened:
        snapshot: Snapshot | None = None
        if tag is None or delete:
            dataset = open_dataset(opened, parse_reference(reference).name)
        else:
            dataset, snapshot = open_reference(opened, reference)
        if tag is not None:
            before = read_all(dataset.history).get(tag)
            (check_tag if dry_run else set_tag)(opened, dataset, tag, snapshot)
            _tell(f"{dataset.name}:{shown(tag)}", before, snapshot, output, dry=dry_run)
        found = read_all(dataset.history)
    for name, item in found.items():
        output.line(f"{dataset.name}:{shown(name)} -> @{item.seq} {item.snapshot.hex()[:16]}")
    tags = {name: item.seq for name, item in found.items()}
    output.result(dataset=dataset.name, tags=tags, **({"dry_run": True} if dry_run else {}))


def _tell(name: str, before: TagAssignment | None, snapshot: Snapshot | None, output: Output, *, dry: bool) -> None:
    if snapshot is None:
        removed = "would be removed" if dry else "removed"
        output.note(f"{name}: " + (removed if before is not None else "there was no such tag"))
    elif dry:
        output.note(
            f"{name}: would point at @{snapshot.body.seq}, points at " + (f"@{before.seq}" if before else "none")
        )
