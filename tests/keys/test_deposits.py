"""A push-only writer adds snapshots and reads nothing, not even its own earlier data; readers check all it made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from datasync.crypto.kdf import random_bytes
from datasync.errors import WrongKey
from datasync.format import pack as packs
from datasync.repository.deposits import Deposits
from tests.keys.forge import DATASET, Cast, opened, told
from tests.support.copies import LIMIT, names
from tests.support.machine import Ran, contents
from tests.support.people import Person

MIB = 1024 * 1024


@pytest.fixture
def lab(cast: Cast) -> Person:
    """A push-only writer of the dataset."""
    found = cast.person("lab")
    cast.olga.grant(DATASET, found, "push-only")
    return found


@pytest.fixture
def tree(cast: Cast) -> Path:
    """What the instrument writes."""
    root = cast.place()
    (root / "run").mkdir(parents=True)
    (root / "run" / "one").write_bytes(random_bytes(2 * MIB))
    (root / "run" / "two").write_bytes(random_bytes(300_000))
    (root / "notes").write_bytes(b"words " * 5_000)
    return root


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of files tell changes at once: nothing is read again for being too new."""
    monkeypatch.setattr("datasync.push.detect.RACY_NS", -(10**10))


def push(who: Person, tree: Path, *more: str) -> Ran:
    return who.machine.run("push", tree, "--dataset", DATASET, "--json", *more, store=who.store)


def must(who: Person, tree: Path, *more: str) -> dict[str, object]:
    ran = push(who, tree, *more)
    assert ran.code == 0, ran
    return ran.result


def first(lab: Person, tree: Path) -> dict[str, object]:
    return must(lab, tree, "--source-change")


def reads(cast: Cast, tree: Path, reference: str = DATASET) -> None:
    """Check that a fresh reader gets *tree*, and that every byte in the repository is what it should be."""
    target = cast.place()
    cast.fresh(cast.rita).must("pull", reference, target, store=cast.store)
    assert contents(target) == contents(tree)
    cast.rita.must("verify", DATASET, "--read-data")


def test_readers_read_and_verify_what_it_made(cast: Cast, lab: Person, tree: Path) -> None:
    made = first(lab, tree)
    assert made["created"]
    assert made["seq"] == 3
    reads(cast, tree)
    cast.accepted(reference=f"{DATASET}@1")


def test_a_second_push_of_the_same_makes_nothing(cast: Cast, lab: Person, tree: Path) -> None:
    first(lab, tree)
    before = names(cast.store)
    assert not must(lab, tree)["created"]
    assert names(cast.store) == before


def test_it_sends_only_what_is_new_since_its_own_last_push(cast: Cast, lab: Person, tree: Path) -> None:
    first(lab, tree)
    (tree / "run" / "three").write_bytes(random_bytes(100_000))
    (tree / "run" / "copy").write_bytes((tree / "run" / "one").read_bytes())
    made = must(lab, tree)
    assert made["created"]
    sent = made["sent_bytes"]
    assert isinstance(sent, int)
    assert sent < MIB, made
    reads(cast, tree)


def test_it_reads_nothing(cast: Cast, lab: Person, tree: Path) -> None:
    made = first(lab, tree)
    cast.olga.must("tag", DATASET, "prod")
    own = f"{DATASET}@{made['seq']}"
    exact = f"{DATASET}@{made['snapshot']}"
    lines: list[tuple[str | Path, ...]] = [
        *(("pull", ref, cast.place()) for ref in (DATASET, own, exact, f"{DATASET}:prod")),
        ("warm", DATASET, "--cache", cast.place()), ("ls", DATASET), ("ls", own, "run"), ("log", DATASET),
        ("diff", f"{DATASET}@1", own), ("du", DATASET), ("verify", DATASET), ("verify", DATASET, "--read-data"),
        ("tag", DATASET), ("tag", own, "prod"), ("key", "list", DATASET),
        ("run", "--data", DATASET, "--cache", cast.place(), "--", "true"),
    ]  # fmt: skip
    before = names(cast.store)
    for line in lines:
        ran = lab.run(*line)
        assert ran.code == 12, (line, ran)
        assert "reads nothing of it" in ran.message, (line, ran)
    assert names(cast.store) == before
    assert lab.must("status")["datasets"] == []


@pytest.mark.parametrize(
    "line", [("rotate", DATASET), ("rotate", DATASET, "--full"), ("revoke", DATASET, "rita"),
             ("owners", DATASET, "--threshold", "1"), ("shred", DATASET, "--yes")],
)  # fmt: skip
def test_it_owns_nothing(cast: Cast, lab: Person, tree: Path, line: tuple[str, ...]) -> None:
    first(lab, tree)
    before = names(cast.store)
    lab.refused(6, "key", *line, words="does not own it")
    assert names(cast.store) == before


def test_no_key_on_its_machine_opens_what_it_made(cast: Cast, lab: Person, tree: Path) -> None:
    first(lab, tree)
    with opened(lab) as dataset:
        assert isinstance(dataset.history, Deposits)
        for name in names(cast.store, f"d/{cast.dataset}/"):
            if "/trust/" in name or "/keyset/" in name:
                continue
            header = packs.read_header(cast.store.get(name, limit=LIMIT), name)
            with pytest.raises(WrongKey, match="reads nothing of it"):
                dataset.keyring.opener(header, name)
    with opened(cast.rita) as dataset:
        ring = dataset.keyring
        secrets = [key for keys in ring.epochs.values() for key in (keys.root, keys.metadata) if key]
    for path in lab.machine.home.rglob("*"):
        assert not path.is_file() or not any(key in path.read_bytes() for key in secrets), path


