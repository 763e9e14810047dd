"""Who could read a dataset on a day, and who did."""

from collections.abc import Iterable
from dataclasses import dataclass

from datasync.audit.event import time_text
from datasync.audit.report.model import GRANTS, READS, SUCCESS, Asked, Report, Section, Words, proof_of, short_time
from datasync.audit.rows import Row


@dataclass(slots=True)
class _Right:
    since: str
    by: str
    proof: str
    role: str
    until: str = ""

    def end(self, time: str) -> "_Right":
        """End at *time*, unless it ended before."""
        self.until = min(self.until or time, time)
        return self


def _right(row: Row) -> _Right:
    event = row.event
    role = str(event.detail.get("role") or event.detail.get("actions") or "owner")
    until = event.detail.get("until")  # ms, 0 for ever
    end = time_text(until * 1000) if isinstance(until, int) and until else ""
    return _Right(event.time, row.actor, proof_of(event.log, event.seq), role, end)


def access(rows: Iterable[Row], asked: Asked) -> Report:
    """Return the report on `dataset` and `day`."""
    rights: dict[str, _Right] = {}
    ended: list[tuple[str, _Right]] = []
    reads: dict[tuple[str, str], list[str | int]] = {}
    for row in rows:
        event = row.event
        if event.dataset != asked.dataset or event.outcome not in SUCCESS or event.time[:10] > asked.day:
            continue
        who = row.concerned or row.actor
        new_dataset = event.action == "push" and event.detail.get("new_dataset") == 1
        if event.action in GRANTS or new_dataset:
            rights.setdefault(who, _right(row))
        elif event.action == "key.revoke" and who in rights:
            ended.append((who, rights.pop(who).end(event.time)))
        elif event.action == "key.shred":
            ended += [(name, right.end(event.time)) for name, right in rights.items()]
            rights.clear()
        elif event.action in READS and event.time[:10] == asked.day:
            entry = reads.setdefault((who, event.action), [0, event.snapshot_seq, event.time, ""])
            entry[0], entry[3] = int(entry[0]) + 1, event.time
    for name, right in rights.items():
        ended += [(name, right)] if right.until else []
    rights = {name: right for name, right in rights.items() if not right.until}
    could = [*((name, right) for name, right in ended if right.until[:10] >= asked.day), *rights.items()]
    return Report(
        Words("Who could read a dataset, and who did"),
        ((Words("Dataset"), asked.dataset), (Words("Day"), asked.day)),
        (
            Section(
                Words("Who could read"),
                Words(
                    "Grants recorded up to the day, less those revoked before it. Who was removed keeps what was read."
                ),
                (Words("Person"), Words("Role"), Words("Since"), Words("Until"), Words("Granted by"), Words("Proof")),
                tuple(
                    (
                        name,
                        item.role,
                        short_time(item.since),
                        short_time(item.until) if item.until else "",
                        item.by,
                        item.proof,
                    )
                    for name, item in sorted(could)
                ),
            ),
            Section(
                Words("Who did read"),
                Words("Transfers and key releases recorded on the day, in UTC."),
                (Words("Person"), Words("Action"), Words("Times"), Words("First"), Words("Last")),
                tuple(
                    (who, action, entry[0], short_time(str(entry[2])), short_time(str(entry[3])))
                    for (who, action), entry in sorted(reads.items())
                ),
            ),
        ),
    )
