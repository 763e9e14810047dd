"""Scrub: check ready views against their signed snapshots; damaged objects go to quarantine, their views away.

Needs the repository for the manifests. Objects are compared with the xxh3 record that was made when they were written,
and by content where there is no record, or it does not fit.
"""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import xxhash

from datasync.cache.beneath import Tree
from datasync.cache.layout import OBJECTS, Cache
from datasync.cache.leases import living_leases
from datasync.cache.locks import ViewLock
from datasync.cache.ready import discard_view
from datasync.cache.sums import Sum, Sums
from datasync.errors import DatasyncError, IntegrityError
from datasync.model.limits import CHUNK_BYTES
from datasync.pull.recheck import Damage, recheck
from datasync.service.authorize import authorize
from datasync.service.local_views import LocalView
from datasync.service.quarantine import quarantine
from datasync.service.record import alarm, recorded
from datasync.service.session import Session


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """One view: what is wrong in it, and whether it was taken away (a leased one stays, its job is told)."""

    item: LocalView
    damages: list[Damage]
    removed: bool


def first_look(cache: Cache) -> frozenset[int]:
    """Return the inodes of the objects whose bytes are those of the record that was made when they were written."""
    clean: set[int] = set()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with closing(Sums(cache.path)) as sums, cache.tree.subtree(OBJECTS) as tree:
        for directory in os.listdir(tree.root_fd):
            if len(directory) != 2:
                continue
            with tree.subtree(os.fsencode(directory)) as folder:
                for name in os.listdir(folder.root_fd):
                    noted = sums.of(bytes.fromhex(name))
                    inode = _compare(folder, os.fsencode(name), noted, buffer) if noted is not None else 0
                    clean.update([inode] if inode else [])
    return frozenset(clean)


def _compare(folder: Tree, name: bytes, noted: list[Sum], buffer: memoryview) -> int:
    """Return the object's inode when its bytes are as noted, else 0."""
    try:
        fd = folder.open_file(name)
    except DatasyncError:
        return 0  # the slow look says what is wrong with it
    try:
        for offset, length, digest in noted:
            view = buffer[:length]
            if os.preadv(fd, [view], offset) != length or xxhash.xxh3_128_digest(view) != digest:
                return 0
        return os.fstat(fd).st_ino
    except OSError:
        return 0
    finally:
        os.close(fd)


def scrub(
    session: Session,
    item: LocalView,
    found: Callable[[Damage], None] = lambda _: None,
    clean: frozenset[int] = frozenset(),
) -> Scrubbed:
    """Check one view; quarantine what is damaged, and remove the view unless a job holds it. Recorded; damage is an
    alarm besides.
    """
    ready = item.ready
    fields: dict[str, Any] = {
        "dataset": ready.dataset,
        "snapshot": ready.snapshot,
        "snapshot_seq": ready.seq,
        "bytes": ready.bytes,
    }
    with recorded(session, "cache.scrub", **fields) as event:
        done = _scrub(session, item, found, clean)
        event.note(damages=len(done.damages))
        if done.damages:
            event.outcome("failure", f"{len(done.damages)} entries damaged")
    if done.damages:
        alarm(session, IntegrityError(f"cache: {len(done.damages)} entries of a view are damaged"), **fields)
    return done


def _scrub(session: Session, item: LocalView, found: Callable[[Damage], None], clean: frozenset[int]) -> Scrubbed:
    dataset = session.repository.open(item.ready.dataset)
    authorize(session, "Warm", dataset, seq=item.ready.seq)
    snapshot = dataset.history.read(item.ready.seq, expected=item.ready.snapshot)
    damages = []
    with item.cache.tree.subtree(item.view.place) as tree:
        for damage in recheck(dataset, snapshot, tree, subset=item.ready.subset, clean=clean):
            found(damage)
            damages.append(damage)
    if not damages or item.cache.tree.lstat(item.view.ready) is None:  # evicted while it was read: no damage
        return Scrubbed(item, [], removed=False)
    for damage in damages:
        if damage.object:
            quarantine(item.cache, damage.object)
    return Scrubbed(item, damages, removed=_take_away(item))


def _take_away(item: LocalView) -> bool:
    with ViewLock(item.cache, item.view):
        if living_leases(item.cache, item.view):
            return False
        discard_view(item.cache, item.view)
        return True
