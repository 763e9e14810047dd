"""JSON lines: the event's canonical bytes with one more member `opened`, its persons.

Cut off from the last `,"opened":` on and close the brace: that is the leaf, and its hash is in the log.
"""

from collections.abc import Iterator

import msgspec

from datasync.audit.event import encode
from datasync.audit.export import Out
from datasync.audit.rows import Row, person_fields
from datasync.errors import FormatError

MARK = b',"opened":'


def write(rows: Iterator[Row], out: Out) -> None:
    """Write the rows."""
    for row in rows:
        event = row.event
        opened = {
            "who": person_fields(row.who, event.who.tag if event.who else ""),
            "whom": person_fields(row.whom, event.whom.tag if event.whom else ""),
        }
        out.write(encode(event)[:-1] + MARK + msgspec.json.encode(opened) + b"}\n")


def leaf_of(line: bytes) -> bytes:
    """Return the event's canonical bytes in a line of the export."""
    event, mark, _ = line.rpartition(MARK)
    if not mark:
        raise FormatError("export: a line has no member `opened`")
    return event + b"}"
