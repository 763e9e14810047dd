"""datasync cache."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from datasync.cache.layout import Cache
from datasync.cache.space import Limits
from datasync.cli.common import CommandGroup, cache_option, common, dry_option, session
from datasync.cli.output import Output, path_text, plural, size
from datasync.cli.output_file import require_writable, write_file
from datasync.cli.span import seconds
from datasync.config import Config, Flags, load_config
from datasync.errors import IntegrityError, Locked, UsageError
from datasync.service import local_views as views
from datasync.service.caches import open_caches
from datasync.service.gate_access import access, shown
from datasync.service.purge import purge, survey
from datasync.service.quarantine import quarantined
from datasync.service.scrub import FirstLook, first_look, scrub, set_aside
from datasync.service.session import TOOL


@click.group("cache", cls=CommandGroup)
def command() -> None:
    """Look at the node's cache and who may read it, pin, evict, scrub and purge. Needs no network but for scrub."""


@contextmanager
def opened(flags: Flags, cache: tuple[Path, ...], output: Output) -> Iterator[tuple[Config, list[Cache], Limits]]:
    """Yield the configuration, the cache directories that work, and their limits."""
    config = load_config(replace(flags, caches=cache))
    with open_caches(config.caches, output.warn) as caches:
        yield config, caches, Limits(config.cache_max, config.cache_reserve)


@command.command("status")
@cache_option
@common
def status(cache: tuple[Path, ...], output: Output, flags: Flags) -> None:
    """Show how full each cache directory is."""
    with opened(flags, cache, output) as (_, caches, limits):
        found = views.status(caches, limits)
        held = sum(quarantined(item) for item in caches)
    for item in found:
        output.line(f"{item.path}: {size(item.used)} of {size(item.limit)} used, {plural(item.views, 'view')}")
    if held:
        output.line(f"{plural(held, 'object')} in quarantine")
    output.result(
        caches=[
            {
                "path": str(item.path),
                "bytes": item.used,
                "limit": item.limit,
                "reserve": item.reserve,
                "views": item.views,
            }
            for item in found
        ],
        quarantined=held,
    )


@command.command("ls")
@cache_option
@common
def ls(cache: tuple[Path, ...], output: Output, flags: Flags) -> None:
    """List the views that are ready, the most recently used first."""
    with opened(flags, cache, output) as (_, caches, limits):
        found = views.local_views(caches, limits, output.warn)
        readers = [shown(item.cache, item.view) for item in found]
    for item, texts in zip(found, readers, strict=True):
        marks = (" pinned" if item.pinned is not None else "") + (f" {len(item.leases)} leased" if item.leases else "")
        marks += f" read by {' '.join(texts)}" if texts else ""
        used = datetime.fromtimestamp(item.used, UTC)
        output.line(
            f"{item.ready.dataset}@{item.ready.seq} {item.ready.snapshot.hex()[:16]} {size(item.ready.bytes)} "
            f"used {used:%Y-%m-%d %H:%M}{marks} {item.view.path}"
        )
        output.event("view", **_fields(item), readers=texts)
    output.result(views=len(found))


@command.command("access")
@click.argument("reference")
@cache_option
@common
def access_command(reference: str, cache: tuple[Path, ...], output: Output, flags: Flags) -> None:
    """Show who may read the views of REFERENCE besides their owner. Changes nothing."""
    with opened(flags, cache, output) as (config, caches, limits):
        found = views.match(views.local_views(caches, limits, output.warn), reference)
        for item in found:
            told = access(config, item.cache, item.view)
            output.line(f"{item.view.path}: owner {told.owner}")
            for account, names in told.readers.items():
                output.line(f"  {account}" + (f" ({', '.join(names)})" if names else ""))
            for way in told.closed:
                output.warn(
                    f"{way}: others can not pass it, so they do not get to the view: chmod o+x, or move the cache"
                )
            fields = {"owner": told.owner, "closed": list(map(str, told.closed))}
            readers = [{"account": account, "principals": names} for account, names in told.readers.items()]
            output.event("access", **_named(item), readers=readers, **fields)
    output.result(views=len(found))


def _named(item: views.LocalView) -> dict[str, Any]:
    ready = item.ready
    named = {"dataset": ready.dataset, "seq": ready.seq, "snapshot": ready.snapshot.hex()}
    return named | {"path": str(item.view.path)}


def _fields(item: views.LocalView) -> dict[str, Any]:
    return _named(item) | {
        "bytes": item.ready.bytes,
        "files": item.ready.files,
        "subset": list(item.ready.subset),
        "used": int(item.used * 1000),
        "pinned": item.pinned,
        "leases": [{"pid": owner.pid, "host": owner.host} for owner in item.leases],
    }


@command.command("pin")
@click.argument("reference")
@click.option("--ttl", metavar="TIME", help="End the pin after this time, like 12h.")
@cache_option
@common
def pin(reference: str, ttl: str | None, cache: tuple[Path, ...], output: Output, flags: Flags) -> None:
    """Keep the view of REFERENCE from being evicted."""
    with opened(flags, cache, output) as (config, caches, limits):
        item = views.newest(views.local_views(caches, limits, output.warn), reference)
        views.set_pin(config, item, seconds(ttl) if ttl is not None else None)
    output.note(f"{item.ready.dataset}@{item.ready.seq}: pinned" + (f" for {ttl}" if ttl else ""))
    output.result(dataset=item.ready.dataset, seq=item.ready.seq, path=str(item.view.path))


