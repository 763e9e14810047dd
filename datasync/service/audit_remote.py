"""Ship this machine's log to the repository; fetch, verify and read the logs that all machines shipped there.

A shipped log counts only with a certificate: its key signed by this identity, or by a principal in the trust root of a
dataset that this identity opens; this machine's own log needs none. What was verified is remembered, so a log that gets
shorter is a rollback.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from datasync.audit.checkpoint import Checkpoint, parse_note, verifier_key
from datasync.audit.parcel_retention import find_old_parcels, remove_old_parcels
from datasync.audit.retention import FIRST_KEPT, RETAIN, parse_retention, read_hold
from datasync.audit.seal import People
from datasync.audit.segments import LogFiles, local_log
from datasync.audit.ship import ROOT, Fetched, Sent, Vouched, fetch, ship, shipped_logs
from datasync.audit.verify import Verified, check_beginnings, verify_log
from datasync.config import Config
from datasync.crypto.identity import Identity
from datasync.crypto.recipients import KeyPair, Recipient
from datasync.crypto.signatures import parse_signer, signer_text
from datasync.crypto.signatures import verify as verify_signature
from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    FormatError,
    IntegrityError,
    NotFound,
    UntrustedError,
    UsageError,
)
from datasync.format.grant import read_grant
from datasync.repository.belief import Holder
from datasync.repository.grants import check_grant
from datasync.repository.holders import Secrets
from datasync.repository.repository import LocalPaths, Repository
from datasync.service.audit import (
    SEEN,
    check_known,
    check_there,
    keep_seen,
    local_logs,
    read_checkpoint,
    with_key,
)
from datasync.service.audit_keep import require_no_hold
from datasync.service.audit_log import PRIMITIVES, audit_root, live_log, people_of
from datasync.service.authorize import authorize
from datasync.service.caller import grant_line
from datasync.service.log_key import log_key
from datasync.service.node_key import node_key
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


def _identity(session: Session) -> Identity | None:
    """Return this machine's identity; a node that borrows its keys has none, and ships all the same."""
    return session.identity if session.config.identity.exists() else None


def _recipients(session: Session) -> list[Recipient]:
    found, mine = [Recipient.parse(text) for text in session.config.audit.recipients], _identity(session)
    if mine is not None and mine.recipient not in found:
        found.append(mine.recipient)
    if not found:
        raise UsageError(
            "audit.recipients: expected who may read shipped logs, found nobody: set it to their dsr1… texts"
        )
    return found


def _opener(session: Session) -> KeyPair:
    mine = _identity(session)
    if mine is None:
        raise UsageError("audit: shipped logs are read with an identity: set DATASYNC_IDENTITY, or run datasync init")
    return mine.key_pair


def send(session: Session) -> Sent:
    """Ship what this machine's log has and the repository has not; recorded (the event goes with the next ship)."""
    config = session.config
    recipients = _recipients(session)
    with recorded(session, "audit.ship") as event, _locking(session) as store:
        _certify(session, store)
        files = live_log(config)
        paths = LocalPaths(config.state, config.evidence)
        repository = Repository(session.store, Holder(Secrets()), paths).marker.repository  # needs no key
        state = audit_root(config) / files.name / f"shipped-{repository}.json"
        mine = _identity(session)
        opener = mine.key_pair if mine is not None else None
        people = people_of(config).copy()  # as they are now: another process may have erased a person
        vouched = list(_vouched(session, verifier_key(PRIMITIVES, files.public)))
        sent = ship(PRIMITIVES, files, people, store, recipients, opener, state, plain=session.store, vouched=vouched)
        event.note(parcels=sent.parcels, events=sent.events)
    return sent


def _vouched(session: Session, text: str) -> Iterator[Vouched]:
    """Yield this machine's grants, with the word of the key that each is for that the log of *text* is its own."""
    keys = [node_key(session.config.evidence.parent)]
    mine = _identity(session)
    keys += [mine.signing_key] if mine is not None else []
    for path in session.config.grants:
        line = grant_line(path).strip()
        grant, _ = read_grant(line, str(path))
        for key in keys:
            if key.public == grant.node:
                yield Vouched(line, signer_text(key.public), key.sign(KIND, text.encode()).hex())


def _certify(session: Session, store: ObjectStore) -> None:
    key = log_key(session.config.evidence.parent)
    text = verifier_key(PRIMITIVES, key.public)
    value = {"key": text}
    mine = _identity(session)
    if mine is not None:
        signature = mine.signing_key.sign(KIND, text.encode()).hex()
        value |= {"signer": signer_text(mine.signing_key.public), "signature": signature}
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
    authorize(session, "ReadAudit")
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
    if signer and signer in _trusted(session):
        _check_word(one.log, signer, key, one.certificate.get("signature", ""))
    elif not any(_is_granted(session, one.log, key, item) for item in one.vouched):
        raise UntrustedError(
            f"log {one.log}: its key is certified by {signer[:20] or 'nobody'}…, whom no dataset's trust root names, "
            "and by no owner's grant"
        )


