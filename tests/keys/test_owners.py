"""Several owners: m of n sign, concurrently and one after the other; expiry and renewal; revoking one; shredding."""

import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from datasync.repository import amend
from datasync.repository.snapshots import History
from tests.keys.forge import DATASET, Cast, newest, trust_in
from tests.support.copies import names
from tests.support.people import Person


@pytest.fixture
def three(cast: Cast) -> Cast:
    """Olga, Will and Rita own the dataset, two of them sign a change."""
    for who in (cast.will, cast.rita):
        cast.olga.grant(DATASET, who, "owner")
    path = cast.place()
    done = cast.olga.must("key", "owners", DATASET, "--threshold", "2", "--output", path)
    assert done["missing"] == 1
    cast.will.must("key", "cosign", DATASET, path)
    assert trust_in(cast.store).threshold == 2
    return cast


def propose(who: Person, path: Path, *line: str | Path) -> dict[str, object]:
    """Run a key command that has to end as a proposal in *path*."""
    done = who.must("key", *line, "--output", path)
    assert done["missing"] == 1, done
    assert done["proposal"] == str(path)
    return done


def test_raising_the_threshold_takes_as_many_signatures(cast: Cast) -> None:
    cast.olga.grant(DATASET, cast.will, "owner")
    before = names(cast.store)
    path = cast.place()
    propose(cast.olga, path, "owners", DATASET, "--threshold", "2")
    assert names(cast.store) == before
    cast.will.must("key", "cosign", DATASET, path)
    cast.accepted()
    assert cast.olga.must("key", "list", DATASET)["threshold"] == 2


def test_one_signature_is_a_proposal_and_two_store_it(three: Cast) -> None:
    anna, path = three.person("anna"), three.place()
    before = names(three.store)
    propose(three.olga, path, "grant", DATASET, anna.public(), "--name", "anna")
    assert names(three.store) == before
    three.refused("no slot", who=anna, code=12)
    three.olga.must("key", "cosign", DATASET, path)  # the same owner again adds nothing
    assert names(three.store) == before
    done = three.rita.must("key", "cosign", DATASET, path)
    anna.must("key", "accept", DATASET, str(done["trust"]))
    three.accepted(anna)
    assert three.rita.run("key", "cosign", DATASET, path).code == 7  # it is stored already


def test_without_a_file_for_the_proposal_nothing_is_done(three: Cast) -> None:
    before = names(three.store)
    three.olga.refused(2, "key", "rotate", DATASET, words="--output FILE")
    assert names(three.store) == before


def test_a_rotation_and_a_push_by_three(three: Cast) -> None:
    path = three.place()
    propose(three.will, path, "rotate", DATASET)
    three.rita.must("key", "cosign", DATASET, path)
    three.push(three.will)
    three.accepted()
    three.olga.must("verify", DATASET, "--read-data")


def test_an_owner_is_revoked_by_the_two_others(three: Cast) -> None:
    path = three.place()
    propose(three.olga, path, "revoke", DATASET, "will")
    three.will.must("key", "list", DATASET)
    three.rita.must("key", "cosign", DATASET, path)
    three.refused("no slot", who=three.will, code=12)
    three.accepted()
    three.will.refused(12, "push", three.source, "--dataset", DATASET, "--allow-empty", words="no slot")
    path = three.place()
    before = names(three.store)
    three.olga.refused(2, "key", "revoke", DATASET, "rita", words="a threshold of 2 needs as many owners")
    assert names(three.store) == before


def test_a_proposal_that_another_change_overtook_is_stale(three: Cast) -> None:
    one, other = three.place(), three.place()
    propose(three.olga, one, "rotate", DATASET)
    propose(three.will, other, "rotate", DATASET)
    three.rita.must("key", "cosign", DATASET, other)
    before = names(three.store)
    three.rita.refused(7, "key", "cosign", DATASET, one, words="does not follow the present keys")
    assert names(three.store) == before


