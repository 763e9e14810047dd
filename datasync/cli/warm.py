"""datasync warm."""

from dataclasses import replace
from pathlib import Path

import click

from datasync.cli.common import (
    cache_option,
    common,
    dry_option,
    group_option,
    order_option,
    patterns,
    session,
    subset_option,
)
from datasync.cli.output import Output, plural, size
from datasync.cli.span import seconds
from datasync.cli.transfer import reporter, waiter
from datasync.config import Flags
from datasync.service.hook import warm_by_daemon
from datasync.service.session import Session
from datasync.service.warm import Warmed, WarmOptions


@click.command("warm")
@click.argument("references", nargs=-1, required=True)
@click.option("--pin", is_flag=True, help="Keep the view from being evicted.")
@click.option("--ttl", metavar="TIME", help="Pin it for this time, like 12h.")
@click.option("--wait/--no-wait", default=True, help="Wait for another process that makes the view (default), or fail.")
@subset_option
@order_option
@group_option
@cache_option
@dry_option
@common
def command(
    references: tuple[str, ...],
    pin: bool,
    ttl: str | None,
    wait: bool,
    subset: tuple[str, ...],
    order: tuple[str, ...],
    group: str | None,
    cache: tuple[Path, ...],
    dry_run: bool,
    output: Output,
    flags: Flags,
) -> None:
    """Make each REFERENCE ready in the node's cache; print the path of each ready directory."""
    flags = replace(flags, caches=cache)
    if dry_run:
        from datasync.cli.plan import plan_warms  # a warm loads none of it

        plan_warms(references, subset, patterns(order), group, output, flags)
        return
    options = WarmOptions(
        pin=pin or ttl is not None,
        pin_seconds=seconds(ttl) if ttl is not None else None,
        wait=wait,
        subset=subset,
        order=patterns(order),
        group=group,
    )
    with session(flags, output) as opened:
        done = [warm_one(opened, reference, output, options) for reference in references]
    for item in done:
        output.line(str(item.path))
    output.result(views=[fields(item) for item in done], **fields(done[0]))


def warm_one(opened: Session, reference: str, output: Output, options: WarmOptions) -> Warmed:
    """Warm one reference and say what was done."""
    done = warm_by_daemon(opened, reference, reporter(output), waiter(output), options)
    result = done.result
    where = f"{done.dataset}@{done.seq}"
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
        "seq": done.seq,
        "snapshot": done.snapshot.hex(),
        "path": str(done.path),
        "files": result.files if result else 0,
        "kept": result.kept if result else done.files,
        "fetched_bytes": result.fetched_bytes if result else 0,
    }
