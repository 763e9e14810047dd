"""The site's policy: a directory, read again when a file changes, replaced whole or not at all.

A directory that stops parsing is passed over for the one that parsed last, which every decision then tells. Raises
`NotAuthorized` when none could be loaded yet.
"""

import os
import threading
from pathlib import Path

from datasync.errors import NotAuthorized, UsageError
from datasync.service.policy_files import engine_of, is_policy_file, read_directory
from datasync.service.policy_force import InForce

TRIES = 5  # to read files that do not change meanwhile
SITE = "site"


class SitePolicy:
    """The policy in a directory: read again when a file changes, replaced whole or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._seen: object = None
        self._loaded: InForce | None = None
        self._broken = ""

    def current(self) -> InForce:
        """Return the policy in force; raise `NotAuthorized` when none could be loaded yet."""
        with self._lock:
            if self._state() != self._seen:
                self._load()
            if self._loaded is None:
                raise NotAuthorized(
                    f"policy {self._directory}: it does not load, so nothing is allowed: {self._broken}"
                )
            return InForce(SITE, 0, self._loaded.engine, self._broken)

    def _load(self) -> None:
        """Read the files as they are at one moment: those that change meanwhile are read again, never mixed."""
        for _ in range(TRIES):
            seen = self._state()
            try:
                files, broken = read_directory(self._directory), ""
            except UsageError as error:
                files, broken = {}, str(error)
            if self._state() == seen:
                self._keep(seen, files, broken)
                return
        self._broken = f"its files changed {TRIES} times while they were read"

    def _keep(self, seen: object, files: dict[str, str], broken: str) -> None:
        self._seen, self._broken = seen, broken
        try:
            self._loaded = self._loaded if broken else InForce(SITE, 0, engine_of(files))
        except UsageError as error:
            self._broken = str(error)

    def _state(self) -> object:
        """Return what tells that a file is another one: also the change time, which nobody can set."""
        try:
            with os.scandir(self._directory) as items:
                return sorted((item.name, *_stamp(item.stat())) for item in items if is_policy_file(item.name))
        except OSError as error:
            return str(error)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


_SITES: dict[Path, SitePolicy] = {}


def current(directory: Path) -> InForce:
    """Return the policy in *directory* as it is in force now."""
    return _SITES.setdefault(directory, SitePolicy(directory)).current()
