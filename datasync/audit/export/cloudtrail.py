"""The record format of AWS CloudTrail's log files: one JSON document `{"Records": [...]}`.

Field names and rules are those of AWS's "CloudTrail record contents" (event version 1.11). These are not AWS's events:
`eventSource` says so, and there is no account.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from datasync.audit.export import Out
from datasync.audit.rows import Row, as_json, flat

SOURCE = "datasync.invalid"  # not a service of the provider (RFC 2606)
_READS = ("pull", "warm", "look", "verify", "read", "audit.query", "audit.verify", "key.list")


def write(rows: Iterator[Row], out: Out) -> None:
    """Write the rows."""
    out.write(b'{"Records":[')
    for number, row in enumerate(rows):
        out.write((b",\n" if number else b"\n") + msgspec.json.encode(_record(row)))
    out.write(b"\n]}\n")


def _record(row: Row) -> dict[str, Any]:
    event, cells = row.event, flat(row)
    record: dict[str, Any] = {
        "eventVersion": "1.11",
        "userIdentity": {
            "type": "Unknown",
            "principalId": row.actor or "unknown",
            "userName": row.actor or "unknown",
            "invokedBy": cells["actor_behalf"],
        },
        "eventTime": event.time[:19] + "Z",
        "eventSource": SOURCE,
        "eventName": event.action,
        "awsRegion": event.region or event.node_region or "none",
        "sourceIPAddress": cells["actor_address"] or cells["actor_host"] or "unknown",
        "userAgent": f"datasync/{event.software}",
        "requestParameters": {"dataset": event.dataset, "snapshot": event.snapshot, "tag": event.tag},
        "responseElements": {"outcome": event.outcome, "bytes": event.bytes},
        "additionalEventData": as_json(row),
        "requestID": event.request or f"{event.log}/{event.seq}",
        "eventID": _uuid(event.log, event.seq),
        "readOnly": event.action in _READS,
        "eventType": "AwsServiceEvent",
        "managementEvent": event.action not in ("push", "pull", "warm"),
        "recipientAccountId": "000000000000",
        "eventCategory": "Data" if event.action in ("push", "pull", "warm") else "Management",
    }
    if event.outcome in ("failure", "denied"):
        record |= {"errorCode": event.error or event.outcome, "errorMessage": event.reason}
    return record


def _uuid(log: str, seq: int) -> str:
    """Return an id in the shape of a UUID that is the event's own: the log's first half and the number."""
    text = log[:16] + f"{seq:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
