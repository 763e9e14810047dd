"""datasync ready."""

from dataclasses import replace
from pathlib import Path

import click

from datasync.cli.cache import opened
from datasync.cli.common import cache_option, common, session, subset_option
from datasync.cli.output import Output, path_text, plural
from datasync.config import Flags
from datasync.errors import IntegrityError
from datasync.pull.recheck import recheck
from datasync.service import local_views as views
from datasync.service.gates import narrow, renew_by_policy

NAMED = 20  # damaged paths named


@click.command("ready")
@click.argument("reference")
@click.option("--deep", is_flag=True, help="Check every file against the snapshot's manifest (from the repository).")
@subset_option
@cache_option
@common
def command(
    reference: str,
    deep: bool,
    subset: tuple[str, ...],
    cache: tuple[Path, ...],
    output: Output,
    flags: Flags,
) -> None:
    """Check that REFERENCE is ready on this node: exit 0 only then, 4 when it is not there, 7 when it is damaged."""
    with opened(flags, cache, output) as (config, caches, limits):
        item = views.newest(views.local_views(caches, limits, output.warn), reference, subset)
        views.check_signature(config.evidence, item)
        damages = 0
        if not deep:
            narrow(config, item.cache, item.view, item.ready, output.warn)
        else:
            with session(replace(flags, caches=cache), output) as store:
                dataset = store.repository.open(item.ready.dataset)
                if not renew_by_policy(store, caches, dataset):
                    narrow(config, item.cache, item.view, item.ready, output.warn)
                snapshot = dataset.history.read(item.ready.seq, expected=item.ready.snapshot)
                with item.cache.tree.subtree(item.view.place) as tree:
                    for damage in recheck(dataset, snapshot, tree, subset=item.ready.subset):
                        damages += 1
                        if damages <= NAMED:
                            output.warn(f"{path_text(damage.path)}: {damage.what}")
        ready = item.ready
    if damages:
        raise IntegrityError(
            f"{item.view.path}: {plural(damages, 'entry')} not as the snapshot says: "
            f"run datasync cache scrub {reference}"
        )
    how = "every file checked" if deep else "receipt checked"
    output.note(f"{ready.dataset}@{ready.seq}: ready, {plural(ready.files, 'file')}, {how}")
    output.result(
        dataset=ready.dataset,
        seq=ready.seq,
        snapshot=ready.snapshot.hex(),
        root=ready.root.hex(),
        path=str(item.view.path),
        entries=ready.entries,
        files=ready.files,
        bytes=ready.bytes,
        node=ready.node,
        deep=deep,
    )
