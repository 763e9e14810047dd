"""What is written after a revocation is closed to who was revoked, whatever was under way meanwhile."""

from collections.abc import Callable
from unittest import mock

from datasync.errors import StorageUnavailable
from datasync.format import pack as packs
from datasync.format.signed import Signed
from datasync.push.pipeline import _Run
from datasync.repository import amend, condemned, tags
from datasync.repository.manifest import ManifestReader
from datasync.repository.snapshots import History
from tests.keys.forge import DATASET, Cast, opened
from tests.support.copies import LIMIT, names
from tests.support.people import Person

SECRET = b"only for who is still there " * 3000


def once(action: Callable[[], object], then: Callable[..., object]) -> Callable[..., object]:
    """Return *then*, which does *action* first when it is called for the first time."""
    left = [action]

    def call(*given: object, **named: object) -> object:
        if left:
            left.pop()()
        return then(*given, **named)

    return call


def epochs_of_new_data(cast: Cast, who: Person) -> set[int]:
    """Return the epochs of the packs in which the newest snapshot has what was not there before."""
    with opened(who) as dataset:
        newest = dataset.history.latest()
        assert newest is not None
        reader = ManifestReader(dataset.history, newest)
        return {
            chunk.pack.epoch
            for entry, page in reader.entries()
            if entry.path == b"secret"
            for chunk in reader.chunks(entry, page)
        }


def test_a_revocation_while_a_writer_pushes(cast: Cast) -> None:
    (cast.source / "secret").write_bytes(SECRET)
    revoke = once(lambda: cast.olga.must("key", "revoke", DATASET, "rita"), History.check_current)
    with mock.patch.object(History, "check_current", revoke):
        cast.will.must("push", cast.source, "--dataset", DATASET)
    assert epochs_of_new_data(cast, cast.will) == {2}
    cast.refused("no slot", code=12)
    cast.will.must("verify", DATASET, "--read-data")


def test_a_revocation_between_a_push_that_died_and_the_next(cast: Cast) -> None:
    (cast.source / "secret").write_bytes(SECRET)
    with mock.patch.object(_Run, "_commit", side_effect=StorageUnavailable("the network went")):
        assert cast.will.run("push", cast.source, "--dataset", DATASET).code == 5
    cast.olga.must("key", "revoke", DATASET, "rita")
    cast.will.must("status")
    cast.will.must("push", cast.source, "--dataset", DATASET)
    assert epochs_of_new_data(cast, cast.will) == {2}


def test_a_revocation_while_a_push_only_writer_pushes(cast: Cast) -> None:
    lab = cast.person("lab")
    cast.olga.grant(DATASET, lab, "push-only")
    tree = cast.place()
    tree.mkdir()
    (tree / "secret").write_bytes(SECRET)
    revoke = once(lambda: cast.olga.must("key", "revoke", DATASET, "rita"), History.check_current)
    with mock.patch.object(History, "check_current", revoke):
        lab.must("push", tree, "--dataset", DATASET, "--source-change")
    assert epochs_of_new_data(cast, cast.will) == {2}


def test_a_revocation_that_a_push_only_writer_has_not_seen(cast: Cast) -> None:
    lab = cast.person("lab")
    cast.olga.grant(DATASET, lab, "push-only")
    cast.olga.must("key", "revoke", DATASET, "rita")
    tree = cast.place()
    tree.mkdir()
    (tree / "secret").write_bytes(SECRET)
    before = set(names(cast.store))
    lab.must("push", tree, "--dataset", DATASET, "--source-change")
    for name in set(names(cast.store)) - before:
        assert packs.read_header(cast.store.get(name, limit=LIMIT), name).epoch == 2, name


def while_removing(cast: Cast, who: str, action: Callable[[], object]) -> None:
    """Revoke *who*, and do *action* after the new keyset and before the new trust root."""
    create = amend._create

    def late(history: History, kind: str, version: int, plain_kind: int, signed: Signed) -> None:
        if kind == "trust" and left:
            left.pop()()
        create(history, kind, version, plain_kind, signed)

    left = [action]
    with mock.patch.object(amend, "_create", late):
        cast.olga.must("key", "revoke", DATASET, who)
    assert not left


def test_a_tag_that_a_writer_sets_while_it_is_removed(cast: Cast) -> None:
    with opened(cast.will) as before:
        snapshot = before.history.read(1)
    while_removing(cast, "will", lambda: tags.assign(before.history, "prod", snapshot))
    cast.accepted(reference=f"{DATASET}:prod")
    cast.olga.must("tag", DATASET, "beta")
    cast.accepted(reference=f"{DATASET}:beta")


def test_a_list_that_a_writer_condemns_by_while_it_is_removed(cast: Cast) -> None:
    with opened(cast.will) as before:
        pass
    while_removing(cast, "will", lambda: condemned.condemn(before.history, [bytes(32)]))
    cast.push(cast.olga)
    cast.accepted()


def test_a_snapshot_that_a_push_only_writer_makes_while_it_is_removed(cast: Cast) -> None:
    lab, tree = cast.person("lab"), cast.place()
    cast.olga.grant(DATASET, lab, "push-only")
    tree.mkdir()
    (tree / "late").write_bytes(b"late")
    while_removing(cast, "lab", lambda: lab.must("push", tree, "--dataset", DATASET, "--source-change"))
    cast.accepted(reference=f"{DATASET}@3")
    cast.accepted()
    cast.push(cast.olga)
    cast.accepted()
    cast.olga.must("verify", DATASET, "--read-data")
    (tree / "later").write_bytes(b"later")
    lab.refused(12, "push", tree, "--dataset", DATASET, words="no slot")


def test_all_slots_of_one_person_go_together(cast: Cast) -> None:
    recipient = cast.will.must("key", "show", "--x25519")["recipient"]
    dss = cast.will.must("key", "show")["signer"]
    cast.olga.must("key", "grant", DATASET, recipient, dss, "--name", "will-classical")
    holders = cast.olga.must("key", "list", DATASET)["holders"]
    prints = {item["name"]: item["fingerprint"] for item in holders}
    cast.olga.must("key", "revoke", DATASET, prints["will-classical"])
    cast.will.refused(12, "pull", DATASET, cast.place(), words="no slot")
    assert {item["name"] for item in cast.olga.must("key", "list", DATASET)["holders"]}.isdisjoint(
        {"will", "will-classical"}
    )
    cast.refused("no slot", who=cast.will, code=12)


def test_two_people_of_one_name_are_not_revoked_together(cast: Cast) -> None:
    other = cast.person("other")
    cast.olga.must("key", "grant", DATASET, other.public(), "--role", "writer", "--name", "rita")
    before = names(cast.store)
    cast.olga.refused(2, "key", "revoke", DATASET, "rita", words="several holders")
    assert names(cast.store) == before
    digits = other.must("key", "show")["signer"]
    assert digits
    holders = [item for item in cast.olga.must("key", "list", DATASET)["holders"] if item["name"] == "rita"]
    assert len(holders) == 2
    gone = next(item for item in holders if "writer" in item["roles"])
    cast.olga.must("key", "revoke", DATASET, gone["fingerprint"][:16])
    cast.accepted()
