"""Shipped logs over time: parcels go after the retention and nothing else may, and grants say whose log it is."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from datasync.audit.checkpoint import Checkpoint
from datasync.audit.parcel import read_parcel, write_parcel
from datasync.audit.parcel_retention import find_old_parcels
from datasync.audit.query import Wanted
from datasync.audit.rows import rows
from datasync.audit.seal import People
from datasync.audit.ship import ROOT, Vouched, base_name, lines_name, put_base
from datasync.crypto.signatures import SigningKey, signer_text
from datasync.errors import IntegrityError, Locked, RollbackError, UntrustedError, UsageError
from datasync.push.options import PushOptions
from datasync.repository.snapshots import History
from datasync.service import audit_keep, audit_remote, offline_grants
from datasync.service.audit_log import PRIMITIVES, audit_root, people_of
from datasync.service.log_key import index_key
from datasync.service.node_key import node_key
from datasync.service.push import push_directory
from datasync.service.session import Session
from tests.audit.test_remote import act, locked, log_of, make_session, overwrite, parcels, session, store_of

__all__ = ["locked", "session"]
DAY = 86_400
Later = Callable[[int], None]


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Return what sets the log's clock to some days before now."""

    def move(days_ago: int) -> None:
        clock = SimpleNamespace(time_ns=lambda: time.time_ns() - days_ago * DAY * 10**9)
        monkeypatch.setattr("datasync.audit.log.time", clock)

    move(1600)
    return move


@pytest.fixture
def years(session: Session, later: Later) -> Session:
    """Parcels of 1,500, 1,400, 400 and 0 days ago, by other persons, verified."""
    for days in (1500, 1400, 400, 0):
        later(days)
        act(session.config, 3, subject=f"person-{days}")
        audit_remote.send(session)
    audit_remote.verify(session, (), None)
    return session


def test_what_is_older_goes_and_the_rest_verifies(years: Session) -> None:
    size, before = audit_remote.verify(years, (), None)[0].done.size, len(parcels(years))
    (found,) = audit_remote.retain(years, None, override=False, remove=False)
    assert 0 < found.parcels < before
    assert found.locked == 0
    assert len(parcels(years)) == before
    (done,) = audit_remote.retain(years, None, override=False, remove=True)
    assert done == found
    assert len(parcels(years)) == before - found.parcels + 1  # one more: it tells what was to be removed
    (shipped,) = audit_remote.verify(years, (), None)
    assert shipped.done.begins == done.first_kept
    assert shipped.done.size > size
    with audit_remote.fetched(years) as (logs, people, _):
        actors = {row.actor for row in rows(logs, Wanted(action="push"), people)}
    assert actors == {"person-400", "person-0"}
    months = {item.name.rpartition("/")[2][:7] for item in years.store.list(f"{ROOT}{log_of(years)}/people/")}
    assert len(months) <= 3
    act(years.config, 1)
    audit_remote.send(years)
    audit_remote.verify(years, (), None)
    (again,) = audit_remote.retain(years, None, override=False, remove=True)
    assert again.parcels == 0


