"""Pull a snapshot into a directory, or warm it into the node's cache:
one transfer per node, the others wait and share.
"""

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.cache.copies import PrivateCopy
from datasync.cache.gate import CLOSED, Gate, set_gate, try_gate
from datasync.cache.layout import Cache, View
from datasync.cache.leases import Lease, note_use, take_lease
from datasync.cache.locks import ViewLock
from datasync.cache.pins import pin
from datasync.cache.space import Limits
from datasync.errors import DatasyncError, Locked, NotAuthorized, NotFound, UsageError
from datasync.pull.pipeline import Progress, PullResult, pull_to_directory, warm_view
from datasync.pull.select import Selection
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot
from datasync.service.authorize import authorize
from datasync.service.caches import Place, choose, drop_dead, find_ready, newest_local, open_caches, part_name, view_in
from datasync.service.gates import narrow, renew, renew_denied
from datasync.service.local_views import note_evicted
from datasync.service.node_key import receipt
from datasync.service.readers import decide
from datasync.service.record import Recording, recorded
from datasync.service.references import open_reference, parse_reference
from datasync.service.session import TOOL, Session
from datasync.service.vouch import is_own, sign_after_check

Report = Callable[[Progress], None]


class HeldLease:
    """A lease with the cache that it belongs to, and the job's private copy where it has one."""

    def __init__(self, cache: Cache, lease: Lease) -> None:
        self._cache = cache
        self._lease = lease
        self._copy: PrivateCopy | None = None

    def copy(self) -> Path:
        """Make a private, writable copy of the view, which lasts as long as the lease."""
        self._copy = PrivateCopy.make(self._cache, self._lease.view)
        return self._copy.path

    def beat(self) -> None:
        """Show that the job is alive."""
        self._lease.beat()

    def release(self) -> None:
        """End the lease; a private copy is removed."""
        try:
            if self._copy is not None:
                self._copy.remove()
            self._lease.release()
        finally:
            self._cache.close()


def hold(root: Path, view: View) -> HeldLease:
    """Lease *view* of the cache at *root*; the lease keeps the cache open."""
    cache = Cache.open(root)
    try:
        return HeldLease(cache, take_lease(cache, view))
    except BaseException:
        cache.close()
        raise


@dataclass(frozen=True, slots=True)
class Pulled:
    """A snapshot that was pulled."""

    dataset: str
    snapshot: Snapshot
    path: Path
    result: PullResult


@dataclass(frozen=True, slots=True)
class Warmed:
    """A view that is ready; `result` is None when it was ready before."""

    dataset: str
    seq: int
    snapshot: bytes
    files: int
    path: Path
    result: PullResult | None
    lease: HeldLease | None = None


def pull(session: Session, reference: str, target: Path, report: Report) -> Pulled:
    """Make the directory *target* hold the snapshot that *reference* means; recorded."""
    with recorded(session, "pull", dataset=parse_reference(reference).name) as event:
        dataset, snapshot = open_reference(session, reference, "ReadData", event)
        _note_snapshot(event, dataset, snapshot)
        return Pulled(dataset.name, snapshot, target, pull_to_directory(dataset, snapshot, target, report))


def _note_snapshot(event: Recording, dataset: OpenDataset, snapshot: Snapshot) -> None:
    body = snapshot.body
    event.note(dataset_id=dataset.id, snapshot=snapshot.id, snapshot_seq=body.seq, epoch=body.epoch)
    event.note(entries=body.totals.entries, files=body.totals.files, bytes=body.totals.bytes)


@dataclass(frozen=True, slots=True)
class WarmOptions:
    """How to warm: hold the view for a job, pin it (for `pin_seconds`, None: for ever), wait for another process;
    which part of the snapshot, what of it first, and the local group that may read while no policy is in force."""

    lease: bool = False
    pin: bool = False
    pin_seconds: float | None = None
    wait: bool = True
    subset: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    group: str | None = None


def warm(
    session: Session,
    reference: str,
    report: Report,
    waiting: Callable[[], None] | None = None,
    options: WarmOptions = WarmOptions(),
) -> Warmed:
    """Return a ready view of what *reference* means; *waiting* is called while another process makes it, or room.

    With a lease the view is held until `Warmed.lease` is released: a job reads it. Recorded.
    """
    lease = options.lease or None
    with recorded(session, "warm", dataset=parse_reference(reference).name, lease=lease) as event:
        done = _warm(session, reference, report, waiting, options, event)
        event.note(transferred=done.result is not None)
        return done


