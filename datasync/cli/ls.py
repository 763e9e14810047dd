"""datasync ls."""

import stat
from datetime import UTC, datetime

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, path_text
from datasync.config import Flags
from datasync.model.entries import DIRECTORY, FILE, SYMLINK, Entry
from datasync.service.look import entries, status
from datasync.service.references import open_reference

KINDS = {FILE: "file", DIRECTORY: "directory", SYMLINK: "symlink"}
_BITS = {FILE: stat.S_IFREG, DIRECTORY: stat.S_IFDIR, SYMLINK: stat.S_IFLNK}


@click.command("ls")
@click.argument("reference", required=False)
@click.argument("path", default="")
@click.option("-l", "--long", "long_form", is_flag=True, help="Show mode, size and time.")
@click.option("-R", "--recursive", is_flag=True, help="List everything beneath PATH.")
@common
def command(reference: str | None, path: str, long_form: bool, recursive: bool, output: Output, flags: Flags) -> None:
    """List the datasets, or the entries of the snapshot REFERENCE at PATH."""
    count = 0
    with session(flags, output) as opened:
        if reference is None:
            for item in status(opened)[0]:
                output.line(item.name)
                output.event(
                    "dataset", dataset=item.name, trust=item.trust, seq=item.newest.body.seq if item.newest else None
                )
                count += 1
        else:
            dataset, snapshot = open_reference(opened, reference)
            for entry in entries(dataset, snapshot, path.encode("utf-8", "surrogateescape"), recursive=recursive):
                output.line(_long(entry) if long_form else path_text(entry.path))
                output.event("entry", **_fields(entry))
                count += 1
    output.result(entries=count)


def _long(entry: Entry) -> str:
    when = datetime.fromtimestamp(entry.mtime // 1_000_000_000, UTC)
    target = f" -> {path_text(entry.target)}" if entry.target else ""
    mode = stat.filemode(_BITS[entry.kind] | entry.mode)
    return f"{mode} {entry.size:>15,} {when:%Y-%m-%d %H:%M:%S} {path_text(entry.path)}{target}"


def _fields(entry: Entry) -> dict[str, object]:
    return {
        "path": path_text(entry.path),
        "kind": KINDS[entry.kind],
        "mode": entry.mode,
        "mtime": entry.mtime,
        "bytes": entry.size,
        "target": path_text(entry.target),
        "chunks": len(entry.chunks),
        "hole_bytes": sum(length for _, length in entry.holes),
    }
