"""CSV (RFC 4180) in UTF-8 with a header line. A text cell that a spreadsheet could run gets an apostrophe before it.

Spreadsheets run cells that begin with = + - @, a tab or a carriage return (OWASP, "CSV Injection"); control characters,
line ends included, are escaped, so one event is one line.
"""

import csv
import io
from collections.abc import Iterator

from datasync.audit.export import Out
from datasync.audit.export.plain import printable
from datasync.audit.rows import COLUMNS, Row, flat

RUN = "=+-@＝＋－＠|%"


def write(rows: Iterator[Row], out: Out) -> None:
    """Write the rows."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_MINIMAL)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(value) for value in flat(row).values()])
        out.write(buffer.getvalue().encode())
        buffer.seek(0)
        buffer.truncate()
    out.write(buffer.getvalue().encode())


def _cell(value: str | int) -> str | int:
    if isinstance(value, int):
        return value
    text = printable(value)
    return "'" + text if text.lstrip()[:1] and text.lstrip()[0] in RUN else text
