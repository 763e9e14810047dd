"""What a daemon says of itself in the audit log: that it began, ended or read its settings anew, and that it is alive.

A heartbeat every `HEARTBEAT_SECONDS` makes silence visible: `audit verify --max-silence 1h` names times without events.
"""

from datasync.config import Config
from datasync.service.authorize import authorize
from datasync.service.record import recorded

HEARTBEAT_SECONDS = 15 * 60.0


def note_daemon(config: Config, what: str) -> None:
    """Record `daemon.start`, `daemon.stop`, `daemon.reload` or `daemon.heartbeat`; who may not manage daemons starts
    none.
    """
    with recorded(config, f"daemon.{what}") as event:
        if what == "start":
            authorize(config, "ManageDaemon", event=event)
