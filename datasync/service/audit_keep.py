"""Keep and forget: retention, legal hold, and the erasure of a person. Each is recorded before and after."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from datasync.audit.query import Wanted, select
from datasync.audit.retention import (
    FIRST_KEPT,
    RETAIN,
    Hold,
    Old,
    find_old,
    parse_retention,
    read_hold,
    remove_old,
    write_hold,
)
from datasync.audit.seal import month_of
from datasync.audit.segments import local_log
from datasync.audit.verify import check_beginnings, verify_log
from datasync.config import Config
from datasync.errors import Locked, NotFound
from datasync.service.audit import chosen, local_logs
from datasync.service.audit_log import PRIMITIVES, audit_root, open_log, people_of
from datasync.service.authorize import authorize
from datasync.service.record import recorded


@dataclass(frozen=True, slots=True)
class Kept:
    """What retention found in one log: what is older than it must be kept."""

    log: str
    old: Old


@dataclass(frozen=True, slots=True)
class State:
    """Retention as it stands."""

    retention: str
    hold: Hold | None
    logs: tuple[Kept, ...]


def state(config: Config, retention: str | None = None, *, override: bool = False) -> State:
    """Return what is older than the retention in force."""
    authorize(config, "ReadAudit")
    span = parse_retention(retention or config.audit.retention, override=override)
    found = tuple(Kept(files.name, find_old(files, span)) for files in local_logs(config))
    return State(retention or config.audit.retention, read_hold(audit_root(config)), found)


def apply(config: Config, retention: str | None = None, *, override: bool = False) -> State:
    """Remove what is older than the retention; `Locked` under a legal hold."""
    require_no_hold(config)
    found = state(config, retention, override=override)
    told: dict[str, Any] = {"override_legal_floor": True} if override else {}
    told |= {f"{FIRST_KEPT}{item.log}": item.old.first_kept for item in found.logs if item.old.segments}
    removed = sum(len(item.old.segments) for item in found.logs)
    check_beginnings([verify_log(PRIMITIVES, item) for item in local_logs(config)])  # evidence of tampering stays
    with recorded(config, RETAIN, security=True, retention=found.retention, segments=removed, **told) as event:
        authorize(config, "ManagePolicy", event=event)
        for item in found.logs:
            if item.old.segments:
                with open_log(config) as log, log.quiet():
                    require_no_hold(config)
                    directory = audit_root(config) / item.log
                    remove_old(PRIMITIVES, directory, local_log(PRIMITIVES, directory), item.old)
        if removed:
            people_of(config).forget_before(_first_month(config))
    return found


def _first_month(config: Config) -> str:
    """Return the month of the oldest event that is left: keys of older ones name persons of whom nothing is left."""
    firsts = [next(select(files, Wanted()), None) for files in local_logs(config)]
    return min((month_of(event.time) for event in firsts if event is not None), default="")


def require_no_hold(config: Config) -> None:
    """Raise `Locked` under a legal hold."""
    found = read_hold(audit_root(config))
    if found is not None:
        raise Locked(f"audit log: a legal hold ({found.matter}) is in force since {found.since}: lift it first")


def hold(config: Config, matter: str | None) -> Hold | None:
    """Set a legal hold for *matter*, or lift it (None)."""
    chosen(config, None)
    root = audit_root(config)
    with recorded(
        config, "audit.hold" if matter is not None else "audit.unhold", security=True, matter=matter
    ) as event:
        authorize(config, "ManagePolicy", event=event)
        value = Hold(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), matter) if matter is not None else None
        write_hold(root, value)
    return value


def erase(config: Config, person: str) -> list[str]:
    """Erase what the log says of who *person* is: its keys go; return the months. Every proof stays as it was."""
    people = people_of(config)
    subjects = sorted({key.subject for key in people.all_keys() if person in (key.subject, key.tag)})
    if not subjects:
        raise NotFound(f"audit log: no key of {person!r} is here: nothing to erase, or it was erased before")
    require_no_hold(config)
    tags = {month: tag for subject in subjects for month, tag in people.tags(subject).items()}
    told = " ".join(f"{month}:{tag}" for month, tag in tags.items())
    with recorded(config, "person.erase", security=True, tags=told, months=len(tags)) as event:
        authorize(config, "Shred", event=event)
        for subject in subjects:
            people.erase(subject)
    return sorted(tags)