def test_who_cosigns_is_told_what_it_signs(three: Cast) -> None:
    anna = three.person("anna")
    for words, line in (
        ("begins epoch 2", ("rotate", DATASET)),
        ("gives a slot to anna, the key", ("grant", DATASET, anna.public(), "--name", "anna")),
        ("takes the slot of anna, the key", ("revoke", DATASET, "anna")),
        ("DESTROYS every key", ("shred", DATASET, "--yes")),
    ):
        path = three.place()
        propose(three.olga, path, *line)
        ran = three.rita.run("key", "cosign", DATASET, path, "--yes", "--output", three.place())
        assert (ran.code, words in ran.err) == (0, True), ran


def test_a_reader_does_not_cosign(three: Cast) -> None:
    anna, path = three.person("anna"), three.place()
    propose(three.olga, path, "grant", DATASET, anna.public(), "--name", "anna")
    three.rita.must("key", "cosign", DATASET, path)
    anna.must("key", "accept", DATASET, three.dataset)
    path = three.place()
    propose(three.olga, path, "rotate", DATASET)
    before = names(three.store)
    anna.refused(6, "key", "cosign", DATASET, path, words="does not own it")
    assert names(three.store) == before


def test_owners_shred_together_and_the_last_one_gets_the_certificate(three: Cast) -> None:
    path, certificate = three.place(), three.place()
    done = three.olga.must("key", "shred", DATASET, "--yes", "--reason", "the contract ended", "--output", path)
    assert done["missing"] == 1
    three.accepted()
    three.rita.must("key", "cosign", DATASET, path, "--yes", "--output", certificate)
    for who in (three.olga, three.will, three.rita):
        assert three.pull(who.machine).code in (4, 12)
    fields = three.will.must("key", "certificate", certificate)
    assert fields["dataset"] == DATASET
    assert len(names(three.store, "/keyset/")) == 1