@command.command("unpin")
@click.argument("reference")
@cache_option
@common
def unpin(reference: str, cache: tuple[Path, ...], output: Output, flags: Flags) -> None:
    """Let the views of REFERENCE be evicted again."""
    with opened(flags, cache, output) as (config, caches, limits):
        found = views.match(views.local_views(caches, limits, output.warn), reference)
        for item in found:
            views.remove_pin(config, item)
    output.note(f"{plural(len(found), 'view')} not pinned any more")
    output.result(views=len(found))


@command.command("evict")
@click.argument("reference")
@cache_option
@dry_option
@common
def evict(reference: str, cache: tuple[Path, ...], dry_run: bool, output: Output, flags: Flags) -> None:
    """Remove the views of REFERENCE that no job holds, pinned or not."""
    held = []
    with opened(flags, cache, output) as (config, caches, limits):
        found = views.match(views.local_views(caches, limits, output.warn), reference)
        for item in found:
            try:
                if dry_run:
                    views.check_evict(config, item)
                    output.line(str(item.view.path))
                    output.event("evict", **_fields(item), dry_run=True)
                else:
                    views.evict(config, item, limits)
            except Locked as error:
                output.warn(str(error))
                held.append(item)
    done = "would be removed" if dry_run else "were removed"
    if held:
        raise Locked(f"{reference}: {plural(len(held), 'view')} held by a job, named above; the others {done}")
    output.note(f"{plural(len(found), 'view')} {'would be ' if dry_run else ''}removed")
    output.result(views=len(found), **({"dry_run": True} if dry_run else {}))


@command.command("scrub")
@click.argument("reference", required=False)
@cache_option
@common
def scrub_command(reference: str | None, cache: tuple[Path, ...], output: Output, flags: Flags) -> None:
    """Check every byte of the views (of REFERENCE, or all) against their snapshots; take damaged ones away."""
    bad, looks = 0, dict[Path, FirstLook]()
    with opened(flags, cache, output) as (_, caches, limits), session(replace(flags, caches=cache), output) as store:
        found = views.local_views(caches, limits, output.warn)
        chosen = views.match(found, reference) if reference else found
        for item in chosen:
            if item.cache.path not in looks:
                looks[item.cache.path] = first_look(item.cache)
            done = scrub(store, item, clean=looks[item.cache.path].clean)
            for damage in done.damages:
                output.warn(f"{item.view.path}: {path_text(damage.path)}: {damage.what}")
                output.event(
                    "damage",
                    dataset=item.ready.dataset,
                    seq=item.ready.seq,
                    path=path_text(damage.path),
                    what=damage.what,
                )
            bad += bool(done.damages)
            if done.damages and not done.removed:
                output.warn(f"{item.view.path}: a job holds it, so it stays: end the job and scrub again")
        aside = sum(set_aside(store, item, looks[item.path].damaged) for item in caches if item.path in looks)
    if aside:
        output.warn(f"{plural(aside, 'object')} that no view shows damaged: quarantined, no view will take them")
    if bad:
        raise IntegrityError(f"{plural(bad, 'view')} damaged, each named above: warm again")
    output.note(f"{plural(len(chosen), 'view')} checked, all as their snapshots say")
    output.result(views=len(chosen))


def _ship(flags: Flags, config: Config, output: Output) -> None:
    """Ship the audit log, when that is configured: before the purge, and once more with what purge recorded."""
    if config.audit.ship:
        from datasync.service import audit_remote

        with session(flags, output) as opened:
            audit_remote.send(opened)


def _survey_purge(output_file: Path | None, cache: tuple[Path, ...], output: Output, flags: Flags) -> None:
    """Say what a purge would remove."""
    if output_file is not None:
        raise UsageError("purge --dry-run: it makes no receipt: leave --output out")
    with opened(flags, cache, output) as (config, caches, limits):
        removed, kept = survey(config, caches, limits, output.warn)
    for item in removed:
        output.line(str(item["path"]))
        output.event("purge", **item, dry_run=True)
    for item in kept:
        output.warn(f"{item['path']}: {item['why']}")
    if kept:
        raise Locked(f"purge: {plural(len(kept), 'view')} could not be removed, named above; all else would be")
    output.note(f"{plural(len(removed), 'view')}, with all objects and the quarantine, would be removed")
    output.result(removed=removed, kept=kept, dry_run=True)


@command.command("purge")
@click.option(
    "--output",
    "output_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the signed receipt to this file.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cache_option
@dry_option
@common
def purge_command(
    output_file: Path | None, yes: bool, cache: tuple[Path, ...], dry_run: bool, output: Output, flags: Flags
) -> None:
    """Remove everything that no job holds, before the machine goes back, and make a signed receipt."""
    if dry_run:
        _survey_purge(output_file, cache, output, flags)
        return
    with opened(flags, cache, output) as (config, caches, limits):
        if not yes:
            where = ", ".join(str(item.path) for item in caches)
            click.confirm(f"Remove every view in {where}?", abort=True, err=True)
        if output_file is not None:
            require_writable(output_file)
        _ship(flags, config, output)
        receipt = purge(config, caches, limits, TOOL, output.warn)
    _ship(flags, config, output)
    text = json.dumps(receipt, indent=1, ensure_ascii=False)
    if output_file is not None:
        write_file(output_file, text + "\n")
        output.note(f"{', '.join(str(item.path) for item in caches)}: purged; signed receipt: {output_file}")
    else:
        output.line(text)
    kept = receipt["kept"]
    if kept:
        raise Locked(f"purge: {len(kept) if isinstance(kept, list) else 0} views could not be removed: see the receipt")
    output.result(**receipt)
