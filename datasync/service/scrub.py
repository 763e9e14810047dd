"""Scrub: check ready views against their signed snapshots; damaged objects go to quarantine, their views away.

Needs the repository for the manifests. Objects are compared with the xxh3 record that was made when they were written,
and by content where there is no record, or it does not fit. An object that only the next view would take its bytes from
(with reflinks each view has copies) goes to quarantine by its record alone. *pace* is called with the bytes of each
read before it, and may wait.
"""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import xxhash

from datasync.cache.kernel import names_in
from datasync.cache.layout import OBJECTS, Cache
from datasync.cache.leases import living_leases
from datasync.cache.locks import ViewLock
from datasync.cache.ready import discard_view
from datasync.cache.sums import Sum, Sums
from datasync.config import Config
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


Pace = Callable[[int], None]


def at_once(_: int) -> None:
    """Do not wait."""


@dataclass(frozen=True, slots=True)
class FirstLook:
    """Inodes of the objects whose bytes are those of their record, and the ids of those whose bytes are others."""

    clean: frozenset[int]
    damaged: tuple[bytes, ...]


def first_look(cache: Cache, pace: Pace = at_once) -> FirstLook:
    """Compare every object with the record that was made when it was written, if there is one."""
    clean: set[int] = set()
    damaged: list[bytes] = []
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with closing(Sums(cache.path)) as sums, cache.tree.subtree(OBJECTS) as tree:
        for directory in names_in(tree.root_fd):
            if len(directory) != 2:
                continue
            with tree.subtree(os.fsencode(directory)) as folder:
                for name in names_in(folder.root_fd):
                    noted = sums.of(bytes.fromhex(name))
                    if noted is None:
                        continue
                    try:
                        fd = folder.open_file(os.fsencode(name))
                    except DatasyncError:
                        continue  # evicted just now; or the slow look says what is wrong with it
                    inode = _compare(fd, noted, buffer, pace)
                    if inode:
                        clean.add(inode)
                    else:
                        damaged.append(bytes.fromhex(name))
    return FirstLook(frozenset(clean), tuple(damaged))


def set_aside(where: Session | Config, cache: Cache, damaged: tuple[bytes, ...]) -> int:
    """Quarantine what is still there of the objects that are not as their record; return how many. An alarm each time.

    Call it after the views were scrubbed: what a view shares with an object is damaged there, too, and told first.
    """
    count = sum(quarantine(cache, item) for item in damaged)
    if count:
        alarm(where, IntegrityError(f"cache: {count} objects are not what was written"), damages=count)
    return count


def _compare(fd: int, noted: list[Sum], buffer: memoryview, pace: Pace) -> int:
    """Return the object's inode when its bytes are as noted, else 0; close *fd*."""
    try:
        for offset, length, digest in noted:
            pace(length)
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
    pace: Pace = at_once,
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
        done = _scrub(session, item, found, clean, pace)
        event.note(damages=len(done.damages))
        if done.damages:
            event.outcome("failure", f"{len(done.damages)} entries damaged")
    if done.damages:
        alarm(session, IntegrityError(f"cache: {len(done.damages)} entries of a view are damaged"), **fields)
    return done


def _scrub(
    session: Session, item: LocalView, found: Callable[[Damage], None], clean: frozenset[int], pace: Pace
) -> Scrubbed:
    dataset = session.repository.open(item.ready.dataset)
    authorize(session, "Warm", dataset, seq=item.ready.seq)
    snapshot = dataset.history.read(item.ready.seq, expected=item.ready.snapshot)
    damages = []
    with item.cache.tree.subtree(item.view.place) as tree:
        for damage in recheck(dataset, snapshot, tree, subset=item.ready.subset, clean=clean, pace=pace):
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