def test_a_cosigned_shredding_never_loses_its_certificate(three: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    path = three.place()
    three.olga.must("key", "shred", DATASET, "--yes", "--output", path)
    three.folder.joinpath("cwd").mkdir()
    monkeypatch.chdir(three.folder / "cwd")
    before = names(three.store)
    three.rita.refused(2, "key", "cosign", DATASET, path, "--json", words="--yes")
    assert names(three.store) == before
    done = three.rita.must("key", "cosign", DATASET, path, "--yes")
    assert three.will.must("key", "certificate", str(done["certificate"]))["dataset"] == DATASET


def test_a_file_in_the_way_of_the_certificate_stops_the_shredding(three: Cast) -> None:
    path, taken = three.place(), three.place()
    three.olga.must("key", "shred", DATASET, "--yes", "--output", path)
    taken.write_text("something else")
    three.rita.refused(2, "key", "cosign", DATASET, path, "--output", taken, words="not overwritten")
    three.accepted()


def test_a_shredding_that_was_interrupted_goes_on(cast: Cast) -> None:
    path = cast.place()
    with mock.patch.object(type(cast.store), "delete", side_effect=OSError("the cable")):
        assert cast.olga.run("key", "shred", DATASET, "--yes", "--output", path).code != 0
    assert len(names(cast.store, "/keyset/")) > 1
    cast.olga.must("key", "shred", DATASET, "--yes", "--output", path)
    assert len(names(cast.store, "/keyset/")) == 1
    assert cast.rita.must("key", "certificate", path)["dataset"] == DATASET


# expiry


def test_an_expiry_is_set_and_renewed(cast: Cast, shifted: Callable[[float], None]) -> None:
    cast.olga.must("key", "owners", DATASET, "--expires", "1d")
    cast.accepted()
    shifted(25 * 3600)
    cast.refused("its trust root ended", "datasync key owners --expires")
    cast.olga.must("key", "owners", DATASET, "--expires", "never")
    cast.accepted()
    assert trust_in(cast.store).expires == 0


# several at once


def test_two_owners_grant_at_once_and_both_are_stored(cast: Cast) -> None:
    cast.olga.grant(DATASET, cast.will, "owner")
    anna, bert = cast.person("anna"), cast.person("bert")
    create, left = amend._create, [True]

    def race(history: History, *rest: object) -> None:
        if left:
            left.clear()
            cast.will.grant(DATASET, bert, "writer")
        create(history, *rest)  # type: ignore[arg-type]

    with mock.patch.object(amend, "_create", race):
        cast.olga.grant(DATASET, anna, "writer")
    holders = {item["name"]: item["roles"] for item in cast.rita.must("key", "list", DATASET)["holders"]}
    assert "writer" in holders["anna"]
    assert "writer" in holders["bert"]
    for who in (anna, bert):
        cast.accepted(who)
        cast.fresh(who).must("push", cast.source, "--dataset", DATASET, "--allow-empty", store=cast.store)


def test_a_writer_that_another_owner_added_is_known_to_the_next_push(cast: Cast) -> None:
    """The first owner's machine remembers the trust root from before."""
    anna = cast.person("anna")
    cast.olga.grant(DATASET, cast.will, "owner")
    cast.push(cast.olga)
    cast.will.grant(DATASET, anna, "writer")
    tree = cast.place()
    tree.mkdir()
    (tree / "new").write_bytes(b"of anna")
    assert anna.must("push", tree, "--dataset", DATASET, "--source-change")["seq"] == 4
    assert cast.push(cast.olga)["seq"] == 5


def test_an_owner_who_loses_every_race_says_so(cast: Cast) -> None:
    cast.olga.grant(DATASET, cast.will, "owner")
    create, inside = amend._create, [False]

    def race(history: History, *rest: object) -> None:
        if not inside[0]:
            inside[0] = True
            cast.will.must("key", "rotate", DATASET)
            inside[0] = False
        create(history, *rest)  # type: ignore[arg-type]

    with mock.patch.object(amend, "_create", race):
        cast.olga.refused(5, "key", "rotate", DATASET, words="run the same line again")
    cast.accepted()


def test_a_grant_that_dies_between_keyset_and_trust_root_goes_on(cast: Cast) -> None:
    anna = cast.person("anna")
    create = amend._create

    def dies(history: History, kind: str, *rest: object) -> None:
        if kind == "trust":
            raise OSError("the cable")
        create(history, kind, *rest)  # type: ignore[arg-type]

    with mock.patch.object(amend, "_create", dies):
        assert cast.olga.run("key", "grant", DATASET, anna.public(), "--role", "writer", "--name", "anna").code != 0
    cast.accepted()
    cast.olga.grant(DATASET, anna, "writer")
    cast.fresh(anna).must("push", cast.source, "--dataset", DATASET, "--allow-empty", store=cast.store)
    holders = [item["name"] for item in cast.olga.must("key", "list", DATASET)["holders"]]
    assert holders.count("anna") == 1


def test_a_revocation_that_dies_between_keyset_and_trust_root_goes_on(cast: Cast) -> None:
    create = amend._create

    def dies(history: History, kind: str, *rest: object) -> None:
        if kind == "trust":
            raise OSError("the cable")
        create(history, kind, *rest)  # type: ignore[arg-type]

    with mock.patch.object(amend, "_create", dies):
        assert cast.olga.run("key", "revoke", DATASET, "will").code != 0
    cast.refused("no slot", who=cast.will, code=12)
    cast.accepted()
    cast.olga.must("key", "revoke", DATASET, "will")
    assert "will" not in {item["name"] for item in cast.olga.must("key", "list", DATASET)["holders"]}
    cast.accepted()


def test_an_owner_whose_time_ends_does_not_count_for_the_threshold(cast: Cast) -> None:
    cast.olga.grant(DATASET, cast.will, "owner", "--until", "30d")
    before = names(cast.store)
    cast.olga.refused(2, "key", "owners", DATASET, "--threshold", "2", words="whose time does not end")
    assert names(cast.store) == before


def test_the_proposal_holds_no_secret(three: Cast) -> None:
    path = three.place()
    propose(three.olga, path, "rotate", DATASET)
    assert set(json.loads(path.read_text())) == {"format", "dataset", "keyset"}
    assert newest(three.store, "keyset")
