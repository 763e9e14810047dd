"""Remove objects for good, in as few requests as the store takes, and tell what it keeps and until when.

A store may keep objects from everybody: a lock on each one (Object Lock), or a rule of the bucket. With versions a
delete would only hide a locked object, so locks are asked for first. Raises `StorageUnavailable`; what the store
refuses is returned, not raised.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from datasync.errors import DatasyncError, NotAuthorized, NotFound, StorageUnavailable, UsageError
from datasync.repository.removal import Kept, Remove
from datasync.service.session import Session
from datasync.storage.extras import BATCH_NAMES, BatchDelete, ObjectLock, Retention, Versions
from datasync.storage.protocol import ObjectStore

DAY_SECONDS = 86_400
Asks = Callable[[str], Kept | None]
Answer = TypeVar("Answer")


def remover(session: Session) -> Remove:
    """Return what removes objects of the session's store."""
    keeps = _keeps(session)
    store, driver = session.store, session.driver

    def remove(names: Iterable[str]) -> list[Kept]:
        kept: list[Kept] = []
        rest = iter(names)
        while batch := list(islice(rest, BATCH_NAMES)):
            held = [found for name in batch if (found := keeps(name)) is not None]
            kept += held
            spared = {item.name for item in held}
            kept += _delete(store, driver, [name for name in batch if name not in spared])
        return kept

    return remove


def _delete(store: ObjectStore, driver: ObjectStore, names: list[str]) -> Iterator[Kept]:
    """Delete *names*, many at once where the store can; yield those that it refuses."""
    if isinstance(driver, BatchDelete) and len(names) > 1:
        try:
            driver.delete_many(names)
            return
        except DatasyncError:
            pass  # which of them, and why, is found out one by one
    for name in names:
        try:
            store.delete(name)
        except StorageUnavailable:
            raise
        except (NotAuthorized, UsageError) as error:
            yield Kept(name, str(error))


def _keeps(session: Session) -> Asks:
    """Return what tells whether the store keeps an object, and until when."""
    driver = session.driver
    if isinstance(driver, ObjectLock) and isinstance(driver, Versions) and _ask(driver.versioning, "off") != "off":
        return lambda name: _locked(driver, name)
    days = _ask(driver.retention_days, None) if isinstance(driver, Retention) else None
    if days:
        return lambda name: _retained(session.store, name, days)
    return lambda name: None


def _ask(question: Callable[[], Answer], unknown: Answer) -> Answer:
    """Return the answer, or *unknown* where these credentials or this server do not tell."""
    try:
        return question()
    except (NotAuthorized, UsageError):
        return unknown


def _locked(driver: ObjectLock, name: str) -> Kept | None:
    try:
        lock = driver.lock_of(name)
    except NotFound:
        return None
    if lock.legal_hold:
        return Kept(name, "under a legal hold")
    return Kept(name, "locked by the store", lock.until) if lock.until > time.time() else None


def _retained(store: ObjectStore, name: str, days: int) -> Kept | None:
    try:
        until = store.stat(name).modified + days * DAY_SECONDS
    except NotFound:
        return None
    return Kept(name, f"the bucket keeps each object for {days} days", until) if until > time.time() else None
