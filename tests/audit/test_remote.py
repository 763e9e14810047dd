"""Logs in the repository: sealed, only ever created, fetched and verified by an auditor; locked where the store can."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from datasync.audit.parcel import read_parcel, write_parcel
from datasync.audit.query import Wanted
from datasync.audit.rows import rows
from datasync.audit.ship import ROOT, lines_name
from datasync.config import Config, Flags, load_config
from datasync.crypto.identity import Identity
from datasync.crypto.identity_file import write_identity
from datasync.crypto.recipients import KeyPair
from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    FormatError,
    IntegrityError,
    NotFound,
    RollbackError,
    UntrustedError,
    UsageError,
    WrongKey,
)
from datasync.service import audit_remote
from datasync.service.audit_log import PRIMITIVES, audit_root, people_of
from datasync.service.record import recorded
from datasync.service.session import Session
from datasync.storage.local import LocalStore
from datasync.storage.s3.client import make_client
from tests.support.servers import S3Server

DAY = 86_400


def make_session(home: Path, url: str, **audit: object) -> Session:
    home.mkdir(exist_ok=True)
    config = load_config(Flags(), {"HOME": str(home), "DATASYNC_REPOSITORY": url})
    return Session(replace(config, audit=replace(config.audit, **audit)))  # type: ignore[arg-type]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = make_session(tmp_path / "home", str(tmp_path / "repository"))
    made.initialise()
    yield made
    made.close()


def store_of(session: Session) -> LocalStore:
    store = session.driver
    assert isinstance(store, LocalStore)
    return store


def act(config: Config, count: int, **fields: object) -> None:
    for number in range(count):
        with recorded(config, "push", dataset=f"d{number}", **fields):  # type: ignore[arg-type]
            pass


def log_of(session: Session) -> str:
    return next(path.name for path in audit_root(session.config).iterdir() if (path / "key.pub").exists())


def parcels(session: Session) -> list[str]:
    return sorted(item.name for item in session.store.list(f"{ROOT}{log_of(session)}/lines/"))[::-1]


def overwrite(session: Session, name: str, data: bytes) -> None:
    session.store.delete(name)
    session.store.put_if_absent(name, data)


def test_what_is_shipped_verifies_and_holds_every_event(session: Session) -> None:
    act(session.config, 5)
    assert audit_remote.send(session).events == 6
    act(session.config, 3)
    assert audit_remote.send(session).events == 4  # and the first ship's own event
    (shipped,) = audit_remote.verify(session, (), None)
    assert shipped.done.size == 10
    with audit_remote.fetched(session) as (logs, people, _):
        actors = {row.actor for row in rows(logs, Wanted(), people)}
        datasets = [row.event.dataset for row in rows(logs, Wanted(action="push"), people)]
    assert datasets == ["d0", "d1", "d2", "d3", "d4", "d0", "d1", "d2"]
    assert len(actors) == 1


def test_the_store_sees_neither_names_nor_exact_sizes(session: Session, tmp_path: Path) -> None:
    act(session.config, 20, purpose="very-secret-purpose")
    audit_remote.send(session)
    for path in (tmp_path / "repository" / "audit").rglob("*"):
        if path.is_file() and path.name != "certificate":
            data = path.read_bytes()
            assert b"very-secret-purpose" not in data
            assert b'"push"' not in data
            assert len(data) == 65_536


def test_a_ship_that_forgot_what_it_sent_goes_on(session: Session) -> None:
    act(session.config, 3)
    audit_remote.send(session)
    next((audit_root(session.config) / log_of(session)).glob("shipped-*")).unlink()
    act(session.config, 2)
    assert audit_remote.send(session).events == 3
    assert audit_remote.verify(session, (), None)[0].done.size == 7


def test_a_parcel_is_never_overwritten(session: Session) -> None:
    act(session.config, 1)
    audit_remote.send(session)
    with pytest.raises(AlreadyExists):
        session.store.put_if_absent(parcels(session)[0], b"other")


def test_an_object_that_somebody_put_in_the_way_is_told(session: Session) -> None:
    act(session.config, 1)
    session.store.put_if_absent(lines_name(log_of(session), 1), b"x")
    with pytest.raises(IntegrityError):
        audit_remote.send(session)


@pytest.fixture
def shipped(session: Session) -> Session:
    """Three parcels, and what was verified remembered."""
    for _ in range(3):
        act(session.config, 4)
        audit_remote.send(session)
    audit_remote.verify(session, (), None)
    return session


def test_a_parcel_that_was_removed_is_named(shipped: Session) -> None:
    shipped.store.delete(parcels(shipped)[1])
    with pytest.raises(IntegrityError, match="parcel 2 is missing"):
        audit_remote.verify(shipped, (), None)


def test_the_newest_parcel_removed_is_a_rollback(shipped: Session) -> None:
    shipped.store.delete(parcels(shipped)[2])
    with pytest.raises(RollbackError, match="the tail was cut"):
        audit_remote.verify(shipped, (), None)


def test_a_parcel_that_was_changed_is_named(shipped: Session) -> None:
    name = parcels(shipped)[1]
    data = bytearray(shipped.store.get(name, limit=10**6))
    data[-5] ^= 1
    overwrite(shipped, name, bytes(data))
    with pytest.raises(IntegrityError):
        audit_remote.verify(shipped, (), None)


def test_a_parcel_under_anothers_name_does_not_open(shipped: Session) -> None:
    first, second, _ = parcels(shipped)
    overwrite(shipped, second, shipped.store.get(first, limit=10**6))
    with pytest.raises((IntegrityError, WrongKey)):
        audit_remote.verify(shipped, (), None)


def test_events_changed_by_who_can_seal_are_found(shipped: Session) -> None:
    """An auditor's key opens and seals parcels; it does not sign checkpoints."""
    name = parcels(shipped)[0]
    assert shipped.identity is not None
    pair = shipped.identity.key_pair
    content = read_parcel(PRIMITIVES, name, shipped.store.get(name, limit=10**6), pair)
    forged = write_parcel(PRIMITIVES, name, content.replace(b'"d1"', b'"dX"'), [pair.recipient])
    overwrite(shipped, name, forged)
    with pytest.raises(IntegrityError, match="event 2 is not what was signed"):
        audit_remote.verify(shipped, (), None)


