"""The gates of a dataset's views on this node: set as was decided (`datasync.service.readers`), and recorded.

Decided anew by every warm and run, every look of the daemon, and `ready --deep`, for all views of the dataset here. A
plain `ready`, and `run` on what is left locally, ask the site's policy and the settings alone, and take away only.
Closing waits for nothing; opening writes its audit event before. Raises what `datasync.cache.gate` and
`datasync.service.readers` raise.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from datasync.cache.gate import CLOSED, gate_of, set_gate
from datasync.cache.layout import Cache, View
from datasync.cache.ready import Ready, read_ready
from datasync.config import Config
from datasync.errors import DatasyncError, IntegrityError, NotAuthorized, NotFound
from datasync.repository.repository import OpenDataset
from datasync.service.accounts import readers
from datasync.service.caches import open_caches
from datasync.service.readers import OWNER_ALONE, Readers, Warn, decide
from datasync.service.record import recorded
from datasync.service.session import Session
from datasync.service.vouch import is_own


def renew(session: Session, caches: Iterable[Cache], dataset: OpenDataset, decided: Readers) -> None:
    """Give all views of *dataset* in *caches* the gate that was *decided*; one that this node did not sign, or whose
    receipt is damaged, is closed. Recorded. What fails for one view is raised once the others have theirs.
    """
    counts = partial(is_own, session.config.evidence.parent)
    failed: list[DatasyncError] = []
    for cache in caches:
        for view in cache.views(dataset.name):
            try:
                if decided.gate == CLOSED == gate_of(cache, view):
                    continue
                ready = read_ready(cache, view)
                if ready is not None and ready.dataset_id == dataset.id:
                    _set(session, cache, view, ready, decided if counts(view, ready) else OWNER_ALONE)
            except NotFound:
                continue  # evicted meanwhile
            except IntegrityError as error:
                session.warn(str(error))  # a damaged receipt: it counts for no command
                failed += _shut(session, cache, view, dataset.name)
            except DatasyncError as error:
                failed.append(error)
    if failed:
        raise failed[0]


def _shut(session: Session, cache: Cache, view: View, name: str) -> list[DatasyncError]:
    """Close a view of which nothing is known; return why that failed."""
    try:
        if gate_of(cache, view) != CLOSED:
            with recorded(session, "cache.gate", dataset=name) as event:
                set_gate(cache, view, CLOSED)
                event.note(by="owner")
    except NotFound:
        return []
    except DatasyncError as error:
        return [error]
    return []


def renew_by_policy(session: Session, caches: Iterable[Cache], dataset: OpenDataset, group: str | None = None) -> bool:
    """Renew the gates of *dataset* and tell that a policy is in force; where none is, what a warm asked for stays."""
    decided = decide(session, dataset, group, fresh=True)
    if decided.by != "policy":
        return False
    renew(session, caches, dataset, decided)
    return True


def renew_denied(session: Session, name: str, group: str | None, denied: NotAuthorized) -> None:
    """Renew the gates of dataset *name* though this machine's own warm was *denied*: they concern others."""
    config = session.config
    if not config.accounts and group is None and config.cache_group is None:
        return
    try:
        dataset = session.repository.open(name)
        with open_caches(config.caches, session.warn) as caches:
            renew_by_policy(session, caches, dataset, group)
    except DatasyncError as error:
        denied.add_note(f"and who else may read the views here could not be decided: {error}")


def narrow(config: Config, cache: Cache, view: View, ready: Ready, warn: Warn) -> None:
    """Take away the rights on a ready view that this machine's settings and the site's policy do not give. Recorded."""
    if not config.accounts and config.policy_dir is None:
        return  # what --group asked for stays
    from datasync.service.reader_policies import narrowed  # the engine of policies takes 10 ms to load

    try:
        now = gate_of(cache, view) or CLOSED
        _set(config, cache, view, ready, narrowed(config, ready.dataset, now, warn))
    except NotFound:
        return  # evicted meanwhile


def _set(where: Session | Config, cache: Cache, view: View, ready: Ready, decided: Readers) -> None:
    now = gate_of(cache, view)
    if now == decided.gate:
        return
    opens = decided.gate.opens(now)
    if not opens:
        set_gate(cache, view, decided.gate)  # closing waits for no log
    fields: dict[str, Any] = {"dataset": ready.dataset, "snapshot": ready.snapshot, "snapshot_seq": ready.seq}
    with recorded(where, "cache.gate", security=opens, **fields) as event:
        event.note(readers=" ".join(readers(decided.gate)), before=" ".join(readers(now)), by=decided.by)
        event.note(policy=decided.policy or None, decided_by=decided.decided_by or None)
        set_gate(cache, view, decided.gate)
