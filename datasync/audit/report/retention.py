"""Retention: how long the log is kept, holds, what is due, and what was changed or removed."""

from collections.abc import Iterable

from datasync.audit.report.model import Asked, Kept, Report, Section, Words, proof_of, short_time
from datasync.audit.rows import Row

ACTIONS = ("audit.retain", "audit.hold", "audit.unhold")


def retention(rows: Iterable[Row], asked: Asked) -> Report:
    """Return the report on `kept`."""
    kept = asked.kept or Kept("", None, ())
    history = []
    for row in rows:
        event = row.event
        if event.action in ACTIONS and event.outcome != "intent":
            detail = " ".join(f"{name}={value}" for name, value in event.detail.items())
            line = (short_time(event.time), event.action, detail, event.outcome, row.actor)
            history.append((*line, proof_of(event.log, event.seq)))
    return Report(
        Words("Retention of the audit log"),
        (
            (Words("Kept for"), kept.retention),
            (Words("Legal hold"), f"{kept.hold.matter} ({kept.hold.since})" if kept.hold else Words("none")),
            (Words("Legal floor"), Words("6 months")),
        ),
        (
            Section(
                Words("Logs"),
                Words("Segments whose events are all older than the retention are due."),
                (Words("Log"), Words("Segments due"), Words("First event that stays")),
                kept.logs,
            ),
            Section(
                Words("History"),
                Words("Removals, holds and overrides that were recorded."),
                (Words("Time"), Words("Action"), Words("Detail"), Words("Outcome"), Words("By"), Words("Proof")),
                tuple(history),
            ),
        ),
    )