def _warm(
    session: Session,
    reference: str,
    report: Report,
    waiting: Callable[[], None] | None,
    options: WarmOptions,
    event: Recording,
) -> Warmed:
    try:
        dataset, snapshot = open_reference(session, reference, "Warm", event)
    except NotAuthorized as denied:
        renew_denied(session, parse_reference(reference).name, options.group, denied)
        raise
    _note_snapshot(event, dataset, snapshot)
    config = session.config
    decided = decide(session, dataset, options.group, fresh=False)
    with open_caches(config.caches, session.warn) as caches:
        part = part_name(options.subset)
        counts = functools.partial(is_own, config.evidence.parent)
        result, place = None, find_ready(caches, dataset, snapshot, session.warn, part, counts)
        while True:
            if place is None:
                result, place = _make_somewhere(
                    session, caches, dataset, snapshot, report, waiting, options, decided.gate
                )
                decided = decide(session, dataset, options.group, fresh=True, warn=lambda _: None)  # it took its time
            renew(session, caches, dataset, decided)
            cache, view = place
            note_use(cache, view)
            try:
                if options.pin:
                    seconds = options.pin_seconds
                    pin(cache, view, 0 if seconds is None else int((time.time() + seconds) * 1000))
                held = hold(view.path.parents[2], view) if options.lease else None
            except NotFound:  # evicted between the look and the pin or lease
                place = None
                continue
            body = snapshot.body
            return Warmed(dataset.name, body.seq, snapshot.id, body.totals.files, view.path, result, held)


def newest_complete(session: Session, reference: str) -> Warmed:
    """Return the newest complete snapshot of the dataset that this node has, leased; `NotFound` without one."""
    name = parse_reference(reference).name
    with (
        recorded(session, "warm", dataset=name, fallback=True) as event,
        open_caches(session.config.caches, session.warn) as caches,
    ):
        authorize(session, "Warm", name, event=event)  # no repository is asked: the site's policy alone decides
        found = newest_local(caches, name, functools.partial(is_own, session.config.evidence.parent))
        if found is None:
            raise NotFound(f"dataset {name!r}: this node has no complete snapshot of it")
        view_cache, view, ready = found
        narrow(session.config, view_cache, view, ready, session.warn)
        held = hold(view.path.parents[2], view)
        return Warmed(name, ready.seq, ready.snapshot, ready.files, view.path, None, held)


def _make_somewhere(session: Session, caches: list[Cache], *wanted: Any) -> tuple[PullResult | None, Place]:
    """Make the view; a directory whose disk dies meanwhile is dropped with a word, and the view made on another."""
    while True:
        try:
            return _make(session, caches, *wanted)
        except (DatasyncError, OSError) as error:
            if not drop_dead(caches, session.warn, error):
                raise


def _make(
    session: Session,
    caches: list[Cache],
    dataset: OpenDataset,
    snapshot: Snapshot,
    report: Report,
    waiting: Callable[[], None] | None,
    options: WarmOptions,
    gate: Gate,
) -> tuple[PullResult | None, tuple[Cache, View]]:
    part = part_name(options.subset)
    told = functools.partial(note_evicted, session.config)
    limits = Limits(session.config.cache_max, session.config.cache_reserve, told)
    # Whichever directory gets the view, its makers meet at the first one's lock: free space changes while one writes.
    with _locked(caches[0], view_in(caches[0], dataset, snapshot, part), waiting, wait=options.wait) as first:
        keys = session.config.evidence.parent
        place = find_ready(caches, dataset, snapshot, session.warn, part, functools.partial(is_own, keys))
        if place is not None:
            return None, place
        signed = receipt(keys, session.repository.marker.repository, TOOL)
        foreign = find_ready(caches, dataset, snapshot, session.warn, part, lambda _, __: True)
        cache, view = foreign or choose(caches, dataset, snapshot, part)
        same = cache is caches[0]
        with contextlib.nullcontext(first) if same else _locked(cache, view, waiting, wait=options.wait) as lock:
            if foreign:
                set_gate(cache, view, CLOSED)  # its numbers were another machine's
            else:
                try_gate(cache, gate)  # before anything is fetched
            if foreign and sign_after_check(dataset, snapshot, cache, view, signed):
                return None, (cache, view)
            chosen = Selection(options.subset, options.order)
            made = warm_view(
                dataset, snapshot, cache, view, limits, signed, report, waiting, chosen, lock_fd=lock.fileno()
            )
            return made, (cache, view)


@contextlib.contextmanager
def _locked(cache: Cache, view: View, waiting: Callable[[], None] | None, *, wait: bool) -> Iterator[ViewLock]:
    lock = ViewLock(cache, view)
    if wait:
        lock.acquire(waiting)
    elif not lock.try_acquire():
        raise Locked(f"view {view.path}: another process is making it: wait for it, or warm without --no-wait")
    try:
        yield lock
    finally:
        lock.release()


def variables(dataset: str, variable: str = "") -> tuple[str, str]:
    """Return the names of the variables that tell a job the path and the snapshot (design §5); *variable* replaces
    the usual name of the path's.
    """
    if variable and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise UsageError(f"variable {variable!r}: expected letters, digits and _, not beginning with a digit")
    suffix = re.sub(r"[^A-Z0-9]", "_", dataset.upper())
    return variable or f"DATASYNC_DATASET_{suffix}", f"DATASYNC_SNAPSHOT_{suffix}"


def environment_of(warmed: Warmed, variable: str = "") -> dict[str, str]:
    """Return the variables for a job that reads *warmed*."""
    path, snapshot = variables(warmed.dataset, variable)
    return {path: str(warmed.path), snapshot: warmed.snapshot.hex()}
