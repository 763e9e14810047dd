"""Stores that keep objects from being deleted: what stays is told, with until when, and goes once it may."""

import os
from pathlib import Path

import pytest

from datasync.errors import NotAuthorized
from datasync.service import removal
from datasync.storage.extras import Lock
from datasync.storage.memory import MemoryStore
from tests.prune.conftest import Clock
from tests.support.copies import names
from tests.support.people import Person


class Locking(MemoryStore):
    """A store with versions that locks each object for a time."""

    until = 0.0
    hold = False

    def versioning(self) -> str:
        return "enabled"

    def list_versions(self, prefix: str):  # type: ignore[no-untyped-def]
        return iter(())

    def delete_version(self, name: str, version: str) -> None:
        raise NotAuthorized(f"{name}: locked")

    def put_locked(self, name: str, data: bytes, *, until: float, legal_hold: bool = False):  # type: ignore[no-untyped-def]
        return self.put_if_absent(name, data)

    def lock_of(self, name: str) -> Lock:
        return Lock(self.until, self.hold, compliance=True)


class Keeping(MemoryStore):
    """A store whose rule keeps each object for some days, or that lets nobody delete."""

    days = 0
    closed = False

    def retention_days(self) -> int | None:
        return self.days or None

    def retain_until(self, name: str, until: float) -> None:
        """Nothing to do."""

    def delete(self, name: str) -> None:
        if self.closed and "/packs/" in name:
            raise NotAuthorized(f"{name}: may not delete")
        super().delete(name)


def condemned_in(store: MemoryStore, tmp_path: Path, source: Path, clock: Clock) -> Person:
    owner = Person.make(tmp_path, "olga", "memory://people", store)
    owner.must("init")
    for _ in range(2):
        (source / "changing").write_bytes(os.urandom(2000))
        owner.must("push", source, "--dataset", "data")
    owner.must("forget", "data@1")
    clock.pass_days(8)
    assert owner.must("prune", "--no-repack")["condemned"] == 1
    clock.pass_days(15)
    return owner


def test_locked_packs_stay_condemned_and_it_says_until_when(
    tmp_path: Path, source: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "time", clock_module(clock))
    store = Locking(clock=clock)
    owner = condemned_in(store, tmp_path, source, clock)
    store.until = clock() + 86_400
    before = names(store, "/packs/")
    ran = owner.run("prune")
    assert ran.code == 0, ran
    assert "locked by the store until 20" in ran.err
    assert names(store, "/packs/") == before
    store.hold = True
    assert "under a legal hold" in owner.run("prune").err
    store.hold = False
    clock.pass_days(2)
    assert owner.must("prune")["deleted"] == 1


def test_a_bucket_that_keeps_objects_says_until_when(
    tmp_path: Path, source: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "time", clock_module(clock))
    store = Keeping(clock=clock)
    owner = condemned_in(store, tmp_path, source, clock)
    store.days = 30
    ran = owner.run("prune")
    assert (ran.code, ran.err.count("keeps each object for 30 days until 20")) == (0, 1)
    clock.pass_days(10)
    assert owner.must("prune")["deleted"] == 1


def test_credentials_that_may_not_delete_are_told(tmp_path: Path, source: Path, clock: Clock) -> None:
    store = Keeping(clock=clock)
    owner = condemned_in(store, tmp_path, source, clock)
    store.closed = True
    ran = owner.run("prune")
    assert ran.code == 3
    assert "may not delete" in ran.err
    store.closed = False
    assert owner.must("prune")["deleted"] == 1


def clock_module(clock: Clock) -> object:
    class Module:
        """Stands in for `time`."""

        time = staticmethod(clock)

    return Module
