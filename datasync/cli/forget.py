"""datasync forget."""

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, shown
from datasync.cli.span import seconds
from datasync.config import Flags
from datasync.errors import UsageError
from datasync.repository.removal import Kept
from datasync.repository.retention import KeepRules, moment
from datasync.service.forget import ForgetOptions, Plan, carry_out, plan

KEPT_NAMED = 10
_PERIODS = {"hourly": "hours", "daily": "days", "weekly": "ISO weeks", "monthly": "months", "yearly": "years"}


def _keep_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the --keep options; pass them as `rules`."""

    @click.option("--keep-last", type=click.IntRange(min=1), metavar="N", help="Keep the N newest.")
    @click.option("--keep-within", metavar="SPAN", help="Keep those at most so much older than the newest: 12h, 30d.")
    @click.option(
        "--keep-tag",
        multiple=True,
        metavar="GLOB",
        help="With --include-tagged: keep those with such a tag; may be repeated.",
    )
    @functools.wraps(function)
    def wrapper(
        *args: Any, keep_last: int | None, keep_within: str | None, keep_tag: tuple[str, ...], **kw: Any
    ) -> Any:
        periods = {name: kw.pop(f"keep_{name}") or 0 for name in _PERIODS}
        if "" in keep_tag:  # as of a variable that is not set: it would match nothing and keep nothing
            raise UsageError("--keep-tag: expected a tag's name or a pattern like 'rel-*', found none")
        within = int(seconds(keep_within) * 1000) if keep_within else 0
        return function(*args, rules=KeepRules(last=keep_last or 0, within=within, tags=keep_tag, **periods), **kw)

    for name, words in _PERIODS.items():
        text = f"Keep the newest of each of the last N {words} with one (UTC)."
        wrapper = click.option(f"--keep-{name}", type=click.IntRange(min=1), metavar="N", help=text)(wrapper)
    return wrapper


@click.command("forget")
@click.argument("references", nargs=-1, required=True, metavar="REF…")
@_keep_options
@click.option("--include-tagged", is_flag=True, help="A tag alone protects no snapshot.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be forgotten.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def command(
    references: tuple[str, ...],
    rules: KeepRules,
    include_tagged: bool,
    dry_run: bool,
    yes: bool,
    output: Output,
    flags: Flags,
) -> None:
    """Forget the snapshots REF (NAME@SEQ, NAME@HASH, NAME:TAG), or those of a dataset NAME that no --keep rule keeps.

    The newest is never forgotten. Space is freed by `datasync prune`.
    """
    with session(flags, output) as opened:
        plans = plan(opened, references, ForgetOptions(rules, include_tagged))
        for item in plans:
            _show(item, output, dry=dry_run)
        count = sum(len(item.chosen) for item in plans)
        if count and not (dry_run or yes):
            _ask(count)
        held: list[Kept] = []
        for item in plans if not dry_run else ():
            held += carry_out(opened, item) if item.chosen else []
    for kept in held[:KEPT_NAMED]:
        output.warn(f"{kept.name}: {kept.why}{_until(kept)}: it is forgotten and its object stays there until then")
    _result(plans, held, output, dry=dry_run)


def _ask(count: int) -> None:
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"Forget {plural(count, 'snapshot')}? This can not be undone.", err=True, abort=True)


def _until(kept: Kept) -> str:
    return "" if kept.until is None else f" until {datetime.fromtimestamp(kept.until, UTC):%Y-%m-%d %H:%M} UTC"


def _show(work: Plan, output: Output, *, dry: bool) -> None:
    name = work.dataset.name
    for choice in work.choices:
        item, made = choice.snapshot, f"{moment(choice.snapshot.created):%Y-%m-%d %H:%M:%S}"
        what = f"keep ({', '.join(map(shown, choice.kept))})" if choice.kept else "forget"
        output.line(f"{name}@{item.seq} {item.id.hex()[:16]} {made} {what}")
        output.event(
            "keep" if choice.kept else "forget",
            dataset=name,
            seq=item.seq,
            snapshot=item.id.hex(),
            created=item.created,
            tags=list(item.tags),
            kept=list(choice.kept),
            dry_run=dry,
        )


def _result(plans: list[Plan], held: list[Kept], output: Output, *, dry: bool) -> None:
    count = sum(len(item.chosen) for item in plans)
    would = "would be forgotten" if dry else "forgotten"
    output.note(f"{plural(count, 'snapshot')} {would}" + ("" if dry or not count else ": datasync prune frees space"))
    output.result(
        datasets={item.dataset.name: [chosen.seq for chosen in item.chosen] for item in plans},
        forgotten=0 if dry else count,
        would_forget=count if dry else 0,
        kept_by_store=len(held),
        dry_run=dry,
    )
