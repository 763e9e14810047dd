"""Keeps one reference ready on this node: looks for a newer snapshot, and warms it when there is one.

A look costs a few small requests and is not recorded; a warm, and a change of who may read, is. The keys are
this machine's own, or lent by the control side (`service.borrow`), kept for as long as they were lent. Raises as a warm
does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from datasync.config import Config
from datasync.pull.pipeline import Progress
from datasync.service.borrow import Lender
from datasync.service.caches import find_ready, open_caches, part_name
from datasync.service.gates import renew
from datasync.service.readers import decide
from datasync.service.references import parse_reference, resolve
from datasync.service.session import Session
from datasync.service.vouch import is_own
from datasync.service.warm import WarmOptions, warm


@dataclass(frozen=True, slots=True)
class Kept:
    """What is ready now; `fetched_bytes` is None when nothing had to be done."""

    dataset: str
    seq: int
    snapshot: bytes
    path: Path
    fetched_bytes: int | None


class Keeper:
    """Keeps *reference* ready. Close it at the end; after an error the next step begins with a new session."""

    def __init__(
        self, config: Config, reference: str, subset: tuple[str, ...], lender: Lender, warn: Callable[[str], None]
    ) -> None:
        self._config, self._subset, self._lender, self._warn = config, subset, lender, warn
        self._reference = parse_reference(reference)
        self._session: Session | None = None

    def step(self, report: Callable[[Progress], None]) -> Kept:
        """Look, warm if there is something new, and return what is ready."""
        session = self._open()
        try:
            return self._step(session, report)
        except BaseException:
            self.close()
            raise

    def _open(self) -> Session:
        if self._session is not None and not self._lender.ends_soon(self._reference.name):
            return self._session
        self.close()
        self._session = self._lender.session(self._config, str(self._reference), self._warn)
        return self._session

    def _step(self, session: Session, report: Callable[[Progress], None]) -> Kept:
        dataset = session.repository.open(self._reference.name)
        snapshot = resolve(dataset, self._reference)
        self._lender.check(self._reference.name, snapshot.body.seq)
        with open_caches(session.config.caches, session.warn) as caches:
            counts = partial(is_own, session.config.evidence.parent)
            place = find_ready(caches, dataset, snapshot, session.warn, part_name(self._subset), counts)
            renew(session, caches, dataset, decide(session, dataset, fresh=True))
        if place is not None:
            return Kept(dataset.name, snapshot.body.seq, snapshot.id, place[1].path, None)
        exact = f"{dataset.name}@{snapshot.id.hex()}"
        done = warm(session, exact, report, None, WarmOptions(subset=self._subset))
        return Kept(done.dataset, done.seq, done.snapshot, done.path, done.result.fetched_bytes if done.result else 0)

    def close(self) -> None:
        """Give back the connections."""
        if self._session is not None:
            self._session.close()
            self._session = None
