"""The log's integrity: what was verified, with the checkpoint that anybody can compare."""

from collections.abc import Iterable

from datasync.audit.report.model import Asked, Report, Section, Words, short_time
from datasync.audit.rows import Row


def integrity(rows: Iterable[Row], asked: Asked) -> Report:
    """Return the report on the logs in `verified`; alarms come from *rows*."""
    alarms = tuple(
        (short_time(row.event.time), row.event.action, row.event.dataset, row.event.reason)
        for row in rows
        if row.event.action.startswith("alarm.")
    )
    return Report(
        Words("Integrity of the audit log"),
        ((Words("Logs"), len(asked.verified)),),
        (
            Section(
                Words("Verified logs"),
                Words("Every event was hashed into the tree again, and every checkpoint's signature holds."),
                (
                    Words("Log"),
                    Words("Events"),
                    Words("Checkpoints"),
                    Words("First"),
                    Words("Last"),
                    Words("Root hash"),
                    Words("Checkpoint"),
                ),
                tuple(
                    (
                        item.log,
                        item.size - item.begins,
                        item.checkpoints,
                        item.first_time,
                        item.last_time,
                        item.root.hex(),
                        item.note,
                    )
                    for item in asked.verified
                ),
            ),
            Section(
                Words("Gaps"),
                Words("Events that say that something could not be recorded, or was set aside after a crash."),
                (Words("Log"), Words("Event"), Words("Reason")),
                tuple((item.log, seq, reason) for item in asked.verified for seq, reason in item.gaps),
            ),
            Section(
                Words("Alarms"),
                Words("Integrity and rollback alarms that were recorded."),
                (Words("Time"), Words("Action"), Words("Dataset"), Words("Reason")),
                alarms,
            ),
        ),
    )
