"""datasync status."""

from datetime import UTC, datetime

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, shown, size
from datasync.config import Flags
from datasync.service.look import DatasetStatus, status


@click.command("status")
@common
def command(output: Output, flags: Flags) -> None:
    """Show the repository, its datasets, and how fresh their heads are."""
    with session(flags, output) as opened:
        found, closed = status(opened)
        repository, meter = opened.repository, opened.store.snapshot()
    output.line(f"repository {repository.marker.repository} at {repository.store.url}")
    for item in found:
        _show(item, output)
    if closed:
        output.line(f"{plural(closed, 'dataset')} more, without a slot for this identity")
    if not found and not closed:
        output.line("no dataset yet: datasync push DIRECTORY")
    datasets = [_fields(item) for item in found]
    output.result(
        repository=repository.marker.repository,
        url=repository.store.url,
        naming=repository.marker.naming,
        datasets=datasets,
        closed=closed,
        trust=datasets[0]["trust"] if len(datasets) == 1 else {item["dataset"]: item["trust"] for item in datasets},
        requests=sum(kind.requests for kind in (meter.get, meter.put, meter.list, meter.stat, meter.delete)),
    )


def _show(item: DatasetStatus, output: Output) -> None:
    newest = item.newest
    if newest is None:
        output.line(f"{item.name}: no snapshot yet")
        return
    body = newest.body
    made = datetime.fromtimestamp(body.created / 1000, UTC)
    tags = "".join(f" :{shown(tag)}" + (f"@{seq}" if seq != body.seq else "") for tag, seq in item.tags.items())
    output.line(
        f"{item.name}@{body.seq} {newest.id.hex()[:16]} {made:%Y-%m-%d %H:%M} UTC, "
        f"{plural(body.totals.files, 'file')}, {size(body.totals.bytes)}{tags}"
    )
    output.line(f"  trust {item.trust}")
    if item.forgotten:
        output.line(f"  {plural(item.forgotten, 'snapshot')} forgotten (datasync log {item.name})")
    if item.stale and item.expires is not None:
        left = datetime.fromtimestamp(item.expires / 1000, UTC)
        output.warn(
            f"{item.name}: its head is past half of its life (until {left:%Y-%m-%d}): "
            "push once to renew it, so new nodes accept it"
        )


def _fields(item: DatasetStatus) -> dict[str, object]:
    newest = item.newest
    return {
        "dataset": item.name,
        "trust": item.trust,
        "seq": newest.body.seq if newest else None,
        "snapshot": newest.id.hex() if newest else None,
        "created": newest.body.created if newest else None,
        "files": newest.body.totals.files if newest else 0,
        "bytes": newest.body.totals.bytes if newest else 0,
        "expires": item.expires,
        "stale": item.stale,
        "tags": item.tags,
        "writable": item.writable,
        "forgotten": item.forgotten,
    }
