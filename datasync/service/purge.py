"""Purge a node's cache before the machine goes back, with a signed receipt of what went and what could not."""

import json
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from datasync.cache.copies import remove_dead_copies
from datasync.cache.forecast import Forecast
from datasync.cache.kernel import names_in
from datasync.cache.layout import OBJECTS, QUARANTINE, Cache, View
from datasync.cache.leases import require_unleased
from datasync.cache.ready import read_ready
from datasync.cache.space import Limits
from datasync.config import Config
from datasync.crypto.signatures import signer_text
from datasync.errors import DatasyncError, Locked
from datasync.service.authorize import authorize
from datasync.service.local_views import discard, space_of
from datasync.service.node_key import node_key
from datasync.service.record import Recording, recorded

KIND = "purge"


def purge(
    config: Config, caches: list[Cache], limits: Limits, tool: str, warn: Callable[[str], None]
) -> dict[str, object]:
    """Remove every view and object that no job holds; return the receipt, signed by the node. Recorded."""
    authorize(config, "Purge")
    with recorded(config, "purge", security=True) as event:
        return _purge(caches, limits, config.evidence, tool, warn, event)


def survey(
    config: Config, caches: list[Cache], limits: Limits, warn: Callable[[str], None]
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the views that a purge would remove and what it could not; nothing goes. Recorded as a look."""
    removed: list[dict[str, object]] = []
    kept: list[dict[str, object]] = []
    with recorded(config, "look", durable=False, plan="purge") as event:
        authorize(config, "Purge", event=event)
        for cache in caches:
            space = Forecast(cache, limits)
            for _, view in space.views():
                named = _named(cache, view, warn) | {"path": str(view.path)}
                try:
                    require_unleased(cache, view)
                    removed.append(named)
                except Locked as error:
                    kept.append(named | {"why": str(error)})
            kept += [_being_made(view) for view in space.unfinished()]
        event.note(removed=len(removed), kept=len(kept))
    return removed, kept


def _purge(
    caches: list[Cache],
    limits: Limits,
    evidence: Path,
    tool: str,
    warn: Callable[[str], None],
    event: Recording,
) -> dict[str, object]:
    removed: list[dict[str, object]] = []
    kept: list[dict[str, object]] = []
    left = 0
    for cache in caches:
        space = space_of(cache, limits)
        for _, view in space.views():
            named = _named(cache, view, warn)
            try:
                discard(cache, view)
                removed.append(named)
            except Locked as error:
                kept.append(named | {"why": str(error)})
            except DatasyncError as error:
                kept.append(named | {"why": f"could not be removed: {error}"})
        space.remove_dead_transfers(None)
        kept += [_being_made(view) for view in space.unfinished()]
        space.remove_orphans()
        cache.tree.remove_tree(QUARANTINE)
        remove_dead_copies(cache)
        left += _objects_left(cache)
    text: dict[str, object] = {
        "kind": "datasync purge receipt",
        "node": signer_text(node_key(evidence.parent).public),
        "host": socket.gethostname(),
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "tool": tool,
        "caches": [str(cache.path) for cache in caches],
        "removed": removed,
        "kept": kept,
        "objects_left": left,
        "note": "files were unlinked; what a disk keeps of unlinked blocks is not overwritten",
    }
    event.note(removed=len(removed), kept=len(kept), objects_left=left)
    if kept:
        event.outcome("partial", f"{len(kept)} views could not be removed")
    signature = node_key(evidence.parent).sign(KIND, json.dumps(text, sort_keys=True, separators=(",", ":")).encode())
    return text | {"signature": signature.hex()}


def _being_made(view: View) -> dict[str, object]:
    return {"path": str(view.path), "why": "another process is making it"}


def _named(cache: Cache, view: View, warn: Callable[[str], None]) -> dict[str, object]:
    """Return what the receipt says of a view; a view whose receipt is damaged goes, too, named by its path."""
    try:
        ready = read_ready(cache, view)
    except DatasyncError as error:
        warn(str(error))
        ready = None
    if ready is None:
        return {"path": str(view.path)}
    return {"dataset": ready.dataset, "seq": ready.seq, "snapshot": ready.snapshot.hex(), "bytes": ready.bytes}


def _objects_left(cache: Cache) -> int:
    count = 0
    with cache.tree.subtree(OBJECTS) as tree:
        for directory in names_in(tree.root_fd):
            if len(directory) == 2:
                with tree.subtree(os.fsencode(directory)) as folder:
                    count += len(names_in(folder.root_fd))
    return count
