"""ArcSight's Common Event Format, version 0: `CEF:0|vendor|product|version|id|name|severity|extension`, UTF-8.

In the header `\\` and `|` are escaped, in the extension `\\` and `=`; a line end becomes `\\n`, another control
character its escape. Custom strings carry a label (OpenText, "CEF Implementation Standard").
"""

import ipaddress
from collections.abc import Iterator

from datasync.audit.event import time_value
from datasync.audit.export import Out
from datasync.audit.export.plain import printable
from datasync.audit.rows import Row, flat

SEVERITY = {"success": 3, "intent": 3, "partial": 5, "failure": 6, "denied": 7}
ALARM = 10


def write(rows: Iterator[Row], out: Out) -> None:
    """Write the rows."""
    for row in rows:
        out.write(_line(row).encode() + b"\n")


def _line(row: Row) -> str:
    event = row.event
    severity = ALARM if event.action.startswith("alarm.") else SEVERITY[event.outcome]
    head = ("CEF:0", "datasync", "datasync", event.software or "0", event.action, f"{event.action} {event.outcome}")
    extension = " ".join(f"{key}={_value(value)}" for key, value in _extension(row).items() if value not in ("", 0))
    return "|".join([head[0], *map(_header, head[1:]), str(severity), extension])


def _extension(row: Row) -> dict[str, str | int]:
    event, cells = row.event, flat(row)
    address = str(cells["actor_address"])
    labelled = {
        "dataset": event.dataset,
        "snapshot": event.snapshot,
        "repository": event.repository,
        "policy": event.policy,
        "decided_by": str(cells["decided_by"]),
        "detail": str(cells["detail"]),
    }
    strings: dict[str, str | int] = {}
    for number, (label, value) in enumerate(labelled.items(), 1):
        strings |= {f"cs{number}Label": label, f"cs{number}": value} if value else {}
    return {
        "rt": int(time_value(event.time).timestamp() * 1000),
        "externalId": f"{event.log}/{event.seq}",
        "act": event.action,
        "outcome": event.outcome,
        "reason": event.reason,
        "suser": row.actor,
        "duser": row.concerned,
        "src": address if _is_address(address) else "",
        "shost": cells["actor_host"],
        "deviceExternalId": event.node,
        "fsize": event.bytes,
        "out": event.sent_bytes,
        "cat": event.classification,
        "requestClientApplication": event.request,
        **strings,
    }


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _escaped(text: str) -> str:
    """Return *text* with escapes for control characters whose backslashes are escaped once more by the caller."""
    return printable(text.replace("\r\n", "\n"))


def _header(text: str) -> str:
    return _escaped(text).replace("\\", "\\\\").replace("|", "\\|")


def _value(value: str | int) -> str:
    parts = str(value).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\\n".join(_escaped(part).replace("\\", "\\\\").replace("=", "\\=") for part in parts)
