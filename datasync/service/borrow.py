"""Keys that a control side lends to this node: for one dataset, a range of snapshots, and a time.

The node makes a key pair that lives in this process alone and shows it with its token; the control side wraps the
dataset's key to it as a slot (docs/daemon.md). The slot opens only what the signed keyset's public keys confirm, so a
wrong answer is refused, and after its time it opens nothing. Nothing lent is written to a disk. Raises as the control
side answers (`NotAuthorized`, `NotFound`, …), `StorageUnavailable` when it can not be reached, `UsageError`.
"""

import base64
import binascii
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from datasync.config import Config
from datasync.crypto.identity import Identity
from datasync.errors import IntegrityError, NotAuthorized
from datasync.format.encoding import decode
from datasync.format.keyset import Slot
from datasync.repository.holders import Secrets
from datasync.repository.repository import Repository
from datasync.service.client import Api, control_api
from datasync.service.daemon_settings import read_settings
from datasync.service.references import parse_reference
from datasync.service.session import Session
from datasync.storage.brokers import load
from datasync.storage.location import parse_url
from datasync.storage.protocol import ObjectStore

MARGIN_SECONDS = 60  # a key is asked for anew this long before the old one ends
LENT_STORES = {
    "s3": "datasync.storage.s3.broker:open_lent",
    "oss": "datasync.storage.oss.broker:open_lent",
    "cos": "datasync.storage.cos.broker:open_lent",
    "gs": "datasync.storage.gcs.broker:open_lent",
    "az": "datasync.storage.azure.broker:open_lent",
}
"""For each scheme what opens a store with a credential's variables; without them it is opened as always."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the control side answers to a request for a key; times in ms."""

    repository: str
    dataset: str
    dataset_id: str
    seq: int
    snapshot: str
    first: int
    last: int
    until: int
    slot: str
    storage: dict[str, str] = {}

    def __repr__(self) -> str:
        """Show no secret: neither the storage credential nor the slot."""
        return f"Answer({self.dataset!r}, {self.snapshot[:16]!r}, until={self.until})"


@dataclass(frozen=True, slots=True)
class Lent:
    """A lent key with the key pair that opens it."""

    answer: Answer
    slot: Slot
    identity: Identity = field(repr=False)

    @property
    def ends_soon(self) -> bool:
        """Tell whether it should be asked for anew."""
        return time.time() + MARGIN_SECONDS > self.answer.until / 1000


class BorrowedSession(Session):
    """A session whose only key is a lent one."""

    decided = True

    def __init__(self, config: Config, lent: Lent, warn: Callable[[str], None]) -> None:
        answer = lent.answer
        changed = replace(config, repository=answer.repository, trust=(*config.trust, answer.dataset_id), kms=())
        super().__init__(changed, warn=warn)
        self._lent = lent

    @cached_property
    def identity(self) -> Identity | None:
        """The key pair of this process."""
        return self._lent.identity

    @cached_property
    def secrets(self) -> Secrets:
        """The lent slot and what opens it."""
        return Secrets(self._lent.identity, lent=((bytes.fromhex(self._lent.answer.dataset_id), self._lent.slot),))

    @cached_property
    def repository(self) -> Repository:
        """The repository, in which the dataset is found by its id: the credential may not list the others."""
        answer, found = self._lent.answer, super().repository
        found.names.keep(answer.dataset, bytes.fromhex(answer.dataset_id))
        return found

    @cached_property
    def driver(self) -> ObjectStore:
        """The store, with the credential that was lent for it, if one was."""
        keys = self._lent.answer.storage
        where = parse_url(self.config.repository or "")
        if where.scheme not in LENT_STORES or not keys:
            return super().driver
        try:
            store: ObjectStore = load(LENT_STORES[where.scheme], where.scheme)(where, keys)
        except KeyError as error:
            raise IntegrityError(f"the control side's answer has a storage credential without {error}") from None
        return store


def borrow(api: Api, reference: str, node: str) -> Lent:
    """Ask the control side for the key that *reference* needs."""
    identity = Identity.generate()
    asked = {"dataset": reference, "recipient": identity.recipient.text, "node": node}
    answer = _parse(api.call("POST", "/v1/keys", asked))
    if answer.dataset != parse_reference(reference).name:
        raise IntegrityError(f"{api.name}: asked for dataset {reference!r}, answered with {answer.dataset!r}")
    try:
        slot = decode(Slot, base64.b64decode(answer.slot, validate=True), f"{api.name}: the lent slot")
    except binascii.Error:
        raise IntegrityError(f"{api.name}: the lent slot is not base64") from None
    return Lent(answer, slot, identity)


def _parse(found: Any) -> Answer:
    try:
        return msgspec.convert(found, Answer)
    except msgspec.ValidationError as error:
        raise IntegrityError(f"the control side's answer does not parse: {error}") from None


class Lender:
    """Where this node's keys come from: the control side when one is set, else this machine's own identity."""

    def __init__(self, config: Config) -> None:
        control = read_settings(config).control
        self._api = control_api(config, control)
        self._node = control.node or socket.gethostname()
        self._lent: dict[str, Lent] = {}

    @property
    def lends(self) -> bool:
        """Tell whether a control side is set."""
        return self._api is not None

    def session(self, config: Config, reference: str, warn: Callable[[str], None]) -> Session:
        """Return a new session that opens *reference*."""
        if self._api is None:
            return Session(config, warn=warn)
        name = parse_reference(reference).name
        if self.ends_soon(name):
            self._lent.pop(name, None)
        if name not in self._lent:
            self._lent[name] = borrow(self._api, reference, self._node)
        return BorrowedSession(config, self._lent[name], warn)

    def ends_soon(self, name: str) -> bool:
        """Tell whether the key lent for the dataset has to be asked for anew."""
        lent = self._lent.get(name)
        return self._api is not None and (lent is None or lent.ends_soon)

    def until(self, name: str) -> int | None:
        """Return when the key lent for the dataset ends (ms), None when none is lent."""
        lent = self._lent.get(name)
        return lent.answer.until if lent is not None else None

    def forget(self, name: str) -> None:
        """Drop the key lent for the dataset: it was refused."""
        self._lent.pop(name, None)

    def check(self, name: str, seq: int) -> None:
        """Raise `NotAuthorized` when snapshot *seq* is outside of what was lent."""
        lent = self._lent.get(name)
        if lent is None:
            return
        answer = lent.answer
        if seq < answer.first or (answer.last and seq > answer.last):
            raise NotAuthorized(f"{name}@{seq}: lent were snapshots {answer.first} to {answer.last or 'any'}")

    def exact(self, reference: str) -> str:
        """Return *reference* as the control side resolved it, or as it is."""
        lent = self._lent.get(parse_reference(reference).name)
        return f"{lent.answer.dataset}@{lent.answer.snapshot}" if lent is not None else reference


@contextmanager
def borrowed(config: Config, reference: str, warn: Callable[[str], None]) -> Iterator[tuple[Session, str]]:
    """Yield a session with a key that the control side lent for *reference*, and the exact reference."""
    lender = Lender(config)
    session = lender.session(config, reference, warn)
    try:
        yield session, lender.exact(reference)
    finally:
        session.close()