@pytest.mark.usefixtures("settled")
def test_it_goes_on_after_another_writers_snapshot(cast: Cast, lab: Person, tree: Path) -> None:
    first(lab, tree)
    for _ in range(2):
        cast.push(cast.olga)
    assert not must(lab, tree)["created"]
    (tree / "more").write_bytes(random_bytes(1000))
    made = must(lab, tree)
    assert made["created"]
    assert made["seq"] == 6
    sent = made["sent_bytes"]
    assert isinstance(sent, int)
    assert sent < MIB, made
    reads(cast, tree)
    assert cast.pull(cast.olga.machine).code == 0


def test_after_a_new_condemned_list_it_sends_everything_again(cast: Cast, lab: Person, tree: Path) -> None:
    first(lab, tree)
    assert cast.olga.must("key", "rotate", DATASET, "--full")["condemned"]
    made = must(lab, tree, "--allow-empty")
    sent = made["sent_bytes"]
    assert isinstance(sent, int)
    assert sent > 2 * MIB, made
    reads(cast, tree)
    assert not must(lab, tree)["created"]


@pytest.mark.usefixtures("settled")
def test_after_a_rotation_it_seals_to_the_new_epoch(cast: Cast, lab: Person, tree: Path) -> None:
    first(lab, tree)
    cast.olga.must("key", "rotate", DATASET)
    before = set(names(cast.store))
    (tree / "more").write_bytes(random_bytes(1000))
    assert must(lab, tree)["created"]
    for name in set(names(cast.store)) - before:
        assert packs.read_header(cast.store.get(name, limit=LIMIT), name).epoch == 2, name
    reads(cast, tree)


def test_a_reader_who_was_revoked_reads_no_new_deposit(cast: Cast, lab: Person, tree: Path) -> None:
    cast.olga.must("key", "revoke", DATASET, "rita")
    first(lab, tree)
    cast.refused("no slot", code=12)
    cast.accepted(cast.will)


def test_once_revoked_it_pushes_nothing_and_its_snapshots_stay(cast: Cast, lab: Person, tree: Path) -> None:
    made = first(lab, tree)
    cast.olga.must("key", "revoke", DATASET, "lab")
    before = [name for name in names(cast.store) if "/packs/" not in name]
    (tree / "more").write_bytes(random_bytes(1000))
    told(lab.run("push", tree, "--dataset", DATASET), "no slot", code=12)
    assert [name for name in names(cast.store) if "/packs/" not in name] == before
    (tree / "more").unlink()
    reads(cast, tree, f"{DATASET}@{made['seq']}")
    reads(cast, tree)


def test_a_grant_that_ends(cast: Cast, tree: Path, shifted: Callable[[float], None]) -> None:
    lab = cast.person("lab")
    cast.olga.grant(DATASET, lab, "push-only", "--until", "1d")
    shifted(25 * 3600)
    told(lab.run("push", tree, "--dataset", DATASET, "--source-change"), "access ended at", code=12)


@pytest.mark.usefixtures("settled")
def test_a_new_identity_on_the_same_machine_makes_whole_snapshots(cast: Cast, lab: Person, tree: Path) -> None:
    """What the machine remembers belongs to the identity before."""
    first(lab, tree)
    cast.olga.must("key", "revoke", DATASET, "lab")
    lab.machine.identity.unlink()
    lab.must("key", "init")
    cast.olga.grant(DATASET, lab, "push-only")
    (tree / "more").write_bytes(random_bytes(1000))
    assert must(lab, tree)["created"]
    reads(cast, tree)


@pytest.mark.usefixtures("settled")
def test_who_becomes_a_writer_that_reads_makes_whole_snapshots(cast: Cast, lab: Person, tree: Path) -> None:
    """Its earlier ids came from a key of its own."""
    first(lab, tree)
    cast.olga.grant(DATASET, lab, "writer")
    (tree / "more").write_bytes(random_bytes(1000))
    assert must(lab, tree)["created"]
    reads(cast, tree)
    lab.must("pull", DATASET, cast.place())


def test_a_machine_without_memory_goes_on(cast: Cast, lab: Person, tree: Path) -> None:
    first(lab, tree)
    other = Person("lab", lab.machine.sibling(cast.place()), cast.store)
    (tree / "more").write_bytes(random_bytes(1000))
    before = names(cast.store)
    ran = other.run("push", tree, "--dataset", DATASET, "--source-change")
    told(ran, "can not read its name", "datasync key accept", code=12)
    assert names(cast.store) == before
    other.must("key", "accept", DATASET, cast.dataset)
    assert must(other, tree, "--source-change")["created"]
    reads(cast, tree)


def test_it_pushes_into_no_dataset_but_the_one_it_accepted(cast: Cast, lab: Person, tree: Path) -> None:
    other = Person("lab", lab.machine.sibling(cast.place()), cast.store)
    before = names(cast.store)
    for who in (lab, other):
        assert who.run("push", tree, "--dataset", "private").code == 12
    assert names(cast.store) == before


def test_a_rollback_is_missed_by_who_made_the_snapshot(cast: Cast, lab: Person, tree: Path) -> None:
    first(lab, tree)
    name = names(cast.store, "/snapshots/")[0]
    data = cast.store.get(name, limit=LIMIT)
    cast.store.delete(name)
    (tree / "more").write_bytes(random_bytes(1000))
    told(lab.run("push", tree, "--dataset", DATASET), "snapshot 3", "rolled back", "evidence: ")
    cast.store.put_if_absent(name, data[:-1] + bytes((data[-1] ^ 1,)))
    told(lab.run("push", tree, "--dataset", DATASET), "snapshot 3", "this machine made it", "evidence: ")
