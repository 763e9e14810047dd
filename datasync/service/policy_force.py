"""Which policies are in force, and what is known for certain when they decide.

The dataset's: the newest bundle that its owners signed. The site's: the directory that `[policy] dir` names. Where
both are, both have to allow. What is in force and can not be loaded denies; a site's directory that stops parsing is
passed over for the one that parsed last, which every decision then tells.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datasync.config import Config
from datasync.errors import NotAuthorized, UsageError
from datasync.policy.decide import PolicyEngine
from datasync.repository.local import LocalCopies
from datasync.repository.policies import Published, newest_policy
from datasync.repository.repository import OpenDataset
from datasync.service.policy_files import engine_of, is_policy_file, read_directory
from datasync.service.session import Session

CLOCK = "decided"
TRIES = 5  # to read files that do not change meanwhile
FAR_MS = 253_402_300_800_000  # the year 10000: no time of a decision
SITE = "site"


@dataclass(frozen=True, slots=True)
class InForce:
    """One policy: where it comes from, its number (0: a directory), and its engine."""

    source: str
    number: int
    engine: PolicyEngine
    warning: str = ""


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


def site_policy(config: Config) -> InForce | None:
    """Return the site's policy, if it has one."""
    if config.policy_dir is None:
        return None
    return _SITES.setdefault(config.policy_dir, SitePolicy(config.policy_dir)).current()


def published(session: Session, dataset: OpenDataset, *, fresh: bool = True) -> Published | None:
    """Return the dataset's own bundle as stored, if it has one."""
    return newest_policy(dataset.history, LocalCopies(session.repository.state / "objects"), fresh=fresh)


def dataset_policy(session: Session, dataset: OpenDataset, *, fresh: bool = True) -> InForce | None:
    """Return the dataset's own policy, if it has one."""
    found = published(session, dataset, fresh=fresh)
    if found is None:
        return None
    try:
        return InForce(dataset.name, found.number, engine_of(found.files))
    except UsageError as error:
        raise NotAuthorized(
            f"dataset {dataset.name!r}: policy {found.number} does not load, so nothing is allowed: {error}"
        ) from None


# time


def decision_time(config: Config, known: int, clock: Callable[[], float] | None = None) -> int:
    """Return now in ms: the latest of the clock, *known* (signed times), and the time of any earlier decision here.

    So a clock that is set back brings nothing back that had ended. The time is kept beside the evidence.
    """
    path = config.evidence.parent / CLOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read(32).strip()
            if text and not (text.isdigit() and int(text) < FAR_MS):
                raise NotAuthorized(f"{path}: expected the time of the last decision, found other text: remove it")
            now = max(int((clock or time.time)() * 1000), known, int(text or b"0"))
            file.seek(0)
            file.write(f"{now:<20}".encode())
    except OSError as error:
        raise NotAuthorized(f"{path}: the time of this decision can not be kept: {error.strerror}") from None
    return now
