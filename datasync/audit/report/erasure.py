"""Erasure certificates (GDPR, article 17): what was made unreadable or removed, when, and the proof."""

from collections.abc import Iterable

from datasync.audit.report.model import Asked, Report, Section, Words, proof_of, short_time
from datasync.audit.rows import Row

ACTIONS = {
    "key.shred": Words("keys of the dataset destroyed: its ciphertext can not be read any more"),
    "person.erase": Words("keys of the person destroyed: the name in the log can not be read any more"),
    "forget": Words("snapshots forgotten"),
    "prune": Words("objects deleted"),
    "purge": Words("cache of a node emptied"),
    "cache.purge": Words("cache of a node emptied"),
}


def erasure(rows: Iterable[Row], asked: Asked) -> Report:
    """Return the report, of `dataset` alone when one is given."""
    certificates, open_intents = [], dict[tuple[str, str, str], tuple[str, str]]()
    for row in rows:
        event = row.event
        if event.action not in ACTIONS or asked.dataset not in ("", event.dataset):
            continue
        key = (event.log, event.action, event.dataset)
        if event.outcome == "intent":
            open_intents[key] = (short_time(event.time), proof_of(event.log, event.seq))
            continue
        open_intents.pop(key, None)
        what = event.dataset or str(event.detail.get("tags", "")) or row.concerned
        line = (short_time(event.time), event.action, what, ACTIONS[event.action], event.outcome, row.actor)
        certificates.append((*line, proof_of(event.log, event.seq)))
    return Report(
        Words("Erasure certificates (GDPR, article 17)"),
        ((Words("Dataset"), asked.dataset or Words("all")),),
        (
            Section(
                Words("Certificates"),
                Words(
                    "Each line is an event that can be proved. Copies made before, by those who might, are not reached."
                ),
                (
                    Words("Time"),
                    Words("Action"),
                    Words("What"),
                    Words("Meaning"),
                    Words("Outcome"),
                    Words("By"),
                    Words("Proof"),
                ),
                tuple(certificates),
            ),
            Section(
                Words("Begun and not reported as done"),
                Words("An intent was recorded, and no outcome after it."),
                (Words("Action"), Words("Dataset"), Words("Time"), Words("Proof")),
                tuple((key[1], key[2], *rest) for key, rest in sorted(open_intents.items())),
            ),
        ),
    )
