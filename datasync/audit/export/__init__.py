"""Exports: one module per format, each `write(rows, out)` from rows to bytes, in order, with bounded memory."""

import importlib
from collections.abc import Callable, Iterator
from typing import Protocol

from datasync.audit.rows import Row
from datasync.errors import UsageError

FORMATS = {
    "jsonl": "one JSON object a line, the signed event and its persons; can be verified with the manifest",
    "csv": "one line an event, safe to open in a spreadsheet",
    "parquet": "one row an event (needs the extra `parquet`)",
    "ocsf": "OCSF 1.7.0, one JSON object a line",
    "cef": "Common Event Format, one line an event, for a SIEM",
    "cloudtrail": "the record format of AWS CloudTrail's log files",
    "html": "one table to read and print",
}
_MODULES = {"jsonl": "json_lines", "csv": "comma_separated"}


class Out(Protocol):
    """Where an export's bytes go."""

    def write(self, data: bytes, /) -> int:
        """Write all of *data*."""


Write = Callable[[Iterator[Row], Out], None]


def writer(name: str) -> Write:
    """Return the function that writes the format *name*; raise `UsageError`."""
    if name not in FORMATS:
        raise UsageError(f"export format {name!r}: expected one of {', '.join(FORMATS)}")
    try:
        module = importlib.import_module(f"datasync.audit.export.{_MODULES.get(name, name)}")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise UsageError(
            "export format parquet: it needs pyarrow, which is not installed: pip install 'gpu-datasync[parquet]'"
        ) from None
    write: Write = module.write
    return write
