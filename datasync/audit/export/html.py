"""One self-contained HTML table, to read and to print; every value is escaped, nothing is loaded."""

from collections.abc import Iterator
from html import escape

from datasync.audit.export import Out
from datasync.audit.export.plain import printable
from datasync.audit.rows import Row

STYLE = (
    "body{font:13px/1.4 sans-serif;margin:2em}table{border-collapse:collapse;width:100%}"
    "th,td{border:1px solid #bbb;padding:2px 6px;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
    "th{background:#eee}thead{display:table-header-group}tr{break-inside:avoid}.denied,.failure{background:#fbe3e3}"
    "@page{margin:15mm}"
)
HEADINGS = ("time", "log", "seq", "action", "outcome", "actor", "target", "dataset", "snapshot", "bytes", "reason")


def write(rows: Iterator[Row], out: Out) -> None:
    """Write the rows."""
    head = "".join(f"<th>{name}</th>" for name in HEADINGS)
    out.write(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>datasync audit log</title>'
        f"<style>{STYLE}</style></head><body><h1>datasync audit log</h1><table><thead><tr>{head}</tr></thead>"
        "<tbody>\n".encode()
    )
    for row in rows:
        event = row.event
        snapshot = f"@{event.snapshot_seq} {event.snapshot[:16]}" if event.snapshot else ""
        cells: list[object] = [event.time, event.log[:8], event.seq, event.action, event.outcome]
        cells += [row.actor, row.concerned, event.dataset, snapshot, event.bytes or "", event.reason]
        text = "".join(f"<td>{escape(printable(str(cell)))}</td>" for cell in cells)
        out.write(f'<tr class="{event.outcome}">{text}</tr>\n'.encode())
    out.write(b"</tbody></table></body></html>\n")
