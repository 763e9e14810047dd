"""datasync doctor."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from types import FrameType

import click

from datasync.cache.survey import QUICK as QUICK_SURVEY
from datasync.cache.survey import Survey, SurveyOptions
from datasync.cli.common import common
from datasync.cli.output import Output, plural, shown, size
from datasync.config import Flags, load_config
from datasync.errors import NoSpace, PartialFailure, UsageError
from datasync.service.doctor import GIB, NodeReport, StoreReport, examine_node, examine_store, warnings
from datasync.service.node import check_node
from datasync.storage.conformance import QUICK as QUICK_KIT
from datasync.storage.conformance import Finding, KitOptions
from datasync.storage.pace import BENCH_PACKS

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
QUICK_PACKS = 4
NAMED_LEFT = 3  # names of objects that could not be removed, in the message


@click.command("doctor")
@click.argument("url", required=False)
@click.option("--bench", is_flag=True, help="With URL: measure the throughput too (some hundred MiB each way).")
@click.option("--quick", is_flag=True, help="Write and list less.")
@click.option("--cache", multiple=True, type=click.Path(path_type=Path), help="A directory to measure, first of all.")
@click.option(
    "--min-free", type=click.IntRange(min=0), default=20, show_default=True, metavar="GIB", help="Room that is needed."
)
@common
def command(
    url: str | None, bench: bool, quick: bool, cache: tuple[Path, ...], min_free: int, output: Output, flags: Flags
) -> int:
    """Measure this node's disks and say which to use; with URL try whether that store does what is relied on.

    Whatever is written for that is removed again.
    """
    with _stopped_once():
        if url is None:
            if bench:
                raise UsageError("doctor --bench: expected the URL of a store, found none")
            return _node(replace(flags, caches=cache), quick, min_free * GIB, output)
        return _store(url, quick, bench, output)


@contextmanager
def _stopped_once() -> Iterator[None]:
    """Let the first signal end the command, and no second one its cleaning up."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def stop(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        raise SystemExit(128 + number)

    for number in SIGNALS:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is stop:  # after a signal all stay ignored until this process has ended
                signal.signal(number, handler)


def _node(flags: Flags, quick: bool, min_free: int, output: Output) -> int:
    config = load_config(flags)
    failed = []
    for check in check_node(config):
        failed += [] if check.ok else [check.name]
        sign = "missing" if not check.ok else "note" if check.note else "ok"
        output.line(f"{sign:8} {check.name:11} {shown(check.found)}")
        output.event("check", check=check.name, ok=check.ok, found=check.found)
    output.line()
    output.line(f"{'write':>12} {'files':>10} {'free':>11}  {'kind':14} {'links':14} directory")
    report = examine_node(
        config,
        os.environ,
        QUICK_SURVEY if quick else SurveyOptions(),
        min_free,
        lambda item: _show_survey(item, min_free, output),
    )
    for mount in report.unmeasured:
        path = shown(str(mount.path))
        output.note(f"not measured: {path} ({mount.type}, a network file system); --cache {path} measures it")
    return _conclude(report, failed, min_free, output)


def _show_survey(item: Survey, min_free: int, output: Output) -> None:
    told = warnings(item, min_free)
    links = "reflinks" if item.reflinks else "hard links" if item.links else "copies"
    kind = f"{item.kind} {item.filesystem}".strip()
    path = shown(str(item.path))
    if item.problem or item.pace is None:
        output.line(
            f"{'-':>12} {'-':>10} {size(item.free_bytes):>11}  {kind:14} {'-':14} {path}: {shown(item.problem)}"
        )
    else:
        same = f" (same file system as {shown(str(item.same_as))})" if item.same_as else ""
        output.line(
            f"{size(int(item.pace.write)) + '/s':>12} {item.pace.files:>8,.0f}/s {size(item.free_bytes):>11}  "
            f"{kind:14} {links:14} {path}{same}"
        )
    output.event("directory", **_fields(item), warnings=told)


def _fields(item: Survey) -> dict[str, object]:
    return {
        "path": str(item.path),
        "origin": item.origin,
        "kind": str(item.kind),
        "filesystem": item.filesystem,
        "source": item.source,
        "device": item.device,
        "free_bytes": item.free_bytes,
        "free_inodes": item.free_inodes,
        "reflinks": item.reflinks,
        "links": item.links,
        "write_bytes_per_second": round(item.pace.write) if item.pace else None,
        "files_per_second": round(item.pace.files) if item.pace else None,
        "same_as": str(item.same_as) if item.same_as else None,
        "usable": not item.problem,
        "problem": item.problem,
    }


def _conclude(report: NodeReport, failed: list[str], min_free: int, output: Output) -> int:
    best = report.best
    if best is None:
        raise NoSpace(f"{report.reason}: of {plural(len(report.surveys), 'directory')} none: each says why")
    line = f"export DATASYNC_CACHE={quote(str(best.path))}"
    output.line()
    output.line(f"use {shown(str(best.path))}: {report.reason}")
    output.line("it is configured already" if best.origin == "configured" else shown(line))
    told = warnings(best, min_free)
    for text in told:
        output.warn(f"{shown(str(best.path))}: {text}")
    if failed:
        output.warn(f"to be mended: {', '.join(failed)}")
    code = PartialFailure.exit_code if failed else 0
    output.result(cache=str(best.path), line=line, reason=report.reason, warnings=told, failed=failed, exit=code)
    return code


def _store(url: str, quick: bool, bench: bool, output: Output) -> int:
    report = examine_store(
        url,
        QUICK_KIT if quick else KitOptions(),
        bench=bench,
        packs=QUICK_PACKS if quick else BENCH_PACKS,
        report=lambda finding: _show_finding(finding, output),
    )
    latency, flow = report.latency, report.throughput
    output.line(
        f"{'':8} {'latency':17} put {latency.put * 1000:.1f} ms, get {latency.get * 1000:.1f} ms, "
        f"list {latency.list * 1000:.1f} ms"
    )
    if flow:
        output.line(f"{'':8} {'throughput':17} put {size(int(flow.put))}/s, get {size(int(flow.get))}/s")
    if report.left:
        named = ", ".join(report.left[:NAMED_LEFT]) + (", …" if len(report.left) > NAMED_LEFT else "")
        output.warn(f"{plural(len(report.left), 'object')} could not be removed: {named}")
    return _judge(report, output)


def _show_finding(finding: Finding, output: Output) -> None:
    clause = finding.clause
    output.line(f"{'ok' if finding.ok else 'missing':8} {clause.name:17} {shown(finding.saw)}")
    if not finding.ok:
        output.line(f"{'':8} {'':17} so {clause.meaning}")
    means = None if finding.ok else clause.meaning
    output.event("clause", clause=clause.name, ok=finding.ok, need=str(clause.need), found=finding.saw, means=means)


def _judge(report: StoreReport, output: Output) -> int:
    missing = [finding.clause.name for finding in report.findings if not finding.ok]
    code = report.exit_code
    verdict = {
        0: "all that a repository needs is there",
        3: f"a repository works here, without: {', '.join(missing)}",
        7: f"a repository does not work here: {', '.join(missing)} missing",
    }[code]
    output.note(f"{report.url}: {verdict}")
    output.result(
        url=report.url,
        missing=missing,
        put_seconds=round(report.latency.put, 6),
        get_seconds=round(report.latency.get, 6),
        list_seconds=round(report.latency.list, 6),
        put_bytes_per_second=round(report.throughput.put) if report.throughput else None,
        get_bytes_per_second=round(report.throughput.get) if report.throughput else None,
        left=list(report.left),
        exit=code,
    )
    return code
