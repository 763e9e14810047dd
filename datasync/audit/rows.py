"""Events with their persons opened, merged from several logs by time: what exports and reports are made of.

A person whose key was erased, or is not here, is shown by its tag alone. Streaming: one event of each log is in memory.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from datasync.audit.event import Event
from datasync.audit.query import Wanted, select
from datasync.audit.seal import People, Person, month_of
from datasync.audit.segments import LogFiles
from datasync.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class Row:
    """One event, who did it and whom it concerns; None where sealed, erased, or nobody."""

    event: Event
    who: Person | None
    whom: Person | None

    @property
    def actor(self) -> str:
        """Return the actor's name, or the tag of one that does not open."""
        return self.who.subject if self.who else _tag(self.event.who.tag if self.event.who else "")

    @property
    def concerned(self) -> str:
        """Return the name of the person concerned, or the tag of one that does not open."""
        return self.whom.subject if self.whom else _tag(self.event.whom.tag if self.event.whom else "")


def _tag(tag: str) -> str:
    return f"sealed:{tag}" if tag else ""


def row_of(event: Event, people: People) -> Row:
    """Return *event* with its persons opened."""
    month = month_of(event.time)
    return Row(event, _open(people, event.who, month), _open(people, event.whom, month))


def _open(people: People, sealed: Any, month: str) -> Person | None:
    if sealed is None:
        return None
    try:
        return people.open(sealed, month)
    except IntegrityError:
        return None  # verify tells; a listing goes on


def rows(logs: Sequence[LogFiles], wanted: Wanted, people: People) -> Iterator[Row]:
    """Yield the wanted events of all *logs*, by time."""
    for event in heapq.merge(*(select(item, wanted) for item in logs), key=_order):
        yield row_of(event, people)


def _order(event: Event) -> tuple[str, str, int]:
    return event.time, event.log, event.seq


_PERSON = ("subject", "issuer", "method", "behalf", "address", "host", "key")
TEXT, NUMBER = "text", "number"
COLUMNS: dict[str, str] = {
    "time": TEXT,
    "log": TEXT,
    "seq": NUMBER,
    "action": TEXT,
    "outcome": TEXT,
    "reason": TEXT,
    "error": TEXT,
    **{f"actor_{name}": TEXT for name in _PERSON},
    **{f"target_{name}": TEXT for name in ("subject", "issuer", "key")},
    "node": TEXT,
    "node_region": TEXT,
    "attestation": TEXT,
    "clock": TEXT,
    "repository": TEXT,
    "dataset": TEXT,
    "dataset_id": TEXT,
    "snapshot_seq": NUMBER,
    "snapshot": TEXT,
    "tag": TEXT,
    "entries": NUMBER,
    "files": NUMBER,
    "bytes": NUMBER,
    "sent_bytes": NUMBER,
    "policy": TEXT,
    "decided_by": TEXT,
    "epoch": NUMBER,
    "slot": TEXT,
    "region": TEXT,
    "classification": TEXT,
    "purpose": TEXT,
    "request": TEXT,
    "software": TEXT,
    "detail": TEXT,
    "version": NUMBER,
}


def flat(row: Row) -> dict[str, str | int]:
    """Return the row's columns, in their order."""
    event = row.event
    values: dict[str, Any] = {name: getattr(event, name) for name in COLUMNS if hasattr(event, name)}
    values["version"] = event.v
    values["decided_by"] = " ".join(event.decided_by)
    values["detail"] = " ".join(f"{name}={value}" for name, value in event.detail.items())
    values["time"] = event.time.replace("Z", "+00:00")
    for prefix, person, name in (("actor", row.who, row.actor), ("target", row.whom, row.concerned)):
        for field in _PERSON:
            if f"{prefix}_{field}" in COLUMNS:
                values[f"{prefix}_{field}"] = getattr(person, field) if person else ""
        values[f"{prefix}_subject"] = name
    return {name: values[name] for name in COLUMNS}


def person_fields(person: Person | None, tag: str) -> dict[str, str]:
    """Return what is known of a person, for JSON."""
    if person is None:
        return {"sealed": tag} if tag else {}
    return {name: value for name in _PERSON if (value := getattr(person, name))}


def as_json(row: Row) -> dict[str, Any]:
    """Return the row for NDJSON: the event's fields, persons opened."""
    event = row.event
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in ("who", "whom")}
    shown = {name: value for name, value in fields.items() if value not in ("", 0, (), {}) or name in ("seq",)}
    who = person_fields(row.who, event.who.tag if event.who else "")
    whom = person_fields(row.whom, event.whom.tag if event.whom else "")
    return shown | ({"who": who} if who else {}) | ({"whom": whom} if whom else {})
