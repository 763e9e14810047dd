"""datasync log."""

from datetime import UTC, datetime

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, path_text, plural, shown, size
from datasync.config import Flags
from datasync.service.look import ForgottenSnapshot, log_all
from datasync.service.references import open_dataset


@click.command("log")
@click.argument("dataset")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show so many, the newest first.")
@common
def command(dataset: str, limit: int | None, output: Output, flags: Flags) -> None:
    """List the snapshots of DATASET, the newest first."""
    count = gone = 0
    with session(flags, output) as opened:
        for snapshot in log_all(open_dataset(opened, dataset)):
            if limit is not None and count >= limit:
                break
            if isinstance(snapshot, ForgottenSnapshot):
                gone += 1
                _show_forgotten(dataset, snapshot, output)
                continue
            count += 1
            body = snapshot.body
            made = datetime.fromtimestamp(body.created / 1000, UTC)
            where = f"{shown(body.source.host)}:{path_text(body.source.path)}"
            message = f" {shown(body.message)!r}" if body.message else ""
            output.line(
                f"{dataset}@{body.seq} {snapshot.id.hex()[:16]} {made:%Y-%m-%d %H:%M:%S} "
                f"{plural(body.totals.files, 'file')} {size(body.totals.bytes)} {where}{message}"
            )
            output.event(
                "snapshot",
                dataset=dataset,
                seq=body.seq,
                snapshot=snapshot.id.hex(),
                created=body.created,
                message=body.message,
                source={"host": body.source.host, "path": path_text(body.source.path)},
                entries=body.totals.entries,
                files=body.totals.files,
                bytes=body.totals.bytes,
                skipped=body.totals.skipped,
            )
    output.result(dataset=dataset, snapshots=count, forgotten=gone)


def _show_forgotten(dataset: str, item: ForgottenSnapshot, output: Output) -> None:
    body, made = item.body, datetime.fromtimestamp(item.body.created / 1000, UTC)
    when = datetime.fromtimestamp(item.forgotten / 1000, UTC)
    output.line(
        f"{dataset}@{body.seq} {item.id.hex()[:16]} {made:%Y-%m-%d %H:%M:%S} "
        f"forgotten on {when:%Y-%m-%d %H:%M} UTC by {shown(item.by)}"
    )
    output.event(
        "forgotten",
        dataset=dataset,
        seq=body.seq,
        snapshot=item.id.hex(),
        created=body.created,
        forgotten=item.forgotten,
        by=item.by,
    )