def test_a_log_without_a_certificate_or_with_a_strangers_is_refused(shipped: Session, tmp_path: Path) -> None:
    stranger = make_session(tmp_path / "stranger", str(tmp_path / "repository"))
    write_identity(stranger.config.identity, Identity.generate())
    act(stranger.config, 1)
    assert shipped.identity is not None
    stranger_audit = replace(stranger.config.audit, recipients=(shipped.identity.recipient.text,))
    stranger.config = replace(stranger.config, audit=stranger_audit)
    audit_remote.send(stranger)
    with pytest.raises(UntrustedError, match="whom no dataset's trust root names"):
        audit_remote.verify(shipped, (), None)
    stranger.store.delete(f"{ROOT}{log_of(stranger)}/certificate")
    with pytest.raises(IntegrityError, match="no certificate"):
        audit_remote.verify(shipped, (), None)
    stranger.close()


def test_a_node_of_the_same_owner_is_believed_and_merged(shipped: Session, tmp_path: Path) -> None:
    home = tmp_path / "node"
    (home / ".config/datasync").mkdir(parents=True)
    (home / ".config/datasync/identity").write_bytes(shipped.config.identity.read_bytes())
    (home / ".config/datasync/identity").chmod(0o600)
    node = make_session(home, str(tmp_path / "repository"))
    act(node.config, 2, subject="node-user")
    audit_remote.send(node)
    node.close()
    assert len(audit_remote.verify(shipped, (), None)) == 2
    with audit_remote.fetched(shipped) as (logs, people, _):
        assert "node-user" in {row.actor for row in rows(logs, Wanted(), people)}


def test_erasing_a_person_deletes_the_shipped_key_and_the_log_still_verifies(shipped: Session) -> None:
    act(shipped.config, 1, subject="carol@example.org")
    audit_remote.send(shipped)
    assert audit_remote.erase(shipped, "carol@example.org") == 1
    people_of(shipped.config).erase("carol@example.org")
    with audit_remote.fetched(shipped) as (logs, people, _):
        actors = {row.actor for row in rows(logs, Wanted(), people)}
    assert "carol@example.org" not in actors
    assert any(actor.startswith("sealed:") for actor in actors)
    audit_remote.verify(shipped, (), None)


