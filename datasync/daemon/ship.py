"""Ships this machine's audit log (`audit.ship`), and looks after what all machines shipped (`audit.watch`): one thread.

A node's log so leaves the node while it lives; a control side that watches sees a tail that was cut, a log that is
gone, or one that nobody vouches for, and raises an alert. Both are recorded by what they call.
"""

import threading
import time
from collections.abc import Callable

from datasync.config import Config
from datasync.daemon.journal import LOG, log
from datasync.daemon.mirror import Outside
from datasync.errors import DatasyncError, IntegrityError, NotFound
from datasync.service import audit_remote
from datasync.service.session import Session

SHIP_SECONDS = 15 * 60.0
WATCH_SECONDS = 6 * 3600.0  # every shipped log is fetched whole and verified


class ShipRunner:
    """The thread."""

    def __init__(self, config: Config, outside: Outside) -> None:
        self._config, self._outside = config, outside
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ship", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after what is under way."""
        self._stopping.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout)

    def _run(self) -> None:
        watched = -WATCH_SECONDS
        while not self._stopping.is_set():
            if self._config.audit.ship:
                self._try("audit-failing", "ship", audit_remote.send)
            if self._config.audit.watch and time.monotonic() >= watched + WATCH_SECONDS:
                watched = time.monotonic()
                self._try("integrity-failure", "audit", _watch)
            self._stopping.wait(SHIP_SECONDS)

    def _try(self, kind: str, subject: str, act: Callable[[Session], object]) -> None:
        session = Session(self._config, warn=lambda text: log("audit warning", text=text))
        try:
            act(session)
        except DatasyncError as error:
            log("audit failed", subject=subject, reason=str(error))
            if kind == "audit-failing" or isinstance(error, IntegrityError):
                self._outside.alerts.begin(kind, subject, str(error))
        except Exception:  # noqa: BLE001 (the thread outlives what nobody foresaw, and tells it)
            LOG.exception("audit failed", extra={"fields": {"subject": subject}})
        else:
            self._outside.alerts.end(kind, subject)
        finally:
            session.close()


def _watch(session: Session) -> None:
    try:
        audit_remote.verify(session, (), None)
    except NotFound:
        return  # nobody has shipped yet
