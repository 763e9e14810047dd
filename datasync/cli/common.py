"""Options that every command has, and the session that they make."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from datasync.cli.output import Output, Relay
from datasync.cli.secret import ask_secret
from datasync.cli.stall import told_stalls
from datasync.config import Flags, load_config
from datasync.errors import UsageError
from datasync.service.record import watched
from datasync.service.session import Session

SUMMARY = 300  # characters of a command's first sentence; longer than any of ours


class CommandGroup(click.Group):
    """A group whose help shows the whole first sentence of each command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, item.get_short_help_str(SUMMARY).removesuffix(".")) for name, item in found if item is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


cache_option = click.option(
    "--cache",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A cache directory; several disks: repeat it (or DATASYNC_CACHE, separated by colons).",
)


subset_option = click.option(
    "--subset", multiple=True, metavar="GLOB", help="Only what matches, with its parents; may be repeated."
)

order_option = click.option(
    "--order", multiple=True, metavar="GLOB|@FILE", help="What to fetch first; @FILE has a pattern a line."
)

dry_option = click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done; change nothing.")

group_option = click.option(
    "--group", metavar="NAME", help="The local group that may read, while no policy is in force (or [cache] group)."
)

storage_class_option = click.option(
    "--storage-class", metavar="NAME", help="The provider's class for new objects (or [push] storage_class)."
)


def patterns(order: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns of --order, those of files in their place."""
    found: list[str] = []
    for text in order:
        if not text.startswith("@"):
            found.append(text)
            continue
        try:
            lines = Path(text[1:]).read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            raise UsageError(f"--order {text}: expected a text file with a pattern a line, it cannot be read") from None
        found += [line.strip() for line in lines if line.strip()]
    return tuple(found)


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, -q, -v, --config, --repository, --trust and --daemon; pass an `Output` and `Flags`. A command that
    looks is the daemon's to run, when --daemon names one."""

    @click.option("--json", "as_json", is_flag=True, help="Print NDJSON events; the last line is the result.")
    @click.option("-q", "--quiet", is_flag=True, help="Print no messages but warnings and errors.")
    @click.option("-v", "--verbose", count=True, help="Print more; -vv prints tracebacks.")
    @click.option("--config", type=click.Path(path_type=Path), help="Read this configuration file alone.")
    @click.option("--repository", metavar="URL", help="The repository (or DATASYNC_REPOSITORY).")
    @click.option("--trust", multiple=True, metavar="ID", help="A dataset id to trust (or DATASYNC_TRUST).")
    @click.option("--daemon", metavar="URL", help="The daemon to ask: a socket, a control side's URL, or off.")
    @click.option("--relayed", is_flag=True, hidden=True)
    @functools.wraps(function)
    def wrapper(
        *args: Any,
        as_json: bool,
        quiet: bool,
        verbose: int,
        config: Path | None,
        repository: str | None,
        trust: tuple[str, ...],
        daemon: str | None,
        relayed: bool,
        **kwargs: Any,
    ) -> Any:
        flags = Flags(repository=repository, config=config, trust=trust, daemon=daemon)
        output = Relay(verbose=verbose) if relayed else Output(as_json=as_json, quiet=quiet, verbose=verbose)
        if daemon not in (None, "off"):
            from datasync.cli.by_daemon import asked_daemon  # HTTP and TLS take 20 ms to load

            if asked_daemon(flags, output):
                return None
        return function(*args, output=output, flags=flags, **kwargs)

    return wrapper


def _ask(name: str, dataset: str) -> bool:
    click.echo(f"Dataset {name!r} is not known on this machine. Its trust root is\n  {dataset}", err=True)
    return click.confirm("Is that what its owner told you?", err=True)


@contextmanager
def session(flags: Flags, output: Output) -> Iterator[Session]:
    """Yield a session for *flags*; on a terminal it asks before it trusts a new dataset."""
    terminal = sys.stdin.isatty() and sys.stderr.isatty() and not output.as_json
    opened = Session(load_config(flags), ask=_ask if terminal else None, warn=output.warn, secret=ask_secret)
    try:
        with watched(opened), told_stalls(opened, output):
            yield opened
    finally:
        opened.close()


def short(digest: bytes) -> str:
    """Return the first digits of an id."""
    return digest.hex()[:16]
