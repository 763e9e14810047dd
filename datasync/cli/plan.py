"""datasync plan; `warm -n` and `pull -n` give the same answer by the same functions."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from datasync.cache.forecast import Evicted
from datasync.cli.common import cache_option, common, order_option, patterns, session, subset_option
from datasync.cli.output import Output, Relay, plural, replay, size
from datasync.config import Flags
from datasync.errors import NoSpace, StorageUnavailable, UsageError
from datasync.service.plan import Outlook, ask_plans, plan_alone, plan_pull


@click.command("plan")
@click.argument("references", nargs=-1, required=True, metavar="REF…")
@click.option("--target", type=click.Path(path_type=Path), help="Plan a pull of the one REF into this directory.")
@subset_option
@order_option
@cache_option
@common
def command(
    references: tuple[str, ...],
    target: Path | None,
    subset: tuple[str, ...],
    order: tuple[str, ...],
    cache: tuple[Path, ...],
    output: Output,
    flags: Flags,
) -> None:
    """Show what a warm of each REF would fetch, keep and evict here, or with --target a pull; do nothing of it."""
    if target is None:
        plan_warms(references, subset, patterns(order), None, output, replace(flags, caches=cache))
        return
    if len(references) != 1 or subset or order or cache or flags.daemon not in (None, "off"):
        raise UsageError(
            "plan --target: it is for a pull: expected one REF, and no --cache, --subset, --order or --daemon"
        )
    plan_one_pull(references[0], target, output, flags)


def plan_warms(
    references: tuple[str, ...],
    subset: tuple[str, ...],
    order: tuple[str, ...],
    group: str | None,
    output: Output,
    flags: Flags,
) -> None:
    """Tell what a warm of *references* would do: by the daemon, if that would warm them."""
    if isinstance(output, Relay):
        flags = replace(flags, daemon="off")  # this process is the daemon's own
    with session(flags, output) as opened:
        asked = None if isinstance(output, Relay) else ask_plans(opened.config, references, subset, group)
        if asked is None:
            _tell([plan_alone(opened, item, subset, order, group) for item in references], output)
        elif not replay(asked, output):
            raise StorageUnavailable("daemon: it ended before the plan was made: run the same line again")


def plan_one_pull(reference: str, target: Path, output: Output, flags: Flags) -> None:
    """Tell what a pull would do."""
    with session(flags, output) as opened:
        found = plan_pull(opened, reference, target)
    _tell([found], output)


def _tell(found: list[Outlook], output: Output) -> None:
    for item in found:
        for line in _lines(item):
            output.line(line)
        output.event("plan", **_fields(item))
    refused = [item.refused for item in found if item.refused is not None]
    if refused:
        raise refused[0]
    names = ("wanted", "wanted_bytes", "ranges", "fetched_bytes")
    sums = {name: sum(getattr(item.planned, name) for item in found) for name in names}
    output.result(plans=[_fields(item) for item in found], dry_run=True, **sums)


def _lines(item: Outlook) -> Iterable[str]:
    plan = item.planned
    what = f"{plural(plan.entries, 'entry')}, {plural(plan.files, 'file')}, {size(plan.bytes)}"
    yield f"{item.dataset}@{item.seq} {item.snapshot.hex()[:16]}: {'ready' if item.ready else 'to be made'}: {what}"
    yield f"  path: {item.path}"
    if item.ready:
        return
    if item.foreign:
        yield "  another machine's view is there: its files are read, and taken if they are right; if not:"
    yield f"  there: {plural(plan.kept, 'file')}, {size(item.kept_bytes)}"
    yield (
        f"  to fetch: {plural(plan.wanted, 'file')}, {size(plan.wanted_bytes)}: "
        f"{size(plan.fetched_bytes)} in {plural(plan.ranges, 'range')}"
    )
    room = item.room
    if room is not None:
        yield (
            f"  space: {size(room.needed)} needed; {size(room.used)} of {size(room.limit)} used, "
            f"{size(room.free)} free on the disk, {size(room.reserve)} of it reserved"
        )
        yield from (f"  evicts: {_shown(evicted)}" for evicted in room.evicted)
        if room.waits:
            yield "  waits: transfers that run now keep it out"
    if item.refused is not None:
        yield f"  does not fit: {item.refused}"


def _shown(item: Evicted) -> str:
    used = f"used {datetime.fromtimestamp(item.used, UTC):%Y-%m-%d %H:%M}"
    named = f"{item.ready.dataset}@{item.ready.seq}, {size(item.ready.bytes)}, " if item.ready is not None else ""
    return f"{named}{used}: {item.view.path}"


def _fields(item: Outlook) -> dict[str, Any]:
    plan, room = item.planned, item.room
    fields: dict[str, Any] = {
        "dataset": item.dataset,
        "seq": item.seq,
        "snapshot": item.snapshot.hex(),
        "ready": item.ready,
        "path": str(item.path),
        "entries": plan.entries,
        "files": plan.files,
        "bytes": plan.bytes,
        "kept": plan.kept,
        "kept_bytes": item.kept_bytes,
        "wanted": plan.wanted,
        "wanted_bytes": plan.wanted_bytes,
        "ranges": plan.ranges,
        "fetched_bytes": plan.fetched_bytes,
    }
    if item.cache is not None:
        fields |= {"cache": str(item.cache), "foreign": item.foreign, "needed_bytes": plan.needed_bytes}
    if room is not None:
        fields |= {"used_bytes": room.used, "free_bytes": room.free, "limit": room.limit, "reserve": room.reserve}
        fields |= {"waits": room.waits, "evicted": [_evicted(one) for one in room.evicted]}
    if item.refused is not None:
        fields |= {"error": NoSpace.__name__, "message": str(item.refused)}
    return fields


def _evicted(item: Evicted) -> dict[str, Any]:
    found: dict[str, Any] = {"path": str(item.view.path), "used": int(item.used * 1000)}
    ready = item.ready
    if ready is None:
        return found
    return found | {
        "dataset": ready.dataset,
        "seq": ready.seq,
        "snapshot": ready.snapshot.hex(),
        "bytes": ready.bytes,
    }
