"""What a removed writer did meanwhile, or does afterwards, is accepted or removed by an owner, and stops nobody."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from datasync.crypto.hashing import hash_bytes
from datasync.format import pack as packs
from datasync.format.control import Condemned, Head, Tags
from datasync.format.signed import Signed
from datasync.repository import amend, numbered, policies
from datasync.repository.keyring import UnknownEpoch
from datasync.repository.numbered import NumberedObject
from datasync.repository.repository import OpenDataset
from datasync.repository.settle import settle_removals
from datasync.repository.snapshots import HEAD_LIFE_MS, History
from datasync.storage.protocol import ObjectStore
from tests.keys.forge import DATASET, Cast, newest, opened, put_control, signer, told, trust_in
from tests.support.copies import LIMIT, names, replace


def while_stored(kind: str, action: Callable[[], object], then: Callable[[], object]) -> None:
    """Do *then*, and *action* right before it stores an object of *kind*."""
    create, left = amend._create, [action]

    def late(history: History, found: str, version: int, plain_kind: int, signed: Signed) -> None:
        if found == kind and left:
            left.pop()()
        create(history, found, version, plain_kind, signed)

    with mock.patch.object(amend, "_create", late):
        then()
    assert not left


def push_as(dataset: OpenDataset) -> None:
    """Commit a snapshot by *dataset* as it was opened: a push that was on its way when the keys changed."""
    latest = dataset.history.latest()
    assert latest is not None
    dataset.history.commit(latest.body, latest.lists, lambda: None)


def push_late(dataset: OpenDataset, change: Callable[[], object]) -> None:
    """Commit a snapshot whose put arrives when *change* is done, although it was sent before."""
    create, left = numbered.create, [change]

    def late(store: ObjectStore, prefix: str, number: int, data: bytes, *, hashed: bool) -> NumberedObject:
        if left and prefix.endswith("/snapshots/"):
            left.pop()()
        return create(store, prefix, number, data, hashed=hashed)

    with mock.patch.object(numbered, "create", late), pytest.raises(UnknownEpoch):  # it can not write its head
        push_as(dataset)


def set_late(cast: Cast, dataset: OpenDataset, kind: str, body: Any, number: int) -> str:
    """Put what a removed writer seals with its old keys and signs under the next number."""
    type_ = {"heads": packs.HEAD, "tags": packs.TAGS, "condemned": packs.CONDEMNED}[kind]
    return put_control(cast.store, dataset, kind, type_, number, body, signer(cast.will))


def revoked(cast: Cast, who: str = "will") -> None:
    cast.olga.must("key", "revoke", DATASET, who)


def test_snapshots_of_others_on_top_of_a_late_one_are_read_by_who_knows_an_older_one(cast: Cast) -> None:
    """Will pushes, and then Olga on top of that, once the mark for will is chosen."""
    with opened(cast.will) as will, opened(cast.olga) as olga:

        def both() -> None:
            push_as(will)
            push_as(olga)

        while_stored("keyset", both, lambda: revoked(cast))
    told_log = cast.rita.must("log", DATASET)
    assert told_log
    assert cast.pull(cast.rita.machine).code == 0  # it knows snapshot 2, and follows the line from there
    assert cast.pull(cast.fresh(cast.rita), f"{DATASET}@3").code == 0
    assert next(item.removed for item in trust_in(cast.store).principals if item.removed is not None)[0] == 3


def test_a_writer_that_another_owner_adds_meanwhile_does_not_stop_a_removal(cast: Cast) -> None:
    """Right after the removal is stored, Rita (an owner) adds Anna, who pushes."""
    cast.olga.grant(DATASET, cast.rita, "owner")
    anna, tree, settle = cast.person("anna"), cast.place(), settle_removals
    tree.mkdir()
    (tree / "new").write_bytes(b"of anna")

    def late(*given: Any) -> Any:
        cast.rita.grant(DATASET, anna, "writer")
        anna.must("push", tree, "--dataset", DATASET, "--source-change")
        before, _, key, reopen = given
        return settle(before, reopen(), key, reopen)

    with mock.patch("datasync.service.access.settle_removals", late):
        revoked(cast)
    cast.accepted(cast.olga)
    cast.refused("no slot", who=cast.will, code=12)


def test_a_late_snapshot_is_refused_and_removed_and_pushes_go_on(cast: Cast) -> None:
    with opened(cast.will) as will:
        push_late(will, lambda: revoked(cast))
        now = int(time.time() * 1000)
        snapshot = hash_bytes(cast.store.get(newest(cast.store, "snapshots"), limit=LIMIT))
        number = len(names(cast.store, "/heads/")) + 1
        set_late(cast, will, "heads", Head(will.id, number, bytes(32), 3, snapshot, now, now + HEAD_LIFE_MS), number)
        set_late(cast, will, "condemned", Condemned(will.id, 1, bytes(32), now, ((bytes(32), now),)), 1)
    late = [newest(cast.store, kind) for kind in ("heads", "condemned", "snapshots")]
    kept = [cast.store.get(name, limit=LIMIT) for name in late]
    told(cast.olga.run("push", cast.source, "--dataset", DATASET), "datasync key settle")
    cast.refused("datasync key settle")
    shown = cast.olga.must("key", "settle", DATASET)
    assert (shown["refused"], shown["removed"]) == (late, [])
    assert [(item["seq"], item["signer"]) for item in shown["late"]] == [(3, signer(cast.will).public.hex())]
    cast.olga.refused(2, "key", "settle", DATASET, "--remove", "--json", words="--yes")
    assert cast.olga.must("key", "settle", DATASET, "--remove", "--yes")["removed"] == late
    folder = cast.olga.machine.evidence.parent / "refused"
    assert sorted(kept) == sorted(path.read_bytes() for path in folder.iterdir() if path.suffix != ".json")
    cast.accepted()
    assert cast.push(cast.olga)["seq"] == 3
    cast.accepted()
    cast.olga.must("verify", DATASET, "--read-data")
    assert cast.olga.must("key", "settle", DATASET)["refused"] == []
    cast.olga.refused(4, "key", "settle", DATASET, "--remove", "--yes", "--json", words="nothing is refused")


def test_a_late_snapshot_is_accepted_and_pushes_go_on(cast: Cast) -> None:
    with opened(cast.will) as will:
        push_late(will, lambda: revoked(cast))
    cast.olga.must("key", "settle", DATASET, "--accept")
    cast.accepted()
    cast.accepted(reference=f"{DATASET}@3")
    assert cast.push(cast.olga)["seq"] == 4
    cast.accepted()
    cast.olga.refused(4, "key", "settle", DATASET, "--accept", words="waits to be accepted")
    cast.refused("no slot", who=cast.will, code=12)


def test_objects_of_somebody_who_was_never_a_writer_are_removed_and_never_accepted(cast: Cast) -> None:
    with opened(cast.rita) as rita:
        latest = rita.history.latest()
        assert latest is not None
        body = latest.body
        forged = put_control(
            cast.store, rita, "snapshots", packs.SNAPSHOT, 3,
            type(body)(**{**{f: getattr(body, f) for f in body.__struct_fields__}, "seq": 3, "previous": latest.id}),
            signer(cast.rita), latest.lists,
        )  # fmt: skip
    told(cast.olga.run("push", cast.source, "--dataset", DATASET), "whom the trust root does not list")
    cast.olga.refused(4, "key", "settle", DATASET, "--accept", "-q", "--json", words="waits to be accepted")
    assert cast.olga.must("key", "settle", DATASET, "--remove", "--yes")["removed"] == [forged]
    assert cast.push(cast.olga)["seq"] == 3
    cast.accepted()


def test_bytes_that_nobody_signed_are_not_removed(cast: Cast) -> None:
    name = newest(cast.store, "snapshots")
    data = bytearray(cast.store.get(name, limit=LIMIT))
    data[-40] ^= 1
    replace(cast.store, name, bytes(data))
    before = names(cast.store)
    told(cast.olga.run("key", "settle", DATASET, "--remove", "--yes"), name)
    assert names(cast.store) == before


def test_a_table_of_tags_that_came_late_is_removed(cast: Cast) -> None:
    cast.olga.must("tag", DATASET, "stable")
    with opened(cast.will) as will:
        revoked(cast)
        set_late(cast, will, "tags", Tags(will.id, 3, bytes(32), int(time.time() * 1000), ()), 3)
    cast.refused("datasync key settle", reference=f"{DATASET}:stable")
    cast.olga.must("key", "settle", DATASET, "--remove", "--yes")
    cast.accepted(reference=f"{DATASET}:stable")


def test_only_an_owner_settles(cast: Cast) -> None:
    with opened(cast.will) as will:
        push_late(will, lambda: revoked(cast))
    before = names(cast.store)
    cast.rita.refused(6, "key", "settle", DATASET, "--remove", "--yes", words="does not own it")
    assert names(cast.store) == before


def test_a_policy_that_an_owner_publishes_while_it_is_removed_stays_in_force(cast: Cast) -> None:
    cast.olga.grant(DATASET, cast.will, "owner")
    with opened(cast.will) as will:
        key = signer(cast.will)
        files = {"a.cedar": "permit (principal, action, resource);"}

        def publish() -> None:
            policies.store_policy(will.history, policies.propose_policy(will.history, files, key))

        while_stored("trust", publish, lambda: revoked(cast))
    with opened(cast.olga) as olga:
        found = policies.newest_policy(olga.history)
        assert found is not None
        assert (found.files, found.signers) == (files, (signer(cast.olga).public,))


# several owners


@pytest.fixture
def two(cast: Cast) -> Cast:
    """Olga and Rita own the dataset and sign together; Will writes."""
    cast.olga.grant(DATASET, cast.rita, "owner")
    path = cast.place()
    cast.olga.must("key", "owners", DATASET, "--threshold", "2", "--output", path)
    cast.rita.must("key", "cosign", DATASET, path)
    return cast


def proposed(cast: Cast, *line: str) -> Path:
    path = cast.place()
    assert cast.olga.must("key", *line, "--output", path)["missing"] == 1
    return path


def test_a_push_between_proposal_and_last_signature_takes_one_signature_more(two: Cast) -> None:
    path = proposed(two, "revoke", DATASET, "will")
    two.push(two.will)
    done = two.rita.must("key", "cosign", DATASET, path)
    assert (done["stored"], done["missing"], done["proposal"]) == (True, 1, str(path))
    two.refused("no slot", who=two.will, code=12)
    two.refused("was removed after snapshot 2", who=two.olga)
    done = two.olga.must("key", "cosign", DATASET, path)
    assert "missing" not in done
    two.accepted()
    assert two.push(two.olga)["seq"] == 4
    two.accepted(reference=f"{DATASET}@3")


def test_a_late_snapshot_is_accepted_by_two(two: Cast) -> None:
    path = proposed(two, "revoke", DATASET, "will")
    with opened(two.will) as will:
        push_late(will, lambda: two.rita.must("key", "cosign", DATASET, path))
    again = two.place()
    assert two.olga.must("key", "settle", DATASET, "--accept", "--output", again)["missing"] == 1
    ran = two.rita.run("key", "cosign", DATASET, again)
    assert ran.code == 0, ran
    assert "accepts snapshots of the removed signer will" in ran.err
    two.accepted()
    two.push(two.olga)
    two.accepted()
