"""A daemon in the background without systemd: start it, wait until it answers, stop it.

`start` runs `datasync daemon run` in a session of its own, in the same directory, with its log in a file, and returns
when it answers or has died. The socket is the lock: a second daemon of the same user refuses to start. Raises `Locked`,
`DatasyncError`.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from datasync.config import Config
from datasync.errors import DatasyncError, DeadlineExceeded, Locked, StorageUnavailable
from datasync.service.client import Api, local_api
from datasync.service.sockets import socket_path

START_SECONDS = 60.0
STOP_SECONDS = 60.0
LOG_TAIL_BYTES = 2000


def log_path(config: Config) -> Path:
    """Return where a daemon that was started in the background logs."""
    return config.state / "daemon.log"


def start(config: Config, arguments: list[str]) -> int:
    """Start a daemon in the background; return its process id."""
    found = local_api(config)
    if found is not None:
        raise Locked(f"daemon: one listens at {socket_path(config)} already: `datasync daemon stop` ends it")
    path = log_path(config)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        command = [sys.executable, "-m", "datasync.cli.main", "daemon", "run", *arguments]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise DatasyncError(f"daemon: it ended at once ({child.returncode}): {_tail(path)}")
        if _answers(config):
            return child.pid
        time.sleep(0.1)
    raise DeadlineExceeded(f"daemon: it did not answer within {START_SECONDS:.0f} s: see {path}")


def _answers(config: Config) -> bool:
    """Tell whether the daemon answers: its socket is there before its work has begun."""
    api = local_api(config)
    try:
        return api is not None and bool(api.call("GET", "/healthz"))
    except StorageUnavailable:
        return False


def _tail(path: Path) -> str:
    return path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip().rpartition("\n")[2]


def stop(api: Api, config: Config) -> None:
    """Ask the daemon to end and wait until it has."""
    pid = int(api.call("GET", "/v1/status")["pid"])
    api.call("POST", "/v1/stop")
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        if not _alive(pid):
            return
        time.sleep(0.1)
    raise DeadlineExceeded(f"daemon: process {pid} did not end within {STOP_SECONDS:.0f} s")


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
