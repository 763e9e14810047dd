"""datasync verify."""

import re

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, shown, size
from datasync.config import Flags
from datasync.errors import IntegrityError, UsageError
from datasync.repository.check import CheckResult
from datasync.service.verify import verify

_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")


@click.command("verify")
@click.argument("dataset", required=False)
@click.option("--read-data", is_flag=True, help="Read packs and check every byte.")
@click.option("--sample", metavar="N%", help="With --read-data: a random share of the packs.")
@common
def command(dataset: str | None, read_data: bool, sample: str | None, output: Output, flags: Flags) -> None:
    """Check all snapshots of DATASET (default: of every dataset) and that their packs are there."""
    share = _share(sample) if sample else 1.0
    if sample and not read_data:
        raise UsageError("verify --sample: expected --read-data beside it")

    def report(progress: CheckResult) -> None:
        output.progress(
            f"{progress.snapshots} snapshots, {progress.pages:,} pages, read {size(progress.read_bytes)}",
            snapshots=progress.snapshots,
            pages=progress.pages,
            read_bytes=progress.read_bytes,
        )

    problems = []
    with session(flags, output) as opened:
        for name, found in verify(opened, dataset, read_data=read_data, sample=share, report=report):
            problems += found.problems
            _show(name, found, output)
    if problems:
        raise IntegrityError(f"{plural(len(problems), 'problem')} found, the first: {problems[0]}")
    output.result(problems=0)


def _show(name: str, found: CheckResult, output: Output) -> None:
    read = f", {plural(found.read_packs, 'pack')} read ({size(found.read_bytes)})" if found.read_packs else ""
    spare = f", {plural(found.unreferenced_packs, 'unreferenced pack')}" if found.unreferenced_packs else ""
    gone = f" ({found.forgotten:,} forgotten)" if found.forgotten else ""
    output.line(
        f"{name}: {plural(found.snapshots, 'snapshot')}{gone}, {plural(found.pages, 'page')}, "
        f"{plural(found.packs, 'pack')}{read}{spare}: "
        f"{'ok' if not found.problems else plural(len(found.problems), 'problem')}"
    )
    for problem in found.problems:
        output.warn(shown(problem))
    output.event(
        "verified",
        dataset=name,
        snapshots=found.snapshots,
        forgotten=found.forgotten,
        pages=found.pages,
        files=found.files,
        packs=found.packs,
        read_packs=found.read_packs,
        read_bytes=found.read_bytes,
        unreferenced_packs=found.unreferenced_packs,
        problems=found.problems,
    )


def _share(text: str) -> float:
    match = _SHARE.fullmatch(text)
    if not match or not 0 < float(match[1]) <= 100:
        raise UsageError(f"verify --sample: expected a share like 5%, found {text!r}")
    return float(match[1]) / 100
