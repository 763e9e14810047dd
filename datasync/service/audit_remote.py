"""Ship this machine's log to the repository; fetch, verify and read the logs that all machines shipped there.

A shipped log counts only with a certificate: its key signed by this identity, or by a principal in the trust root of a
dataset that this identity opens; this machine's own log needs none. What was verified is remembered, so a log that gets
shorter is a rollback.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from datasync.audit.checkpoint import Checkpoint, parse_note, verifier_key
from datasync.audit.retention import parse_retention, read_hold
from datasync.audit.seal import People
from datasync.audit.segments import LogFiles, local_log
from datasync.audit.ship import ROOT, Fetched, Sent, fetch, ship, shipped_logs
from datasync.audit.verify import Verified, verify_log
from datasync.config import Config
from datasync.crypto.recipients import KeyPair, Recipient
from datasync.crypto.signatures import parse_signer, signer_text
from datasync.crypto.signatures import verify as verify_signature
from datasync.errors import AlreadyExists, IntegrityError, NotFound, UntrustedError, UsageError
from datasync.service.audit import SEEN, keep_seen, local_logs, read_checkpoint
from datasync.service.audit_log import PRIMITIVES, audit_root, live_log, people_of
from datasync.service.log_key import log_key
from datasync.service.record import recorded
from datasync.service.session import Session
from datasync.storage.extras import ObjectLock
from datasync.storage.protocol import Created, ObjectStore
from datasync.storage.retry import RetryingStore

KIND = "audit-log"


class _LockedPuts:
    """The store, with each new object locked until *until*."""

    def __init__(self, store: ObjectStore, until: float, *, legal_hold: bool) -> None:
        self._store, self._until, self._hold = store, until, legal_hold

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        assert isinstance(self._store, ObjectLock)
        return self._store.put_locked(name, data, until=self._until, legal_hold=self._hold)


@contextmanager
def _locking(session: Session) -> Iterator[ObjectStore]:
    """Yield the store that ships: one that locks what it creates, when that is configured."""
    if not session.config.audit.lock:
        yield session.store
        return
    store = session.driver
    if not isinstance(store, ObjectLock):
        raise UsageError(
            f"audit.lock: {store.url} can not lock objects: use a store that can, or set audit.lock = false"
        )
    until = time.time() + parse_retention(session.config.audit.retention).total_seconds()
    held = read_hold(audit_root(session.config)) is not None
    locked: Any = _LockedPuts(store, until, legal_hold=held)
    yield RetryingStore(locked)


def _recipients(session: Session) -> list[Recipient]:
    found = [Recipient.parse(text) for text in session.config.audit.recipients]
    if session.identity is not None and session.identity.recipient not in found:
        found.append(session.identity.recipient)
    if not found:
        raise UsageError(
            "audit.recipients: expected who may read shipped logs, found nobody: set it to their dsr1… texts"
        )
    return found


def _opener(session: Session) -> KeyPair:
    if session.identity is None:
        raise UsageError("audit: shipped logs are read with an identity, not with a passphrase")
    return session.identity.key_pair


def send(session: Session) -> Sent:
    """Ship what this machine's log has and the repository has not; recorded (the event goes with the next ship)."""
    config = session.config
    recipients = _recipients(session)
    with recorded(session, "audit.ship") as event, _locking(session) as store:
        _certify(session, store)
        files = live_log(config)
        state = audit_root(config) / files.name / f"shipped-{session.repository.marker.repository}.json"
        opener = session.identity.key_pair if session.identity else None
        sent = ship(PRIMITIVES, files, people_of(config), store, recipients, opener, state, plain=session.store)
        event.note(parcels=sent.parcels, events=sent.events)
    return sent


def _certify(session: Session, store: ObjectStore) -> None:
    key = log_key(session.config.evidence.parent)
    text = verifier_key(PRIMITIVES, key.public)
    value = {"key": text}
    if session.identity is not None:
        mine = session.identity.signing_key
        value |= {"signer": signer_text(mine.public), "signature": mine.sign(KIND, text.encode()).hex()}
    try:
        store.put_if_absent(f"{ROOT}{text.split('+')[0].rpartition('/')[2]}/certificate", json.dumps(value).encode())
    except AlreadyExists:
        return


@dataclass(frozen=True, slots=True)
class Shipped:
    """A shipped log that holds: who certified it, and what the store says is locked."""

    done: Verified
    told: dict[str, Any]
    locks: list[str] = field(default_factory=list)


