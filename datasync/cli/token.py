"""datasync token."""

from datetime import UTC, datetime
from pathlib import Path

import click

from datasync.cli.common import CommandGroup, common
from datasync.cli.output import Output, plural
from datasync.cli.secret import write_secret_file
from datasync.cli.span import seconds
from datasync.config import Flags, load_config
from datasync.errors import UsageError
from datasync.service import tokens


@click.group("token", cls=CommandGroup)
def command() -> None:
    """Give nodes tokens for datasets; list and revoke them. Runs on the control side."""


@command.command("create")
@click.option("--node", required=True, metavar="NAME", help="The node that gets it.")
@click.option("--dataset", "datasets", multiple=True, required=True, metavar="NAME", help="A dataset; may be repeated.")
@click.option("--actions", default="warm", metavar="LIST", help="What it may do: warm, status, or both with a comma.")
@click.option("--ttl", default="12h", metavar="TIME", help="How long it lives, like 12h.")
@click.option("--snapshots", default="", metavar="FIRST-LAST", help="Only these snapshots, like 3-7 or 3-.")
@click.option(
    "--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write it to this file (0600)."
)
@common
def create(
    node: str,
    datasets: tuple[str, ...],
    actions: str,
    ttl: str,
    snapshots: str,
    target: Path | None,
    output: Output,
    flags: Flags,
) -> None:
    """Make a token and print it, this once."""
    first, last = _range(snapshots)
    names = tuple(part for part in actions.split(",") if part)
    wanted = tokens.Wanted(node, datasets, names, seconds(ttl), first, last)
    if target is not None and target.exists():
        raise UsageError(f"{target}: expected no file there, found one: it is not overwritten")
    token, text = tokens.create(load_config(flags), wanted)
    if target is not None:
        write_secret_file(target, text.encode() + b"\n")
    else:
        output.line(text)
    output.note(f"token {token.id} for {node}, until {_time(token.until)}; revoke it: datasync token revoke {token.id}")
    shown = {"token": text} if target is None else {"output": str(target)}
    output.result(id=token.id, node=node, until=token.until, **shown)


@command.command("list")
@common
def list_tokens(output: Output, flags: Flags) -> None:
    """List all tokens."""
    found = tokens.shown(load_config(flags))
    for item in found:
        state = f"revoked {_time(item.revoked)}" if item.revoked else f"until {_time(item.until)}"
        output.line(f"{item.id} {item.node} {','.join(item.actions)} {','.join(item.datasets)} {state}")
    if not found:
        output.note("no token yet")
    output.result(tokens=[_fields(item) for item in found])


@command.command("revoke")
@click.argument("token")
@common
def revoke(token: str, output: Output, flags: Flags) -> None:
    """End TOKEN (its id, the id's beginning, or the token itself) at once."""
    ended = tokens.revoke(load_config(flags), token)
    output.note(f"token {ended.id} of {ended.node}: revoked; what was lent with it ends within {plural(12, 'hour')}")
    output.note("to end that at once, and for good: datasync key rotate DATASET")
    output.result(id=ended.id, node=ended.node, revoked=ended.revoked)


def _fields(item: tokens.Token) -> dict[str, object]:
    return {name: getattr(item, name) for name in item.__struct_fields__ if name != "digest"}


def _range(text: str) -> tuple[int, int]:
    if not text:
        return 1, 0
    first, dash, last = text.partition("-")
    if not (first.isdigit() and (last.isdigit() or not last)):
        raise UsageError(f"--snapshots {text!r}: expected FIRST-LAST, like 3-7 or 3-")
    return int(first), int(last) if last else (0 if dash else int(first))


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
