"""Record of processing activities (GDPR, article 30): what the log can say of each dataset."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from datasync.audit.report.model import GRANTS, SUCCESS, Asked, Report, Section, Words, short_time
from datasync.audit.rows import Row


@dataclass(slots=True)
class _Dataset:
    purposes: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    people: set[str] = field(default_factory=set)
    regions: set[str] = field(default_factory=set)
    actions: set[str] = field(default_factory=set)
    first: str = ""
    last: str = ""


def processing(rows: Iterable[Row], asked: Asked) -> Report:
    """Return the report, of `dataset` alone when one is given."""
    found: dict[str, _Dataset] = {}
    for row in rows:
        event = row.event
        if not event.dataset or event.outcome not in SUCCESS or asked.dataset not in ("", event.dataset):
            continue
        item = found.setdefault(event.dataset, _Dataset(first=event.time))
        item.last = event.time
        item.actions.add(event.action)
        item.purposes |= {event.purpose} - {""}
        item.classes |= {event.classification} - {""}
        item.regions |= {event.region, event.node_region} - {""}
        if event.action in GRANTS and row.concerned:
            item.people.add(row.concerned)
    return Report(
        Words("Record of processing activities (GDPR, article 30)"),
        ((Words("Dataset"), asked.dataset or Words("all")),),
        (
            Section(
                Words("Datasets"),
                Words(
                    "What was recorded. Controller, legal basis and categories of persons are the controller's to add."
                ),
                (
                    Words("Dataset"),
                    Words("Purposes"),
                    Words("Classification"),
                    Words("Recipients"),
                    Words("Regions"),
                    Words("Actions"),
                    Words("First"),
                    Words("Last"),
                ),
                tuple(
                    (
                        name,
                        *(" ".join(sorted(each)) for each in (item.purposes, item.classes, item.people, item.regions)),
                        " ".join(sorted(item.actions)),
                        short_time(item.first),
                        short_time(item.last),
                    )
                    for name, item in sorted(found.items())
                ),
            ),
            Section(
                Words("Security measures"),
                Words("Those that the software applies to every dataset."),
                (Words("Measure"),),
                (
                    (Words("Encrypted before it leaves the machine; the store holds ciphertext."),),
                    (Words("Access is given by keys, and each grant is recorded."),),
                    (Words("This log is tamper-evident: events in a Merkle tree, signed checkpoints."),),
                ),
            ),
        ),
    )