def test_a_kill_in_the_middle_is_made_good_by_the_next_one(years: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = store_of(years).delete, [1]

    def fails(name: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(name)

    monkeypatch.setattr(store_of(years), "delete", fails)
    with pytest.raises(KeyboardInterrupt):
        audit_remote.retain(years, None, override=False, remove=True)
    monkeypatch.setattr(store_of(years), "delete", real)
    (shipped,) = audit_remote.verify(years, (), None)
    assert shipped.done.begins > 0
    audit_remote.retain(years, None, override=False, remove=True)
    assert parcels(years)[0] < lines_name(log_of(years), 2)
    audit_remote.verify(years, (), None)


def test_oldest_parcels_that_somebody_cut_out_are_missed(years: Session) -> None:
    """Whoever can write the bucket and seal to its auditors can make a base; no signed event tells of it."""
    assert years.identity is not None
    with audit_remote.fetched(years) as (logs, _, found):
        old = find_old_parcels(PRIMITIVES, logs[0], found[0], timedelta(days=1096), lambda _: False)
    for number in range(1, old.count + 1):
        years.store.delete(lines_name(log_of(years), number))
    with pytest.raises(IntegrityError, match="parcel 1 is missing"):
        audit_remote.verify(years, (), None)
    put_base(PRIMITIVES, years.store, old.base, [years.identity.recipient])
    with pytest.raises(IntegrityError, match=f"before {old.base.size} are gone, and no audit.retain event"):
        audit_remote.verify(years, (), None)


def test_a_base_that_is_not_the_trees_is_found(years: Session) -> None:
    (done,) = audit_remote.retain(years, None, override=False, remove=True)
    assert years.identity is not None
    pair = years.identity.key_pair
    name = base_name(log_of(years), done.parcels)
    body = read_parcel(PRIMITIVES, name, years.store.get(name, limit=10**6), pair)
    frontier = json.loads(body)["frontier"]
    for changed in (
        body.replace(frontier[0].encode(), b"0" * 64),
        body.replace(b'"n":', b'"n":1'),
        body.replace(frontier[0].encode(), b"x"),
    ):
        overwrite(years, name, write_parcel(PRIMITIVES, name, changed, [pair.recipient]))
        with pytest.raises(IntegrityError):
            audit_remote.verify(years, (), None)


def test_a_hold_and_the_floor_stop_it(years: Session) -> None:
    before = parcels(years)
    with pytest.raises(UsageError, match="floor"):
        audit_remote.retain(years, "30d", override=False, remove=True)
    audit_keep.hold(years.config, "case 17")
    with pytest.raises(Locked, match="case 17"):
        audit_remote.retain(years, None, override=False, remove=True)
    assert parcels(years) == before


def test_what_the_store_locks_stays_and_is_told(locked: Session, later: Later) -> None:
    for days in (800, 400, 0):
        later(days)
        act(locked.config, 2)
        audit_remote.send(locked)
    before = parcels(locked)
    (found,) = audit_remote.retain(locked, "1y", override=False, remove=True)
    assert (found.parcels, found.locked) == (0, 1)
    assert parcels(locked) == before
    audit_remote.verify(locked, (), None)


def test_events_that_went_before_the_first_ship_are_told(session: Session, later: Later) -> None:
    later(1500)
    act(session.config, 3)
    later(0)
    act(session.config, 2)
    assert audit_keep.apply(session.config).logs[0].old.first_kept == 4
    audit_remote.send(session)
    (shipped,) = audit_remote.verify(session, (), None)
    assert shipped.done.begins == 4


# a log or a checkpoint that is not there


def test_a_whole_log_that_vanished_is_a_rollback(years: Session, tmp_path: Path) -> None:
    other = node_of(years, tmp_path)
    act(other.config, 2)
    audit_remote.send(other)
    assert len(audit_remote.verify(years, (), None)) == 2
    for item in list(years.store.list(f"{ROOT}{log_of(other)}/")):
        years.store.delete(item.name)
    with pytest.raises(RollbackError, match=f"log {log_of(other)}: it was verified before"):
        audit_remote.verify(years, (), None)
    key = (audit_root(years.config) / log_of(years) / "key.pub").read_text().strip()
    assert len(audit_remote.verify(years, (), None, key)) == 1
    other.close()


def test_the_key_and_the_checkpoint_that_were_asked_for_must_be_there(years: Session, tmp_path: Path) -> None:
    other = node_of(years, tmp_path)
    act(other.config, 1)
    key = (audit_root(other.config) / log_of(other) / "key.pub").read_text().strip()
    with pytest.raises(IntegrityError, match="the key was replaced"):
        audit_remote.verify(years, (), None, key)
    with pytest.raises(IntegrityError, match="which is not here"):
        audit_remote.verify(years, (Checkpoint(log_of(other), 1, bytes(32)),), None)
    other.close()


def test_a_machine_that_forgot_believes_its_own_signature_alone(years: Session) -> None:
    assert years.identity is not None
    pair, name = years.identity.key_pair, parcels(years)[-1]
    body = read_parcel(PRIMITIVES, name, years.store.get(name, limit=10**6), pair)
    head = json.loads(body.split(b"\n", 1)[0])
    forged = body.replace(f'"end":{head["end"]}'.encode(), b'"end":999', 1)
    overwrite(years, name, write_parcel(PRIMITIVES, name, forged, [pair.recipient]))
    next((audit_root(years.config) / log_of(years)).glob("shipped-*")).unlink()
    with pytest.raises(IntegrityError, match="found 999"):
        audit_remote.send(years)


def test_a_person_erased_by_another_process_is_not_shipped_again(session: Session) -> None:
    act(session.config, 1, subject="erin")
    people_of(session.config).tags("erin")
    list(people_of(session.config).all_keys())
    People(audit_root(session.config) / "people", PRIMITIVES, index_key(session.config.evidence.parent)).erase("erin")
    audit_remote.send(session)
    with audit_remote.fetched(session) as (_, people, _found):
        assert "erin" not in {key.subject for key in people.all_keys()}


# grants


def node_of(owner: Session, tmp_path: Path, **audit: object) -> Session:
    """A machine of the same owner."""
    home = tmp_path / "other"
    (home / ".config/datasync").mkdir(parents=True)
    (home / ".config/datasync/identity").write_bytes(owner.config.identity.read_bytes())
    (home / ".config/datasync/identity").chmod(0o600)
    return make_session(home, str(owner.config.repository), **audit)


def test_a_node_that_an_owner_gave_a_grant_is_believed_after_it_ended(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "data"
    source.mkdir()
    (source / "file").write_text("x")
    push_directory(session, source, "data", PushOptions(), tag=None, report=lambda _: None)
    assert session.identity is not None
    auditor = session.identity.recipient.text
    node = make_session(tmp_path / "node", str(session.config.repository), recipients=(auditor,))
    act(node.config, 2, subject="node-user")
    audit_remote.send(node)
    with pytest.raises(UntrustedError, match="by no owner's grant"):
        audit_remote.verify(session, (), None)
    me = signer_text(node_key(node.config.evidence.parent).public)
    until = int(time.time() * 1000) + DAY * 1000
    line = offline_grants.issue(session, "data", offline_grants.WantedGrant(me, ("Warm",), until))
    path = tmp_path / "grant"
    path.write_text(line)
    node.config = replace(node.config, grants=(path,))
    audit_remote.send(node)
    now, signed = time.time, History.now
    monkeypatch.setattr(time, "time", lambda: now() + 2 * DAY)
    monkeypatch.setattr(History, "now", lambda history: signed(history) + 2 * DAY * 1000)
    audit_remote.send(session)
    assert len(audit_remote.verify(session, (), None)) == 2
    for item in session.store.list(f"{ROOT}{log_of(node)}/grants/"):
        assert line.encode()[4:40] not in session.store.get(item.name, limit=10**6)
    node.close()


def test_a_grant_to_another_machine_vouches_for_nobody(session: Session, tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    (source / "file").write_text("x")
    push_directory(session, source, "data", PushOptions(), tag=None, report=lambda _: None)
    assert session.identity is not None
    auditor = session.identity.recipient.text
    node = make_session(tmp_path / "node", str(session.config.repository), recipients=(auditor,))
    me, other = signer_text(node_key(node.config.evidence.parent).public), signer_text(SigningKey(bytes(32)).public)
    until = int(time.time() * 1000) + DAY * 1000
    path = tmp_path / "grant"
    path.write_text(offline_grants.issue(session, "data", offline_grants.WantedGrant(other, ("Warm",), until)))
    node.config = replace(node.config, grants=(path,))
    act(node.config, 1)
    audit_remote.send(node)
    assert list(session.store.list(f"{ROOT}{log_of(node)}/grants/")) == []
    name = f"{ROOT}{log_of(node)}/grants/{'0' * 32}"
    stolen = Vouched(path.read_text(), me, SigningKey(bytes(32)).sign("audit-log", b"x").hex())
    body = write_parcel(PRIMITIVES, name, msgspec.json.encode(stolen), [session.identity.recipient])
    session.store.put_if_absent(name, body)
    with pytest.raises(UntrustedError):
        audit_remote.verify(session, (), None)
    node.close()
