"""Access review of one person: what they may read, what they did, what was done for them."""

from collections.abc import Iterable

from datasync.audit.report.model import GRANTS, SUCCESS, Asked, Report, Section, Words, proof_of, short_time
from datasync.audit.rows import Row


def _is(name: str, asked: str) -> bool:
    return name == asked or name.split("@")[0] == asked or name == f"sealed:{asked}"


def person(rows: Iterable[Row], asked: Asked) -> Report:
    """Return the report on `person`."""
    rights: dict[str, tuple[str, str, str]] = {}
    did: dict[tuple[str, str, str], list[str | int]] = {}
    for row in rows:
        event = row.event
        if _is(row.concerned, asked.person) and event.outcome in SUCCESS:
            if event.action in GRANTS:
                rights[event.dataset] = (short_time(event.time), row.actor, proof_of(event.log, event.seq))
            elif event.action in ("key.revoke", "key.shred"):
                rights.pop(event.dataset, None)
        if _is(row.actor, asked.person) and event.outcome != "intent":
            entry = did.setdefault((event.action, event.dataset, event.outcome), [0, event.time, event.time])
            entry[0], entry[2] = int(entry[0]) + 1, event.time
    return Report(
        Words("Access review of a person"),
        ((Words("Person"), asked.person),),
        (
            Section(
                Words("May read now"),
                Words("Grants recorded and not revoked."),
                (Words("Dataset"), Words("Since"), Words("Granted by"), Words("Proof")),
                tuple((dataset, *rest) for dataset, rest in sorted(rights.items())),
            ),
            Section(
                Words("Did"),
                Words("Everything recorded with this person as the actor."),
                (Words("Action"), Words("Dataset"), Words("Outcome"), Words("Times"), Words("First"), Words("Last")),
                tuple(
                    (*key, entry[0], short_time(str(entry[1])), short_time(str(entry[2])))
                    for key, entry in sorted(did.items())
                ),
            ),
        ),
    )
