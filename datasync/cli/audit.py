"""datasync audit: the group, and the commands that look."""

import importlib
import json
import time
from pathlib import Path
from typing import Any

import click

from datasync.audit.rows import Row, as_json
from datasync.cli.common import CommandGroup, common
from datasync.cli.output import Output, shown, size
from datasync.config import Flags, load_config
from datasync.service import audit

COMMANDS = {
    "tail": "",
    "query": "",
    "show": "",
    "verify": "audit_check",
    "prove": "audit_check",
    "anchor": "audit_check",
    "ship": "audit_remote",
    "export": "audit_hand_out",
    "report": "audit_hand_out",
    "retain": "audit_keep",
    "hold": "audit_keep",
    "erase": "audit_keep",
}
POLL_SECONDS = 1.0

log_option = click.option(
    "--log",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A log's directory, brought from another machine.",
)


class _Commands(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module:
            found: click.Command = importlib.import_module(f"datasync.cli.{module}").COMMANDS[cmd_name]
            return found
        return super().get_command(ctx, cmd_name)


@click.group("audit", cls=_Commands)
def command() -> None:
    """Look at the audit log, verify and prove it, and hand it out. Needs no network but for ship and --remote."""


def search_options(function: Any) -> Any:
    """Add the options of a search."""
    for option, metavar, text in (
        ("--until", "TIME", "Before this: a date, a time, or a span before now like 7d."),
        ("--since", "TIME", "From this on: a date, a time, or a span before now like 7d."),
        ("--request", "ID", "With this request id."),
        ("--outcome", "NAME", "With this outcome: intent, success, partial, failure or denied."),
        ("--action", "NAME", "This action, or all beneath it: key means key.grant, key.revoke …"),
        ("--dataset", "NAME", "About this dataset."),
        ("--target", "PERSON", "About this person."),
        ("--actor", "PERSON", "By this person."),
    ):
        function = click.option(option, metavar=metavar, default="", help=text)(function)
    return function


def line_of(row: Row) -> str:
    """Return the event on one line for a terminal."""
    event = row.event
    what = [event.time[:19] + "Z", str(event.seq), event.action, event.outcome, row.actor or "-"]
    if row.concerned:
        what.append(f"-> {row.concerned}")
    if event.dataset:
        what.append(event.dataset + (f"@{event.snapshot_seq}" if event.snapshot_seq else ""))
    if event.bytes:
        what.append(size(event.bytes))
    if event.reason:
        what.append(f"({event.reason})")
    return shown(" ".join(what)).replace("\n", "\\n")


def print_row(row: Row, output: Output) -> None:
    """Print one event."""
    output.line(line_of(row))
    output.event("event", **as_json(row))


@command.command("tail")
@click.option("-n", "count", metavar="N", default=20, show_default=True, help="How many events.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@log_option
@search_options
@common
def tail(count: int, follow: bool, directory: Path | None, output: Output, flags: Flags, **search: str) -> None:
    """Show the newest events."""
    config, asked = load_config(flags), audit.Search(**search)
    seen = audit.ends(config, directory) if follow else {}
    found = audit.tail(config, asked, count, directory)
    for row in found:
        print_row(row, output)
        seen[row.event.log] = max(row.event.seq, seen.get(row.event.log, -1))
    while follow:
        time.sleep(POLL_SECONDS)
        for row in audit.follow(config, asked, seen, directory):
            print_row(row, output)
    output.result(events=len(found))


@command.command("query")
@log_option
@search_options
@common
def query(directory: Path | None, output: Output, flags: Flags, **search: str) -> None:
    """Find events, the oldest first."""
    count = 0
    for row in audit.query(load_config(flags), audit.Search(**search), directory):
        print_row(row, output)
        count += 1
    output.note(f"{count:,} events")
    output.result(events=count)


@command.command("show")
@click.argument("seq", type=click.IntRange(min=0))
@log_option
@common
def show(seq: int, directory: Path | None, output: Output, flags: Flags) -> None:
    """Show event SEQ whole."""
    row = audit.show(load_config(flags), seq, directory)
    output.line(shown(json.dumps(as_json(row), indent=1, ensure_ascii=False)))
    output.event("event", **as_json(row))
    output.result(log=row.event.log, seq=row.event.seq)
