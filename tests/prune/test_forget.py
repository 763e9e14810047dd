"""Forgetting snapshots: what may go, what every command says of it afterwards, and who may say it at all."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from datasync.crypto.hashing import hash_bytes
from datasync.errors import UsageError
from datasync.format import pack as packs
from datasync.format.control import ForgottenEntry, ForgottenHeader, ForgottenPage
from datasync.format.encoding import encode
from datasync.model.ids import ZERO_ID
from datasync.repository.forget import forget, living
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created
from tests.keys.forge import name_of, put_control, session, signer
from tests.prune.conftest import Clock
from tests.prune.dying import copied
from tests.support.copies import names
from tests.support.people import Person


@pytest.fixture
def history(owner: Person, source: Path) -> Person:
    """The owner of a dataset with five snapshots; the second is tagged `prod`."""
    for number in range(1, 6):
        (source / f"n{number}").write_bytes(os.urandom(3000))
        owner.must("push", source, "--dataset", "data", *(["--tag", "prod"] if number == 2 else []))
    return owner


def numbers(person: Person) -> list[int]:
    """Return the numbers that `log` lists as living."""
    ran = person.run("log", "data", "--json")
    events = [json.loads(line) for line in ran.out.splitlines()]
    return [item["seq"] for item in events if item["type"] == "snapshot"]


def test_what_is_named_is_forgotten_and_every_command_says_so(history: Person, tmp_path: Path) -> None:
    ids = {item["seq"]: item["snapshot"] for item in events(history, "log", "data") if item["type"] == "snapshot"}
    done = history.must("forget", "data@1", f"data@{ids[3]}")
    assert (done["datasets"], done["forgotten"]) == ({"data": [3, 1]}, 2)
    assert numbers(history) == [5, 4, 2]
    for line in (
        ("ls", "data@3"),
        ("ls", f"data@{ids[3][:12]}"),
        ("pull", "data@3", tmp_path / "out"),
        ("warm", "data@3"),
        ("diff", "data@3", "data@5"),
        ("tag", "data@3", "old"),
    ):
        history.refused(4, *line, words="it was forgotten on 20")
    assert "by " in history.run("ls", "data@3").message
    log = history.run("log", "data").out
    assert log.count("forgotten on") == 2
    assert "2 snapshots forgotten" in history.run("status").out
    checked = events(history, "verify", "data", "--read-data")[-2]
    assert (checked["snapshots"], checked["forgotten"], checked["problems"]) == (3, 2, [])


def events(person: Person, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in person.run(*words, "--json").out.splitlines()]


def test_the_newest_is_never_forgotten(history: Person) -> None:
    history.refused(2, "forget", "data@5", words="never forgotten")
    history.refused(2, "forget", "data", words="never forgotten")
    history.must("forget", "data", "--keep-tag", "nothing", "--include-tagged")
    assert numbers(history) == [5]
    history.refused(2, "forget", "data@5", words="never forgotten")


def test_nor_by_a_caller_that_asks_for_it(history: Person, store: MemoryStore) -> None:
    before = names(store)
    with session(history) as made:
        opened = made.repository.open("data").history
        newest = living(opened).snapshots[0]
        with pytest.raises(UsageError, match="never forgotten"):
            forget(opened, [newest], lambda _: [])
    assert names(store) == before


def test_a_tag_protects_unless_it_is_said_not_to(history: Person) -> None:
    history.refused(2, "forget", "data@2", words="the tag 'prod' keeps it")
    history.refused(2, "forget", "data:prod", words="the tag 'prod' keeps it")
    history.must("forget", "data", "--keep-last", "1")
    assert numbers(history) == [5, 2]
    history.must("forget", "data", "--keep-tag", "pr*", "--include-tagged")
    assert numbers(history) == [5, 2]
    history.must("forget", "data:prod", "--include-tagged")
    assert numbers(history) == [5]
    history.refused(4, "ls", "data:prod", words="it was forgotten")


def test_a_dry_run_changes_nothing(history: Person, store: MemoryStore) -> None:
    before = names(store)
    done = history.must("forget", "data", "--keep-last", "2", "-n")
    assert (done["would_forget"], done["forgotten"], done["datasets"]) == (2, 0, {"data": [3, 1]})
    assert names(store) == before


def test_rules_and_references_do_not_mix(history: Person) -> None:
    history.refused(2, "forget", "data@1", "--keep-last", "2", words="a dataset's name alone")
    history.refused(2, "forget", "data", words="a name alone means the newest")
    history.refused(4, "forget", "data@77", words="snapshot 77")
    history.refused(4, "forget", "other@1")


def test_forgotten_twice_says_that_it_is_forgotten(history: Person) -> None:
    history.must("forget", "data@1")
    history.refused(4, "forget", "data@1", words="it was forgotten")


def test_a_number_is_not_used_again_and_the_line_goes_on_through_what_is_forgotten(
    history: Person, source: Path, person: Callable[[str], Person], tmp_path: Path
) -> None:
    history.must("forget", "data", "--keep-last", "1", "--include-tagged")
    (source / "next").write_bytes(b"next")
    assert history.must("push", source, "--dataset", "data")["seq"] == 6
    history.must("forget", "data@5")
    fresh = Person("fresh", history.machine.sibling(tmp_path / "fresh"), history.store)
    fresh.must("verify", "data", "--read-data")
    assert numbers(fresh) == [6]


def test_a_machine_that_saw_an_old_snapshot_follows_through_forgotten_ones(
    history: Person, source: Path, tmp_path: Path
) -> None:
    other = Person("other", history.machine.sibling(tmp_path / "other"), history.store)
    other.must("pull", "data", tmp_path / "out")
    for number in (6, 7, 8):
        (source / f"n{number}").write_bytes(os.urandom(100))
        history.must("push", source, "--dataset", "data")
    history.must("forget", "data", "--keep-last", "1", "--include-tagged")
    other.must("pull", "data", tmp_path / "later")


def test_a_thousand_snapshots(owner: Person, source: Path) -> None:
    owner.must("push", source, "--dataset", "data")
    with session(owner) as made:
        dataset = made.repository.open("data")
        first = dataset.history.read(1)
        for number in range(2, 1001):
            body = msgspec.structs.replace(first.body, message=str(number))
            dataset.history.commit(body, first.lists, lambda: None)
        dataset.history.evidence.save()
    done = owner.must("forget", "data", "--keep-last", "10", "--keep-daily", "3")
    assert done["forgotten"] == 990
    assert numbers(owner) == list(range(1000, 990, -1))
    owner.must("verify", "data", "--read-data")
    with session(owner) as made:
        dataset = made.repository.open("data")
        assert len(living(dataset.history).snapshots) == 10
        assert dataset.history.forgotten.count() == 990


# who may


def test_a_reader_and_a_writer_may_not(history: Person, person: Callable[[str], Person]) -> None:
    rita, will = person("rita"), person("will")
    history.grant("data", rita, "reader")
    history.grant("data", will, "writer")
    for who in (rita, will):
        who.refused(6, "forget", "data@1", words="forgetting needs an owner")
        who.refused(6, "forget", "data", "--keep-last", "1", words="forgetting needs an owner")
    assert numbers(history) == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_what_they_forge_is_refused(
    history: Person, person: Callable[[str], Person], store: MemoryStore, role: str
) -> None:
    forger = person("fred")
    history.grant("data", forger, role)
    with session(forger) as made:
        dataset = made.repository.open("data")
        found = dataset.history.read(1)
        page = encode(ForgottenPage((ForgottenEntry(1, found.id, found.signed),)))
        header = ForgottenHeader(dataset.id, 1, ZERO_ID, int(time.time() * 1000), (hash_bytes(page),))
        name = put_control(store, dataset, "forgotten", packs.FORGOTTEN, 1, header, signer(forger), [page])
    history.refused(7, "ls", "data@1", words=name)
    history.refused(7, "prune", words="trust root does not list")


@pytest.mark.parametrize("wrong", ["header", "seq", "previous", "pages"])
def test_an_owners_object_that_does_not_hold_is_refused(history: Person, store: MemoryStore, wrong: str) -> None:
    with session(history) as made:
        dataset = made.repository.open("data")
        found, other = dataset.history.read(1), dataset.history.read(2)
        entry = ForgottenEntry(1, found.id, other.signed if wrong == "header" else found.signed)
        entry = ForgottenEntry(2, found.id, found.signed) if wrong == "seq" else entry
        page = encode(ForgottenPage((entry,)))
        previous = hash_bytes(b"another") if wrong == "previous" else ZERO_ID
        digests = (hash_bytes(b"other" if wrong == "pages" else page),)
        header = ForgottenHeader(dataset.id, 1, previous, int(time.time() * 1000), digests)
        put_control(store, dataset, "forgotten", packs.FORGOTTEN, 1, header, signer(history), [page])
    history.refused(7, "ls", "data@1", words="forgotten/")
    history.refused(7, "prune", words="forgotten/")


def test_a_removed_owner_forgets_nothing_any_more(
    history: Person, person: Callable[[str], Person], store: MemoryStore, tmp_path: Path
) -> None:
    omar = person("omar")
    history.grant("data", omar, "owner")
    omar.must("forget", "data@1")
    kept = omar.machine.clone(tmp_path / "kept")
    history.must("key", "revoke", "data", "omar")
    fresh = Person("fresh", history.machine.sibling(tmp_path / "fresh"), store)
    fresh.refused(4, "ls", "data@1", words="it was forgotten")  # the one who stays vouches for it
    with session(Person("omar", kept, store)) as made:
        dataset = made.repository.open("data", newest=False)  # its keys are those of the first epoch
        found = dataset.history.find(3)
        assert found is not None
        page = encode(ForgottenPage((ForgottenEntry(3, found.id, found.signed),)))
        last = store.get(names(store, "/forgotten/")[0], limit=1 << 20)
        header = ForgottenHeader(dataset.id, 3, hash_bytes(last), found.body.created, (hash_bytes(page),))
        name = put_control(store, dataset, "forgotten", packs.FORGOTTEN, 3, header, signer(omar), [page])
    history.refused(7, "ls", "data@3", words=name)


# rollback


def test_a_state_from_before_is_refused_where_the_forgetting_was_seen(
    history: Person, store: MemoryStore, clock: Clock
) -> None:
    before = copied(store, clock)
    history.must("forget", "data@1")
    rolled = Person(history.name, history.machine, before)
    rolled.refused(7, "ls", "data@1", words="it was rolled back")
    rolled.refused(7, "log", "data", words="it was rolled back")
    rolled.refused(7, "forget", "data@3", words="it was rolled back")
    rolled.refused(7, "prune", "data", words="it was rolled back")


def test_a_snapshot_that_is_put_back_stays_forgotten(history: Person, store: MemoryStore, tmp_path: Path) -> None:
    with session(history) as made:
        dataset = made.repository.open("data").id
    name = name_of(dataset, "snapshots", 1)
    data = store.get(name, limit=1 << 20)
    history.must("forget", "data@1")
    store.put_if_absent(name, data)
    fresh = Person("fresh", history.machine.sibling(tmp_path / "fresh"), store)
    fresh.refused(4, "ls", "data@1", words="it was forgotten")
    assert numbers(fresh) == [5, 4, 3, 2]
    history.must("prune")
    assert name not in names(store)


@pytest.mark.parametrize("number", [1, 2])
def test_an_object_of_the_series_that_is_gone_is_told(
    history: Person, store: MemoryStore, tmp_path: Path, number: int
) -> None:
    history.must("forget", "data@1")
    history.must("forget", "data@3")
    with session(history) as made:
        store.delete(name_of(made.repository.open("data").id, "forgotten", number))
    fresh = Person("fresh", history.machine.sibling(tmp_path / "fresh"), store)
    if number == 1:
        fresh.refused(7, "log", "data", words="it was deleted")
    else:  # a fresh machine sees that a number is missing
        assert fresh.run("verify", "data").code == 7
    if number == 2:
        history.refused(7, "log", "data", words="it was rolled back")


# others


def test_a_push_only_writer_goes_on_after_its_snapshot_was_forgotten(
    history: Person, person: Callable[[str], Person], source: Path
) -> None:
    lab = person("lab")
    history.grant("data", lab, "push-only")
    (source / "m1").write_bytes(b"measured" * 100)
    lab.must("push", source, "--dataset", "data")
    (source / "m2").write_bytes(b"measured" * 200)
    history.must("push", source, "--dataset", "data")
    history.must("forget", "data@6")
    (source / "m3").write_bytes(b"measured" * 300)
    assert lab.must("push", source, "--dataset", "data")["seq"] == 8
    history.must("verify", "data", "--read-data")


def test_a_local_table_that_is_deleted_or_damaged_is_read_again(history: Person) -> None:
    history.must("forget", "data@1", "data@3")
    tables = list(history.machine.state.rglob("*.forgotten.db"))
    assert tables
    for damaged in (False, True):
        for path in history.machine.state.rglob("*.forgotten.db*"):
            path.unlink()
        if damaged:
            tables[0].write_bytes(b"not a database at all" * 400)
        history.refused(4, "ls", "data@3", words="it was forgotten")
        assert numbers(history) == [5, 4, 2]


def test_it_is_recorded_before_and_after(history: Person) -> None:
    history.must("forget", "data", "--keep-last", "1")
    found = [item for item in events(history, "audit", "query", "--action", "forget") if item["type"] == "event"]
    assert sorted(item["outcome"] for item in found) == ["intent", "success"]
    assert {item["detail"]["snapshots"] for item in found} == {"1,3-4"}


class Overwriting(MemoryStore):
    """A store without put-if-absent: names carry hashes there."""

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        self.delete(name)
        return super().put_if_absent(name, data)


def test_where_names_carry_hashes(tmp_path: Path, source: Path, clock: Clock) -> None:
    store = Overwriting(clock=clock)
    owner = Person.make(tmp_path, "olga", "memory://people", store)
    owner.must("init")
    assert owner.must("status")["naming"] == "hashed"
    for number in range(3):
        (source / f"n{number}").write_bytes(os.urandom(2000))
        owner.must("push", source, "--dataset", "data")
    owner.must("forget", "data@1")
    owner.must("forget", "data", "--keep-last", "1")
    for line in ("data@1", "data@2"):
        owner.refused(4, "ls", line, words="it was forgotten")
    for days in (8, 15, 15):
        clock.pass_days(days)
        owner.must("prune", "--max-unused", "0%")
    fresh = Person("fresh", owner.machine.sibling(tmp_path / "fresh"), store)
    fresh.must("verify", "data", "--read-data")
    assert numbers(fresh) == [3]
