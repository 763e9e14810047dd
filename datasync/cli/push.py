"""datasync push."""

from dataclasses import replace
from pathlib import Path

import click

from datasync.cli.common import common, session, storage_class_option
from datasync.cli.output import Output, path_text, plural, shown, size
from datasync.cli.transfer import push_reporter
from datasync.config import Flags
from datasync.errors import PartialFailure
from datasync.push.options import PushOptions
from datasync.service.push import Pushed, push_directory
from datasync.service.session import TOOL

NAMED = 20  # skipped entries named on a terminal without -v


@click.command("push")
@click.argument("path", type=click.Path(path_type=Path, readable=False))  # the engine says what is wrong with it
@click.option("--dataset", metavar="NAME", help="The dataset (default: the directory's name).")
@click.option("--tag", metavar="TAG", help="Point this tag at the snapshot.")
@click.option("-m", "--message", metavar="TEXT", default="", help="A message kept in the snapshot.")
@click.option(
    "--include", multiple=True, metavar="GLOB", help="Keep what matches, whatever excludes it (gitignore syntax)."
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out what matches (gitignore syntax).")
@click.option("--checksum", is_flag=True, help="Read every file and compare its content, not only its times.")
@click.option("--xattrs", is_flag=True, help="Keep user extended attributes.")
@click.option("--one-file-system", is_flag=True, help="Do not enter directories of other file systems.")
@click.option("--allow-empty", is_flag=True, help="Push although most of the source is gone.")
@click.option(
    "--source-change", is_flag=True, help="This directory is a copy of the tree that others push into the dataset."
)
@click.option("--watch", is_flag=True, help="Stay, and push whenever the directory has changed.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be pushed.")
@storage_class_option
@common
def command(
    path: Path,
    dataset: str | None,
    tag: str | None,
    message: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    checksum: bool,
    xattrs: bool,
    one_file_system: bool,
    allow_empty: bool,
    source_change: bool,
    watch: bool,
    dry_run: bool,
    storage_class: str | None,
    output: Output,
    flags: Flags,
) -> None:
    """Push the directory PATH: what changed since the last push goes up, sealed; then a snapshot is made."""

    if watch:
        from datasync.cli.push_watch import Watched, watch_directory  # the daemon's engine: 25 ms to load

        wanted = Watched(path, dataset, tag or "", include, exclude, xattrs, source_change)
        others = (message, checksum, allow_empty, one_file_system, dry_run, storage_class)
        watch_directory(wanted, output, flags, alone=not any(others))
        return

    if flags.daemon not in (None, "off"):
        from datasync.cli.push_mirror import push_by_daemon

        said = (tag, message, include, exclude, checksum, xattrs, one_file_system, allow_empty, source_change)
        push_by_daemon(path, dataset, output, flags, alone=not any((*said, dry_run, storage_class)))
        return

    with session(replace(flags, storage_class=storage_class), output) as opened:
        if opened.config.storage_class is not None:
            opened.tell_notes()  # no class with a fee for reading without a word
        options = PushOptions(
            include=include,
            exclude=exclude,
            checksum=checksum,
            allow_empty=allow_empty,
            source_change=source_change,
            xattrs=xattrs,
            one_file_system=one_file_system,
            dry_run=dry_run,
            message=message,
            count_ahead=output.shows_progress,
            chunker=opened.config.chunker,
            tool=TOOL,
        )
        done = push_directory(opened, path, dataset, options, tag=tag, report=push_reporter(output))
    _tell(done, output, dry_run=dry_run)
    if tag and not dry_run and done.result.snapshot is not None:
        output.note(f"{done.dataset}:{shown(tag)} -> @{done.result.snapshot.body.seq}")
    skipped = done.result.skipped
    if skipped:
        raise PartialFailure(
            f"{plural(len(skipped), 'entry')} not pushed, each named above; everything else is in the snapshot"
        )


def _tell(done: Pushed, output: Output, *, dry_run: bool) -> None:
    result, changes = done.result, done.result.changes
    _tell_skipped(done, output)
    counts = (
        f"{changes.added:,} new, {changes.changed:,} changed, "
        f"{changes.removed:,} removed of {plural(changes.found, 'entry')}"
    )
    if dry_run:
        output.note(f"{done.dataset}: would push {counts}")
    elif result.created and result.snapshot is not None:
        output.note(f"{done.dataset}@{result.snapshot.body.seq} ({result.snapshot.id.hex()[:16]}): {counts}")
        output.note(
            f"sent {size(result.progress.sent_bytes)} for {size(result.progress.new_bytes)} of new data in "
            f"{result.seconds:.1f} s"
        )
    elif result.snapshot is not None:
        output.note(
            f"{done.dataset}@{result.snapshot.body.seq}: nothing changed in {plural(changes.found, 'entry')}, "
            "nothing was sent"
        )
    if done.new_dataset and not dry_run:
        output.note(f"new dataset {done.dataset}; its trust root, for those who will read it: {done.dataset_id.hex()}")
    snapshot = result.snapshot
    output.result(
        dataset=done.dataset,
        trust=done.dataset_id.hex(),
        seq=snapshot.body.seq if snapshot else None,
        snapshot=snapshot.id.hex() if snapshot else None,
        created=result.created,
        dry_run=dry_run,
        added=changes.added,
        changed=changes.changed,
        removed=changes.removed,
        entries=changes.found,
        bytes=result.totals.bytes,
        read_bytes=result.progress.read_bytes,
        new_bytes=result.progress.new_bytes,
        sent_bytes=result.progress.sent_bytes,
        skipped=len(result.skipped),
        seconds=round(result.seconds, 3),
    ) if not result.skipped else output.event(
        "pushed", dataset=done.dataset, seq=snapshot.body.seq if snapshot else None
    )


def _tell_skipped(done: Pushed, output: Output) -> None:
    skipped = done.result.skipped
    for item in skipped:
        output.event("skipped", path=path_text(item.path), reason=item.reason)
    for item in skipped if output.verbose else skipped[:NAMED]:
        output.warn(f"skipped {path_text(item.path)}: {item.reason}")
    if len(skipped) > NAMED and not output.verbose:
        output.warn(f"and {len(skipped) - NAMED} more: -v names all")
