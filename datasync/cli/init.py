"""datasync init."""

from dataclasses import replace

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output
from datasync.config import Flags


@click.command("init")
@click.argument("url", required=False)
@common
def command(url: str | None, output: Output, flags: Flags) -> None:
    """Make a repository at URL (a directory or s3://bucket/prefix), and an identity if there is none."""
    if url is not None:
        flags = replace(flags, repository=url)
    with session(flags, output) as opened:
        done = opened.initialise()
    output.note(f"repository {done.repository} made at {done.url}")
    made = "new identity" if done.identity_created else "identity"
    output.note(f"{made}: {done.identity} (keep a copy in a safe place: without it the data cannot be read)")
    if not done.conditional:
        output.warn(
            "this store does not honour put-if-absent: it works for one writer at a time; "
            "two commits at once are both kept and reported"
        )
    output.result(
        url=done.url,
        repository=done.repository,
        put_if_absent=done.conditional,
        identity=str(done.identity),
        identity_created=done.identity_created,
    )
