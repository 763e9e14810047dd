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
from datasync.service.policy_files import engine_of, read_directory
from datasync.service.session import Session

CLOCK = "decided"
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
            seen = self._state()
            if seen != self._seen:
                self._load()
                self._seen = seen
            if self._loaded is None:
                raise NotAuthorized(
                    f"policy {self._directory}: it does not load, so nothing is allowed: {self._broken}"
                )
            return InForce(SITE, 0, self._loaded.engine, self._broken)

    def _load(self) -> None:
        try:
            self._loaded = InForce(SITE, 0, engine_of(read_directory(self._directory)))
            self._broken = ""
        except UsageError as error:
            self._broken = str(error)

    def _state(self) -> object:
        try:
            with os.scandir(self._directory) as items:
                return sorted((item.name, item.stat().st_mtime_ns, item.stat().st_size) for item in items)
        except OSError as error:
            return str(error)


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
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read(32).strip()
        if text and not text.isdecimal():
            raise NotAuthorized(f"{path}: expected the time of the last decision, found other text: remove it")
        now = max(int((clock or time.time)() * 1000), known, int(text or 0))
        file.seek(0)
        file.write(f"{now:<20}")
    return now
