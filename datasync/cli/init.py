"""datasync init."""

from dataclasses import replace
from pathlib import Path

import click

from datasync.cli.common import common, session, storage_class_option
from datasync.cli.output import Output
from datasync.cli.secret import check_free, write_secret_file
from datasync.config import Flags
from datasync.service.recovery import export


@click.command("init")
@click.argument("url", required=False)
@click.option(
    "--recovery",
    "kit_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a recovery kit there: it opens every dataset that this identity makes.",
)
@storage_class_option
@common
def command(url: str | None, kit_file: Path | None, storage_class: str | None, output: Output, flags: Flags) -> None:
    """Make a repository at URL (a directory, s3://bucket/prefix or another), and an identity if there is none."""
    flags = replace(flags, storage_class=storage_class)
    if url is not None:
        flags = replace(flags, repository=url)
    if kit_file is not None:
        check_free(kit_file)
    with session(flags, output) as opened:
        done = opened.initialise()
        if kit_file is not None:
            write_secret_file(kit_file, export(opened)[0].text.encode())
        alone = opened.identity is not None and opened.identity.recovery is None
    output.note(f"repository {done.repository} made at {done.url}")
    made = "new identity" if done.identity_created else "identity"
    output.note(f"{made}: {done.identity} (keep a copy in a safe place: without it the data cannot be read)")
    if kit_file is not None:
        output.note(f"recovery kit: {kit_file}: print it, keep it apart from this machine, then remove the file")
    elif alone:
        output.warn(
            "datasets made here get one slot only, for this identity: when its file is lost, so is the data: "
            "run `datasync key export-recovery --output FILE`"
        )
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
        recovery=str(kit_file) if kit_file else None,
    )
