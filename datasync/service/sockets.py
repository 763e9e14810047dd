"""The daemon's Unix socket: where it is, whether somebody listens there, and its name for the kernel.

A path may have any length: beyond the 107 bytes that bind and connect take (unix(7)), its directory is opened and the
kernel's own short name for it is used. Loads no HTTP: most commands only find that no daemon runs.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from datasync.config import Config
from datasync.errors import StorageUnavailable

if TYPE_CHECKING:
    from datasync.service.daemon_settings import Server

SOCKET_BYTES = 107
CONNECT_SECONDS = 5.0
SYSTEM_SOCKET = Path("/run/datasync/daemon.sock")


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield a name for *path* that bind and connect take; raise `OSError` when its directory is not there."""
    if len(os.fsencode(path)) <= SOCKET_BYTES:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def is_url(text: str | None) -> bool:
    """Tell whether *text* is a control side's URL."""
    return text is not None and text.startswith("https://")


def socket_path(config: Config, server: "Server | None" = None) -> Path:
    """Return where this user's daemon listens."""
    chosen = server.socket if server is not None else str(config.tables.get("daemon", {}).get("socket", ""))
    return Path(chosen) if chosen else (config.runtime or config.state) / "daemon.sock"


def listening(config: Config) -> Path | None:
    """Return the socket of this machine's daemon, None when none listens here or none is wanted; raise
    `StorageUnavailable` when nothing listens at the one that was named.
    """
    if config.daemon == "off" or is_url(config.daemon):
        return None
    candidates = [Path(config.daemon)] if config.daemon else [socket_path(config), SYSTEM_SOCKET]
    for path in candidates:
        if _listens(path):
            return path
    if config.daemon:
        raise StorageUnavailable(f"daemon {config.daemon}: nothing listens there: run `datasync daemon start`")
    return None


def _listens(path: Path) -> bool:
    if not path.is_socket() or not os.access(path, os.W_OK):
        return False
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as found:
        found.settimeout(CONNECT_SECONDS)
        try:
            with reachable(path) as name:
                found.connect(name)
        except OSError:
            return False
    return True
