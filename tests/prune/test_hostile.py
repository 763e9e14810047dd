"""Wrong clocks, places that nobody else knows, packs that are gone: nothing that a living snapshot needs is lost."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from datasync.errors import UsageError
from datasync.repository.condemned import read_list
from datasync.repository.snapshots import History
from datasync.service import forget as forgetting
from datasync.service.forget import ForgetOptions
from datasync.repository.retention import KeepRules
from datasync.storage.memory import MemoryStore
from tests.keys.forge import session
from tests.prune.conftest import Clock
from tests.prune.dying import DyingAtWrites
from tests.support.copies import names
from tests.support.machine import contents
from tests.support.people import Person
from tests.support.scripted import Killed, Wrapped
from datasync.storage.protocol import Created


def test_what_an_interrupted_rotation_moved_and_told_nobody(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path
) -> None:
    owner.must("push", source, "--dataset", "data")
    clock.pass_days(8)
    owner.must("key", "rotate", "data")

    class NoRelocations(Wrapped):
        def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
            if "/relocations/" in name:
                raise Killed
            return self._store.put_if_absent(name, data)

    dying = Person("olga", owner.machine, NoRelocations(store))
    with pytest.raises(Killed):
        dying.run("key", "rotate", "data", "--full")
    for _ in range(3):
        print(owner.must("prune", "--no-repack"))
        clock.pass_days(15)
        fresh = Person("fresh", owner.machine.sibling(tmp_path / f"fresh{_}"), store)
        fresh.must("verify", "data", "--read-data")


def test_a_needed_pack_that_is_gone_stops_everything(
    owner: Person, source: Path, store: MemoryStore, clock: Clock
) -> None:
    for number in range(3):
        (source / "changing").write_bytes(os.urandom(2000))
        owner.must("push", source, "--dataset", "data")
    owner.must("forget", "data@1")
    clock.pass_days(8)
    with session(owner) as made:
        history = made.repository.open("data").history
        from datasync.repository.manifest import ManifestReader
        reader = ManifestReader(history, history.read(3))
        ids = [c.pack.id for e, p in reader.entries() for c in reader.chunks(e, p)]
    victim = next(n for n in names(store, "/packs/") if n.endswith(ids[-1].hex()))
    store.delete(victim)
    before = names(store)
    ran = owner.run("prune")
    print(ran)
    assert names(store) == before
    assert ran.code == 7


def test_a_pushing_machine_whose_clock_was_ahead(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(50_000)
    owner.must("push", source, "--dataset", "data")
    (source / "gone").write_bytes(data)
    other = Person("olga", owner.machine.clone(tmp_path / "other"), store)
    skew = {"d": 400.0}
    import time
    told = SimpleNamespace(time=lambda: clock() + skew["d"] * 86400, time_ns=lambda: int((clock() + skew["d"]*86400) * 1e9), monotonic=time.monotonic)
    for module in ("pipeline", "store", "sync"):
        monkeypatch.setattr(f"datasync.push.{module}.time", told)
    owner.must("push", source, "--dataset", "data")
    skew["d"] = 0
    (source / "gone").unlink()
    other.must("push", source, "--dataset", "data", "--source-change")
    other.must("forget", "data@2")
    clock.pass_days(8)
    print(other.must("prune"))
    clock.pass_days(15)
    print(other.must("prune"))
    (source / "gone").write_bytes(data)
    owner.must("push", source, "--dataset", "data")
    other.must("verify", "data", "--read-data")


def test_a_pushing_machine_whose_clock_went_back(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(50_000)
    owner.must("push", source, "--dataset", "data")
    (source / "gone").write_bytes(data)
    other = Person("olga", owner.machine.clone(tmp_path / "other"), store)
    owner.must("push", source, "--dataset", "data")
    (source / "gone").unlink()
    other.must("push", source, "--dataset", "data", "--source-change")
    other.must("forget", "data@2")
    clock.pass_days(8)
    print(other.must("prune"))
    clock.pass_days(15)
    print(other.must("prune"))
    (source / "gone").write_bytes(data)
    import time
    now = clock() - 20*86400
    told = SimpleNamespace(time=lambda: now, time_ns=lambda: int(now * 1e9), monotonic=time.monotonic)
    for module in ("pipeline", "store", "sync"):
        monkeypatch.setattr(f"datasync.push.{module}.time", told)
    owner.must("push", source, "--dataset", "data")
    other.must("verify", "data", "--read-data")


def test_a_tag_that_comes_while_a_person_looks_at_the_plan(owner: Person, source: Path) -> None:
    for number in range(3):
        (source / "changing").write_bytes(os.urandom(2000))
        owner.must("push", source, "--dataset", "data")
    with session(owner) as made:
        (plan,) = forgetting.plan(made, ["data"], ForgetOptions(KeepRules(last=1)))
        owner.must("tag", "data@1", "kept")
        with pytest.raises(UsageError, match="kept"):
            forgetting.carry_out(made, plan)
    owner.must("ls", "data:kept")


def test_a_list_of_a_clock_that_is_behind_and_a_kill_before_it_is_corrected(
    owner: Person, source: Path, store: MemoryStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        (source / "changing").write_bytes(os.urandom(2000))
        owner.must("push", source, "--dataset", "data")
    owner.must("forget", "data@1")
    clock.pass_days(30)
    right = History.now
    monkeypatch.setattr(History, "now", lambda history: right(history) - 20 * 86_400_000)
    for number in range(1, 9):
        try:
            Person("olga", owner.machine, DyingAtWrites(store, number, after=True)).run("prune", "--no-repack")
        except Killed:
            pass
        else:
            break
        break
    monkeypatch.setattr(History, "now", right)
    with session(owner) as made:
        history = made.repository.open("data").history
        listed = read_list(history)[0]
        print([(history.now() - since) / 86_400_000 for _, since in listed.packs])
    assert owner.must("prune", "--no-repack")["deleted"] == 0
