"""datasync prune."""

import re
from datetime import UTC, datetime

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, shown, size
from datasync.cli.span import seconds
from datasync.config import Flags
from datasync.errors import PartialFailure, UsageError
from datasync.repository.prune import Pruned, PruneOptions
from datasync.repository.removal import Kept
from datasync.service.prune import prune

KEPT_NAMED = 10
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%?")


@click.command("prune")
@click.argument("datasets", nargs=-1, metavar="[DATASET…]")
@click.option(
    "--max-unused", default="5%", show_default=True, metavar="N%", help="How much of kept packs may be spare."
)
@click.option("--repack/--no-repack", default=True, help="Seal anew what is needed of packs that are mostly spare.")
@click.option(
    "--grace", default="14d", show_default=True, metavar="SPAN", help="How long condemned packs stay, or more."
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be done.")
@common
def command(
    datasets: tuple[str, ...], max_unused: str, repack: bool, grace: str, dry_run: bool, output: Output, flags: Flags
) -> int:
    """Free the space of what no snapshot of DATASET needs (default: of every dataset that this identity writes).

    What is found is condemned now and deleted by a later run, after the grace time: no push anywhere loses a pack that
    it relies on. Run it once a day; it may be killed at any time.
    """
    options = PruneOptions(_share(max_unused), repack, int(seconds(grace) * 1000), dry_run)
    total: dict[str, int] = {}
    refused: list[Kept] = []
    with session(flags, output) as opened:
        for name, done in prune(opened, datasets, options, lambda p: _progress(p, output)):
            _show(name, done, output, dry=dry_run)
            refused += [item for item in done.kept if item.until is None]
            for key, value in _counts(done).items():
                total[key] = total.get(key, 0) + value
    output.result(**total, dry_run=dry_run, exit=PartialFailure.exit_code if refused else 0)
    return PartialFailure.exit_code if refused else 0


def _share(text: str) -> float:
    match = _SHARE.fullmatch(text)
    if not match or float(match[1]) > 100:
        raise UsageError(f"--max-unused: expected a share like 5%, found {text!r}")
    return float(match[1]) / 100


def _progress(done: Pruned, output: Output) -> None:
    output.progress(
        f"{plural(done.snapshots, 'snapshot')} surveyed, {plural(done.deleted, 'pack')} deleted",
        snapshots=done.snapshots,
        deleted=done.deleted,
    )


def _counts(done: Pruned) -> dict[str, int]:
    names = ("packs", "bytes", "spare_bytes", "repacked", "repacked_bytes", "condemned", "condemned_bytes", "deleted")
    found = {name: int(getattr(done, name)) for name in (*names, "deleted_bytes", "waiting", "young", "left")}
    return {**found, "kept_by_store": len(done.kept)}


def _show(name: str, done: Pruned, output: Output, *, dry: bool) -> None:
    would = "would be " if dry else ""
    output.line(
        f"{name}: {plural(done.packs, 'pack')}, {size(done.bytes)}; "
        f"{plural(done.deleted, 'pack')} {would}deleted ({size(done.deleted_bytes)}), "
        f"{done.condemned:,} {would}condemned ({size(done.condemned_bytes)}), "
        f"{done.repacked:,} {would}sealed anew ({size(done.repacked_bytes)})"
    )
    for count, what in (
        (done.waiting, "condemned and waiting for the end of the grace time"),
        (done.young, "younger than 7 days that nothing needs: left alone, a push may be about to use them"),
        (done.left, "more that nothing needs: the list is full, the next run takes them"),
    ):
        if count:
            output.line(f"  {plural(count, 'pack')} {what}")
    if done.no_clock:
        output.warn(f"{name}: the store tells no times, so nothing can be deleted safely")
    for item in done.kept[:KEPT_NAMED]:
        output.warn(f"{item.name}: not deleted: {shown(item.why)}{_until(item)}")
    if len(done.kept) > KEPT_NAMED:
        last = max((item.until or 0 for item in done.kept), default=0)
        output.warn(f"{name}: {len(done.kept):,} objects not deleted{_until(Kept('', '', last or None))}")
    output.event("pruned", dataset=name, **_counts(done), dry_run=dry)


def _until(item: Kept) -> str:
    return "" if item.until is None else f" until {datetime.fromtimestamp(item.until, UTC):%Y-%m-%d %H:%M} UTC"