def _check_word(log: str, signer: str, key: str, signature: str) -> None:
    try:
        data = bytes.fromhex(signature)
    except ValueError:
        raise FormatError(f"log {log}: the signature of its certificate does not parse") from None
    verify_signature(parse_signer(signer), KIND, key.encode(), data)


def _is_granted(session: Session, log: str, key: str, item: Vouched) -> bool:
    """Tell whether an owner of a dataset that this identity opens granted something to a machine that vouches for
    *key*; a grant that ended meanwhile still says whose log it was.
    """
    try:
        grant, _ = read_grant(item.grant, f"log {log}")
        _check_word(log, item.node, key, item.signature)
        nodes = frozenset({parse_signer(item.node)})
    except DatasyncError:
        return False
    for dataset in session.repository.open_all()[0]:
        try:
            check_grant(item.grant, dataset.id, dataset.trusted.root, nodes, grant.issued)
        except DatasyncError:
            continue  # another dataset's, or nobody's
        return True
    return False


def _trusted(session: Session) -> set[str]:
    found = {signer_text(session.identity.signing_key.public)} if session.identity is not None else set()
    for dataset in session.repository.open_all()[0]:
        found |= {signer_text(item.signer) for item in dataset.trusted.root.principals}
    return found


def verify(
    session: Session, kept: tuple[Checkpoint, ...], max_silence: timedelta | None, key: str | None = None
) -> list[Shipped]:
    """Return what the shipped logs are (with *key* its log alone); raise for the first that does not hold. Recorded."""
    done = list[Shipped]()
    root = audit_root(session.config)
    repository = session.repository.marker.repository
    with recorded(session, "audit.verify", remote=True) as event, fetched(session) as (logs, _, found):
        there = {item.name for item in with_key(logs, key)}
        check_known(kept, there)
        check_there(root / SEEN, f"{repository}-", there, key)
        for files, one in zip(logs, found, strict=True):
            if files.name not in there:
                continue
            seen = root / SEEN / f"{repository}-{one.log}"
            mine = tuple(item for item in kept if item.log == one.log)
            more = (read_checkpoint(seen),) if seen.exists() else ()
            good = verify_log(PRIMITIVES, files, kept=mine + more, max_silence=max_silence)
            _compare(session.config, good)
            keep_seen(seen, good.note)
            told = {"remote": True, "parcels": len(one.names), "certified_by": one.certificate.get("signer", "")}
            done.append(Shipped(good, told, locks(session, one.names)))
        if key is None:
            check_beginnings([item.done for item in done])
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


@dataclass(frozen=True, slots=True)
class Removal:
    """What retention found, and removed if that was asked for, of one shipped log."""

    log: str
    parcels: int
    first_kept: int
    locked: int


def retain(session: Session, retention: str | None, *, override: bool, remove: bool) -> list[Removal]:
    """Return which shipped parcels are older than the retention, of all logs; with *remove* they go. Recorded before
    and after, and the record is shipped before anything goes: it is what tells that they were not cut out.
    """
    config = session.config
    kept = retention or config.audit.retention
    span = parse_retention(kept, override=override)
    with fetched(session) as (logs, _, found):
        check_beginnings([verify_log(PRIMITIVES, item) for item in logs])
        locked = _is_locked(session)
        olds = [find_old_parcels(PRIMITIVES, files, one, span, locked) for files, one in zip(logs, found, strict=True)]
    done = [Removal(old.base.log, old.count, old.base.size, old.locked) for old in olds]
    if not remove:
        return done
    authorize(session, "ManagePolicy")
    require_no_hold(config)
    told: dict[str, Any] = {"override_legal_floor": True} if override else {}
    told |= {f"{FIRST_KEPT}{old.base.log}": old.base.size for old in olds if old.count}
    recipients, removed = _recipients(session), sum(old.count for old in olds)
    with recorded(session, RETAIN, security=True, remote=True, retention=kept, parcels=removed, **told):
        if removed:
            send(session)
        for old in olds:
            remove_old_parcels(PRIMITIVES, session.store, old, recipients)
    return done


def _is_locked(session: Session) -> Callable[[str], bool]:
    store = session.driver
    if not isinstance(store, ObjectLock):
        return lambda _: False

    def locked(name: str) -> bool:
        found = store.lock_of(name)
        return found.until > time.time() or found.legal_hold

    return locked


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
    with recorded(
        session, "person.erase", security=True, remote=True, tags=" ".join(sorted(tags)), objects=len(names)
    ) as event:
        authorize(session, "Shred", event=event)
        for name in names:
            session.store.delete(name)
    return len(names)
