"""Which policies are in force, and what is known for certain when they decide.

The dataset's: the newest bundle that its owners signed. The site's: the directory that `[policy] dir` names. Where
both are, both have to allow. What is in force and can not be loaded denies.
"""

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from datasync.config import Config
from datasync.errors import NotAuthorized, UsageError
from datasync.repository.local import LocalCopies
from datasync.repository.policies import Published, newest_policy
from datasync.repository.repository import OpenDataset
from datasync.service.session import Session

if TYPE_CHECKING:
    from datasync.policy.decide import PolicyEngine

CLOCK = "decided"
FAR_MS = 253_402_300_800_000  # the year 10000: no time of a decision


@dataclass(frozen=True, slots=True)
class InForce:
    """One policy: where it comes from, its number (0: a directory), and its engine."""

    source: str
    number: int
    engine: "PolicyEngine"
    warning: str = ""


def site_policy(config: Config) -> InForce | None:
    """Return the site's policy, if it has one."""
    if config.policy_dir is None:
        return None
    from datasync.service.site_policy import current  # the engine of policies takes 10 ms to load

    return current(config.policy_dir)


def published(session: Session, dataset: OpenDataset, *, fresh: bool = True) -> Published | None:
    """Return the dataset's own bundle as stored, if it has one."""
    return newest_policy(dataset.history, LocalCopies(session.repository.state / "objects"), fresh=fresh)


def dataset_policy(session: Session, dataset: OpenDataset, *, fresh: bool = True) -> InForce | None:
    """Return the dataset's own policy, if it has one."""
    found = published(session, dataset, fresh=fresh)
    if found is None:
        return None
    from datasync.service.policy_files import engine_of  # the same

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