@contextmanager
def fetched(session: Session) -> Iterator[tuple[list[LogFiles], People, list[Fetched]]]:
    """Yield every shipped log as files in a temporary directory, certificates checked, and the persons' keys."""
    people = people_of(session.config).copy()
    with tempfile.TemporaryDirectory(prefix="datasync-audit-") as folder:
        found = []
        for log in shipped_logs(session.store):
            try:
                one = fetch(PRIMITIVES, log, session.store, _opener(session), Path(folder) / log, people)
            except NotFound as error:
                raise IntegrityError(f"log {log}: it has no certificate: {error}") from None
            _check_certificate(session, one)
            found.append(one)
        if not found:
            raise NotFound(
                f"{session.store.url}: no audit log was shipped here: run datasync audit ship on each machine"
            )
        yield [local_log(PRIMITIVES, item.directory) for item in found], people, found


def _check_certificate(session: Session, one: Fetched) -> None:
    key = one.certificate.get("key", "")
    if key == verifier_key(PRIMITIVES, log_key(session.config.evidence.parent).public):
        return
    signer = one.certificate.get("signer", "")
    if not signer or signer not in _trusted(session):
        raise UntrustedError(
            f"log {one.log}: its key is certified by {signer[:20] or 'nobody'}…, whom no dataset's trust root names"
        )
    verify_signature(parse_signer(signer), KIND, key.encode(), bytes.fromhex(one.certificate.get("signature", "")))


def _trusted(session: Session) -> set[str]:
    found = {signer_text(session.identity.signing_key.public)} if session.identity is not None else set()
    for dataset in session.repository.open_all()[0]:
        found |= {signer_text(item.signer) for item in dataset.trusted.root.principals}
    return found


def verify(session: Session, kept: tuple[Checkpoint, ...], max_silence: timedelta | None) -> list[Shipped]:
    """Return what the shipped logs are; raise for the first that does not hold. Recorded."""
    done = list[Shipped]()
    root = audit_root(session.config)
    repository = session.repository.marker.repository
    with recorded(session, "audit.verify", remote=True) as event, fetched(session) as (logs, _, found):
        for files, one in zip(logs, found, strict=True):
            seen = root / SEEN / f"{repository}-{one.log}"
            mine = tuple(item for item in kept if item.log == one.log)
            more = (read_checkpoint(seen),) if seen.exists() else ()
            good = verify_log(PRIMITIVES, files, kept=mine + more, max_silence=max_silence)
            _compare(session.config, good)
            keep_seen(seen, good.note)
            told = {"remote": True, "parcels": len(one.names), "certified_by": one.certificate.get("signer", "")}
            done.append(Shipped(good, told, locks(session, one.names)))
        event.note(logs=len(done), events=sum(item.done.size for item in done))
    return done


def _compare(config: Config, shipped: Verified) -> None:
    """Compare a shipped log with this machine's own of the same id: two histories of one log are a split view."""
    for mine in local_logs(config):
        if mine.name == shipped.log and shipped.note:
            verify_log(PRIMITIVES, mine, kept=[parse_note(shipped.note)[0]])


def locks(session: Session, names: tuple[str, ...]) -> list[str]:
    """Return what the store says keeps the objects, in sentences; nothing where it can not lock."""
    store = session.driver
    if not isinstance(store, ObjectLock) or not names:
        return []
    found = {name: store.lock_of(name) for name in names}
    locked = {name: item for name, item in found.items() if item.until > time.time() or item.legal_hold}
    text = [f"{len(locked)} of {len(found)} objects are locked by the store"]
    if locked:
        first, last = (datetime.fromtimestamp(f(item.until for item in locked.values()), UTC) for f in (min, max))
        mode = "compliance" if all(item.compliance for item in locked.values()) else "governance"
        held = sum(item.legal_hold for item in locked.values())
        text.append(f"{mode}: the first until {first:%Y-%m-%dT%H:%M:%SZ}, the last until {last:%Y-%m-%dT%H:%M:%SZ}")
        text += [f"{held} of them under a legal hold"] if held else []
    return text


def erase(session: Session, person: str) -> int:
    """Delete a person's keys that were shipped; return how many objects went. Recorded before and after."""
    with fetched(session) as (_, known, found):
        tags = {key.tag for key in known.all_keys() if person in (key.subject, key.tag)}
        logs = [item.log for item in found]
    names = [
        item.name
        for log in logs
        for item in session.store.list(f"{ROOT}{log}/people/")
        if item.name.rpartition("-")[2] in tags
    ]
    with recorded(session, "person.erase", security=True, remote=True, tags=" ".join(sorted(tags)), objects=len(names)):
        for name in names:
            session.store.delete(name)
    return len(names)
