"""Plan: what a warm or a pull of a reference would do on this node, without doing it.

Nothing is written into a cache or a target and no data pack is fetched. The rights are those of the real act (`Warm`,
`ReadData`), asked in the same way; the audit log says `look`, since nobody gets a file by it. Each reference is looked
at alone. A view with another node's receipt is told: a warm reads it and takes it over instead of fetching.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datasync.cache.forecast import Forecast, Room
from datasync.cache.layout import Cache, View
from datasync.cache.look import look_at
from datasync.cache.ready import read_ready
from datasync.cache.space import Limits
from datasync.config import Config
from datasync.errors import NoSpace, NotFound
from datasync.pull.pipeline import Planned
from datasync.pull.preview import Preview, preview_directory, preview_view
from datasync.pull.select import Selection
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot
from datasync.service.borrow import Lender, borrowed
from datasync.service.caches import choose, find_ready, open_caches, part_name
from datasync.service.hook import daemon_for, other_readers
from datasync.service.readers import decide
from datasync.service.record import Recording, recorded
from datasync.service.references import open_reference, parse_reference
from datasync.service.session import Session
from datasync.service.vouch import is_own


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would be done for one reference; `cache` and `room` are a warm's alone, `refused` is how that would fail."""

    dataset: str
    seq: int
    snapshot: bytes
    path: Path
    planned: Planned
    kept_bytes: int
    ready: bool = False
    foreign: bool = False
    cache: Path | None = None
    room: Room | None = None
    refused: NoSpace | None = None


def plan_pull(session: Session, reference: str, target: Path) -> Outlook:
    """Return what a pull of *reference* into *target* would do; recorded as a look."""
    with recorded(session, "look", durable=False, dataset=parse_reference(reference).name, plan="pull") as event:
        dataset, snapshot = open_reference(session, reference, "ReadData", event)
        _note(event, dataset, snapshot)
        done = preview_directory(dataset, snapshot, target)
        return Outlook(dataset.name, snapshot.body.seq, snapshot.id, target, done.planned, done.kept_bytes)


def plan_warm(
    session: Session,
    reference: str,
    subset: tuple[str, ...] = (),
    order: tuple[str, ...] = (),
    group: str | None = None,
) -> Outlook:
    """Return what a warm of *reference* would do; recorded as a look."""
    with recorded(session, "look", durable=False, dataset=parse_reference(reference).name, plan="warm") as event:
        dataset, snapshot = open_reference(session, reference, "Warm", event)
        _note(event, dataset, snapshot)
        decide(session, dataset, group, fresh=False)  # refuses what is no group here
        config = session.config
        with open_caches(config.caches, session.warn, look_at) as caches:
            part, own = part_name(subset), partial(is_own, config.evidence.parent)
            place = find_ready(caches, dataset, snapshot, session.warn, part, own)
            if place is not None:
                return _ready(dataset, snapshot, *place)
            foreign = find_ready(caches, dataset, snapshot, session.warn, part, lambda _, __: True)
            cache, view = foreign or choose(caches, dataset, snapshot, part)
            done = preview_view(dataset, snapshot, cache, Selection(subset, order))
            limits = Limits(config.cache_max, config.cache_reserve)
            return _to_make(dataset, snapshot, cache, view, done, limits, foreign=foreign is not None)


def plan_alone(
    session: Session, reference: str, subset: tuple[str, ...], order: tuple[str, ...], group: str | None
) -> Outlook:
    """Return what a warm by this process would do, with a key that a control side lends where one is set."""
    if Lender(session.config).lends:
        with borrowed(session.config, reference, session.warn) as (lent, exact):
            return plan_warm(lent, exact, subset, order, group)
    return plan_warm(session, reference, subset, order, group)


def ask_plans(
    config: Config, references: Sequence[str], subset: Sequence[str], group: str | None
) -> Iterator[dict[str, Any]] | None:
    """Return the answer of the daemon that would warm *references*, as it comes; None when this process would."""
    api = daemon_for(config)
    if api is None:
        return None
    if group is not None:
        raise other_readers(api, group)
    words = ["plan", *(f"--subset={glob}" for glob in subset), "--", *references]
    return api.stream("POST", "/v1/commands", {"arguments": words})


def _note(event: Recording, dataset: OpenDataset, snapshot: Snapshot) -> None:
    event.note(dataset_id=dataset.id, snapshot=snapshot.id, snapshot_seq=snapshot.body.seq)


def _ready(dataset: OpenDataset, snapshot: Snapshot, cache: Cache, view: View) -> Outlook:
    ready = read_ready(cache, view)
    if ready is None:
        raise NotFound(f"view {view.path}: it was evicted while it was looked at: run the same line again")
    nothing = Planned(ready.entries, ready.files, ready.bytes, ready.files, 0, 0, 0, 0, 0)
    named = (dataset.name, snapshot.body.seq, snapshot.id, view.path)
    return Outlook(*named, nothing, ready.bytes, ready=True, cache=cache.path)


def _to_make(
    dataset: OpenDataset,
    snapshot: Snapshot,
    cache: Cache,
    view: View,
    done: Preview,
    limits: Limits,
    *,
    foreign: bool,
) -> Outlook:
    room = refused = None
    try:
        room = Forecast(cache, limits, done.shared).room(done.planned.needed_bytes, view)
    except NoSpace as error:
        refused = error
    named = (dataset.name, snapshot.body.seq, snapshot.id, view.path, done.planned, done.kept_bytes)
    return Outlook(*named, foreign=foreign, cache=cache.path, room=room, refused=refused)
