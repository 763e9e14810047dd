"""datasync path."""

import time
from pathlib import Path

import click

from datasync.cli.cache import opened
from datasync.cli.common import cache_option, common, subset_option
from datasync.cli.output import Output
from datasync.cli.span import seconds
from datasync.config import Flags
from datasync.errors import DeadlineExceeded, NotFound
from datasync.service import local_views as views

POLL_SECONDS = 0.5


@click.command("path")
@click.argument("reference")
@click.option("--wait", is_flag=True, help="Wait until another process has made it ready.")
@click.option("--timeout", metavar="TIME", help="With --wait: give up after this time, like 30m.")
@subset_option
@cache_option
@common
def command(
    reference: str,
    wait: bool,
    timeout: str | None,
    subset: tuple[str, ...],
    cache: tuple[Path, ...],
    output: Output,
    flags: Flags,
) -> None:
    """Print the ready directory of REFERENCE on this node; asks no network. NAME is the newest local snapshot."""
    deadline = time.monotonic() + seconds(timeout) if timeout is not None else None
    while True:
        with opened(flags, cache, output) as (config, caches, limits):
            try:
                item = views.newest(views.local_views(caches, limits, output.warn), reference, subset)
                break
            except NotFound:
                if not wait:
                    raise
        if deadline is not None and time.monotonic() >= deadline:
            raise DeadlineExceeded(f"{reference}: not ready on this node after {timeout}: is a warm running?")
        time.sleep(POLL_SECONDS)
    views.check_signature(config.evidence, item)
    output.line(str(item.view.path))
    output.result(
        dataset=item.ready.dataset, seq=item.ready.seq, snapshot=item.ready.snapshot.hex(), path=str(item.view.path)
    )
