"""The daemon's log: one JSON object a line on stderr, with fields; never keys, tokens, or paths inside a dataset."""

import json
import logging
import sys
import time
from typing import Any

LOG = logging.getLogger("datasync.daemon")


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def log(event: str, /, level: int = logging.INFO, **fields: Any) -> None:
    """Write one event."""
    LOG.log(level, event, extra={"fields": fields})


def write_to_stderr(*, verbose: bool) -> None:
    """Begin to log; called by who runs a daemon, nobody else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(logging.DEBUG if verbose else logging.INFO)
