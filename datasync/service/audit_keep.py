"""Keep and forget: retention, legal hold, and the erasure of a person. Each is recorded before and after."""

from dataclasses import dataclass
from datetime import UTC, datetime

from datasync.audit.retention import Hold, Old, find_old, parse_retention, read_hold, remove_old, write_hold
from datasync.audit.segments import local_log
from datasync.config import Config
from datasync.errors import Locked, NotFound
from datasync.service.audit import chosen, local_logs
from datasync.service.audit_log import PRIMITIVES, audit_root, open_log, people_of
from datasync.service.record import recorded


@dataclass(frozen=True, slots=True)
class Kept:
    """What retention found in one log: how many events it has, and what is older than it must be kept."""

    log: str
    events: int
    first_time: str
    old: Old


@dataclass(frozen=True, slots=True)
class State:
    """Retention as it stands."""

    retention: str
    hold: Hold | None
    logs: tuple[Kept, ...]


def state(config: Config, retention: str | None = None, *, override: bool = False) -> State:
    """Return what is older than the retention in force."""
    span = parse_retention(retention or config.audit.retention, override=override)
    found = []
    for files in local_logs(config):
        old = find_old(files, span)
        first = files.base.size
        count = (files.pieces[-1].first if files.pieces else first) - first
        found.append(Kept(files.name, count, "", old))
    return State(retention or config.audit.retention, read_hold(audit_root(config)), tuple(found))


def apply(config: Config, retention: str | None = None, *, override: bool = False) -> State:
    """Remove what is older than the retention; `Locked` under a legal hold."""
    found = state(config, retention, override=override)
    if found.hold is not None:
        raise Locked(
            f"audit log: a legal hold ({found.hold.matter}) is in force since {found.hold.since}: lift it first"
        )
    below = {"override_legal_floor": True} if override else {}
    removed = sum(len(item.old.segments) for item in found.logs)
    with recorded(config, "audit.retain", security=True, retention=found.retention, segments=removed, **below):
        for item in found.logs:
            if item.old.segments:
                with open_log(config) as log, log.quiet():
                    directory = audit_root(config) / item.log
                    remove_old(PRIMITIVES, directory, local_log(PRIMITIVES, directory), item.old)
    return found


def hold(config: Config, matter: str | None) -> Hold | None:
    """Set a legal hold for *matter*, or lift it (None)."""
    chosen(config, None)
    root = audit_root(config)
    with recorded(config, "audit.hold" if matter is not None else "audit.unhold", security=True, matter=matter):
        value = Hold(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), matter) if matter is not None else None
        write_hold(root, value)
    return value


def erase(config: Config, person: str) -> list[str]:
    """Erase what the log says of who *person* is: its keys go; return the months. Every proof stays as it was."""
    people = people_of(config)
    subjects = sorted({key.subject for key in people.all_keys() if person in (key.subject, key.tag)})
    if not subjects:
        raise NotFound(f"audit log: no key of {person!r} is here: nothing to erase, or it was erased before")
    found = read_hold(audit_root(config))
    if found is not None:
        raise Locked(f"audit log: a legal hold ({found.matter}) is in force since {found.since}: lift it first")
    tags = {month: tag for subject in subjects for month, tag in people.tags(subject).items()}
    told = " ".join(f"{month}:{tag}" for month, tag in tags.items())
    with recorded(config, "person.erase", security=True, tags=told, months=len(tags)):
        for subject in subjects:
            people.erase(subject)
    return sorted(tags)