def test_nothing_shipped_is_not_found(session: Session) -> None:
    with pytest.raises(NotFound):
        audit_remote.verify(session, (), None)


def test_silence_is_told(shipped: Session) -> None:
    (good,) = audit_remote.verify(shipped, (), timedelta(microseconds=1))
    assert len(good.done.silences) > 3


def test_parcels_open_for_their_auditors_alone() -> None:
    pair, other = KeyPair.generate()[0], KeyPair.generate()[0]
    data = write_parcel(PRIMITIVES, "audit/x", b"content" * 1000, [pair.recipient, pair.x25519_recipient])
    assert read_parcel(PRIMITIVES, "audit/x", data, pair) == b"content" * 1000
    with pytest.raises(WrongKey, match="none of them"):
        read_parcel(PRIMITIVES, "audit/x", data, other)
    for bad in (data[:-1], b"", b"DSYNAUD1", data[:9] + b"\xff" + data[10:], data + bytes(10)):
        with pytest.raises(FormatError):
            read_parcel(PRIMITIVES, "audit/x", bad, pair)
    for at in range(0, len(data), 997):
        changed = bytearray(data)
        changed[at] ^= 4
        with pytest.raises(DatasyncError):
            read_parcel(PRIMITIVES, "audit/x", bytes(changed), pair)


# object lock


@pytest.fixture
def locked(moto: S3Server, fresh_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session whose bucket keeps what it is told to keep."""
    client = make_client(moto._place(fresh_bucket), moto.options())
    client.create_bucket(Bucket=fresh_bucket, ObjectLockEnabledForBucket=True)
    client.close()
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    made = make_session(tmp_path / "home", moto.url(fresh_bucket, "ds"), lock=True, retention="1y")
    made.initialise()
    yield made
    made.close()


def test_a_shipped_segment_is_locked_and_neither_deleted_nor_overwritten(locked: Session) -> None:
    from datasync.storage.s3.store import S3Store

    act(locked.config, 3)
    before = time.time()
    audit_remote.send(locked)
    ends = [time.strftime("%Y-%m-%d", time.gmtime(sent + 366 * DAY)) for sent in (before, time.time())]
    (shipped,) = audit_remote.verify(locked, (), None)
    assert shipped.locks[0] == "1 of 1 objects are locked by the store"
    assert shipped.locks[1].startswith(tuple(f"compliance: the first until {day}" for day in ends))
    (name,) = parcels(locked)
    driver = locked.driver
    assert isinstance(driver, S3Store)
    with pytest.raises(AlreadyExists):
        driver.put_if_absent(name, b"other")
    version = next(iter(driver.list_versions(name))).version
    with pytest.raises(DatasyncError):
        driver.delete_version(name, version)
    assert audit_remote.verify(locked, (), None)[0].done.size == shipped.done.size


def test_a_persons_key_is_not_locked_so_it_can_be_erased(locked: Session) -> None:
    from datasync.storage.extras import ObjectLock

    act(locked.config, 1, subject="dave@example.org")
    audit_remote.send(locked)
    driver = locked.driver
    assert isinstance(driver, ObjectLock)
    names = [item.name for item in locked.store.list(f"{ROOT}{log_of(locked)}/people/")]
    assert [driver.lock_of(name).until for name in names] == [0.0] * len(names)
    assert audit_remote.erase(locked, "dave@example.org") == 1


def test_a_legal_hold_is_on_what_is_shipped_under_it(locked: Session) -> None:
    from datasync.service import audit_keep

    act(locked.config, 1)
    audit_keep.hold(locked.config, "case 17")
    audit_remote.send(locked)
    (shipped,) = audit_remote.verify(locked, (), None)
    assert shipped.locks[-1] == "1 of them under a legal hold"


def test_a_store_that_can_not_lock_is_told(session: Session) -> None:
    session.config = replace(session.config, audit=replace(session.config.audit, lock=True))
    act(session.config, 1)
    with pytest.raises(UsageError, match="can not lock objects"):
        audit_remote.send(session)
