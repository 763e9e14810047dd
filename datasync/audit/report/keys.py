"""Key history: every grant, revocation, rotation and shredding, in order."""

from collections.abc import Iterable

from datasync.audit.report.model import Asked, Report, Section, Words, proof_of, short_time
from datasync.audit.rows import Row


def keys(rows: Iterable[Row], asked: Asked) -> Report:
    """Return the report, of `dataset` alone when one is given."""
    found = []
    for row in rows:
        event = row.event
        if not event.action.startswith("key.") or event.action == "key.list" or event.outcome == "intent":
            continue
        if asked.dataset in ("", event.dataset):
            epoch = event.epoch or ""
            line = (short_time(event.time), event.dataset, event.action, row.concerned, epoch, row.actor, event.outcome)
            found.append((*line, proof_of(event.log, event.seq)))
    return Report(
        Words("Key rotation and grant history"),
        ((Words("Dataset"), asked.dataset or Words("all")),),
        (
            Section(
                Words("History"),
                Words("Every change of who holds a key, failed ones included."),
                (
                    Words("Time"),
                    Words("Dataset"),
                    Words("Action"),
                    Words("Person"),
                    Words("Epoch"),
                    Words("By"),
                    Words("Outcome"),
                    Words("Proof"),
                ),
                tuple(found),
            ),
        ),
    )
