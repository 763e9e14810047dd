"""What this node has ready: found by receipts alone, so no network and no key is needed.

A reference means the newest local snapshot of a dataset, a number, or an id prefix; a tag is the repository's to know.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.cache.layout import Cache, View
from datasync.cache.leases import Owner, living_leases, require_unleased
from datasync.cache.locks import ViewLock
from datasync.cache.objects import Objects
from datasync.cache.pins import pin, pinned_until, unpin
from datasync.cache.ready import Ready, discard_view, read_ready
from datasync.cache.space import Limits, Space
from datasync.config import Config
from datasync.errors import DatasyncError, NotFound, UsageError
from datasync.service.authorize import authorize
from datasync.service.record import recorded
from datasync.service.references import Reference, parse_reference
from datasync.service.vouch import check_own


@dataclass(frozen=True, slots=True)
class LocalView:
    """A complete view on this node; `pinned` is None, 0 for ever, or until when in ms."""

    cache: Cache
    view: View
    ready: Ready
    used: float
    pinned: int | None
    leases: list[Owner]


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """One cache directory: bytes used by objects, its limit, and what is free on its disk."""

    path: Path
    used: int
    limit: int
    reserve: int
    views: int


def space_of(cache: Cache, limits: Limits) -> Space:
    """Return the space of *cache*."""
    with Objects.open(cache) as objects:
        return Space(cache, limits, reflinks=objects.reflinks)


def status(caches: Iterable[Cache], limits: Limits) -> list[CacheStatus]:
    """Return how full each directory is."""
    found = []
    for cache in caches:
        space = space_of(cache, limits)
        found.append(CacheStatus(cache.path, space.used(), space.limit, space.reserve_bytes, len(space.views())))
    return found


def local_views(caches: Iterable[Cache], limits: Limits, warn: Callable[[str], None]) -> list[LocalView]:
    """Return all views that are ready, the most recently used first; a damaged receipt is told and left out."""
    found = []
    for cache in caches:
        for used, view in space_of(cache, limits).views():
            try:
                ready = read_ready(cache, view)
            except DatasyncError as error:
                warn(str(error))
                continue
            if ready is not None:
                found.append(LocalView(cache, view, ready, used, pinned_until(cache, view), living_leases(cache, view)))
    return sorted(found, key=lambda item: -item.used)


def match(views: list[LocalView], text: str, subset: tuple[str, ...] | None = None) -> list[LocalView]:
    """Return the views that the reference *text* means (with *subset*, only those of it; empty: of whole snapshots);
    `NotFound` when there is none.
    """
    reference = parse_reference(text)
    if reference.tag is not None:
        raise UsageError(f"reference {text!r}: a tag is known to the repository, not to the cache: use NAME@SEQ")
    found = [item for item in views if _is(reference, item.ready) and subset in (None, item.ready.subset)]
    if not found:
        raise NotFound(f"{text}: not ready on this node: run datasync warm {text}")
    return found


def newest(views: list[LocalView], text: str, subset: tuple[str, ...] = ()) -> LocalView:
    """Return the one view that *text* means, the newest snapshot where it leaves a choice."""
    return max(match(views, text, subset), key=lambda item: item.ready.seq)


def _is(reference: Reference, ready: Ready) -> bool:
    if ready.dataset != reference.name:
        return False
    if reference.seq is not None:
        return ready.seq == reference.seq
    return reference.prefix is None or ready.snapshot.hex().startswith(reference.prefix)


def check_signature(evidence: Path, item: LocalView) -> None:
    """Refuse a receipt that this node did not sign."""
    check_own(evidence.parent, item.view, item.ready)


def set_pin(config: Config, item: LocalView, seconds: float | None) -> None:
    """Pin a view for *seconds*, None: for ever; recorded."""
    named = _named(item)
    with recorded(config, "cache.pin", **named, seconds=None if seconds is None else int(seconds)) as event:
        authorize(config, "Warm", item.ready.dataset, event=event)
        pin(item.cache, item.view, 0 if seconds is None else int((time.time() + seconds) * 1000))


def remove_pin(config: Config, item: LocalView) -> None:
    """Let a view be evicted again; recorded."""
    with recorded(config, "cache.unpin", **_named(item)) as event:
        authorize(config, "Warm", item.ready.dataset, event=event)
        unpin(item.cache, item.view)


def evict(config: Config, item: LocalView, limits: Limits) -> None:
    """Remove a view that nobody uses, pinned or not, and the objects that only it had; `Locked` for a leased one.
    Recorded.
    """
    with recorded(config, "cache.evict", **_named(item)) as event:
        authorize(config, "Purge", item.ready.dataset, event=event)
        discard(item.cache, item.view)
        space_of(item.cache, limits).remove_orphans()


def check_evict(config: Config, item: LocalView) -> None:
    """Raise what `evict` would, and remove nothing; recorded as a look."""
    with recorded(config, "look", durable=False, plan="cache.evict", **_named(item)) as event:
        authorize(config, "Purge", item.ready.dataset, event=event)
        require_unleased(item.cache, item.view)


def note_evicted(config: Config, view: View, ready: Ready | None) -> None:
    """Record that a view made room for another one."""
    named = _told(ready) if ready is not None else {}
    with recorded(config, "cache.evict", **named, automatic=True, view=view.stem.decode()):
        pass


def _named(item: LocalView) -> dict[str, Any]:
    """Return what events say of a view."""
    return _told(item.ready)


def _told(ready: Ready) -> dict[str, Any]:
    return {"dataset": ready.dataset, "snapshot": ready.snapshot, "snapshot_seq": ready.seq, "bytes": ready.bytes}


def discard(cache: Cache, view: View) -> None:
    """Remove a view that nobody uses, pinned or not; its objects stay. `Locked` for a leased one."""
    with ViewLock(cache, view):
        require_unleased(cache, view)
        unpin(cache, view)
        discard_view(cache, view)
