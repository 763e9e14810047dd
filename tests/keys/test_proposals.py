"""What a proposal does is shown whole before it is signed; one that lacks a part or does what none may is refused."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace as changed

from datasync.format.keyset import Keyset
from datasync.format.trust import OWNER, Principal, TrustRoot
from datasync.repository import amend
from datasync.repository.amend import propose, write_proposal
from datasync.repository.holders import Grantee, make_slot
from datasync.repository.proposed import describe
from datasync.repository.snapshots import History
from datasync.repository.succession import Change
from tests.keys.forge import DATASET, Cast, keyset_in, opened, signer, told, trust_in
from tests.support.copies import names

DAY_MS = 24 * 3600 * 1000
NOBODY = bytes(range(32))


@pytest.fixture
def two(cast: Cast) -> Cast:
    """Olga and Rita own the dataset and sign together; Will writes."""
    cast.olga.grant(DATASET, cast.rita, "owner")
    path = cast.place()
    cast.olga.must("key", "owners", DATASET, "--threshold", "2", "--output", path)
    cast.rita.must("key", "cosign", DATASET, path)
    return cast


def proposed(cast: Cast, *line: str | Path) -> Path:
    path = cast.place()
    assert cast.olga.must("key", *line, "--output", path)["missing"] == 1
    return path


def without(path: Path, part: str) -> Path:
    fields = json.loads(path.read_text())
    del fields[part]
    path.write_text(json.dumps(fields))
    return path


def refuses(cast: Cast, path: Path, words: str) -> None:
    before = names(cast.store)
    told(cast.rita.run("key", "cosign", DATASET, path), words)
    assert names(cast.store) == before


def test_a_revocation_without_its_trust_root_is_refused(two: Cast) -> None:
    path = without(proposed(two, "revoke", DATASET, "will"), "trust")
    refuses(two, path, "takes the slot of will away and leaves its role")


def test_a_revocation_without_its_keyset_is_refused(two: Cast) -> None:
    anna = two.person("anna")
    two.rita.must("key", "cosign", DATASET, proposed(two, "grant", DATASET, anna.public(), "--role", "owner"))
    path = without(proposed(two, "revoke", DATASET, signer(anna).public.hex()), "keyset")
    refuses(two, path, "lacks the keyset")


def test_a_reader_without_a_role_is_revoked_by_a_keyset_alone(two: Cast) -> None:
    anna = two.person("anna")
    two.rita.must("key", "cosign", DATASET, proposed(two, "grant", DATASET, anna.public(), "--name", "anna"))
    path = proposed(two, "revoke", DATASET, "anna")
    assert "trust" not in json.loads(path.read_text())
    two.rita.must("key", "cosign", DATASET, path)
    two.refused("no slot", who=anna, code=12)


def test_a_cosigned_change_that_died_between_keyset_and_trust_root_goes_on(two: Cast) -> None:
    path = proposed(two, "revoke", DATASET, "will")
    create = amend._create

    def dies(history: History, kind: str, *rest: object) -> None:
        if kind == "trust":
            raise OSError("the cable")
        create(history, kind, *rest)  # type: ignore[arg-type]

    with mock.patch.object(amend, "_create", dies):
        assert two.rita.run("key", "cosign", DATASET, path).code != 0
    assert all(item.removed is None for item in trust_in(two.store).principals)
    before = len(names(two.store, "/keyset/"))
    ran = two.rita.run("key", "cosign", DATASET, path)
    assert (ran.code, "removes the signer will" in ran.err) == (0, True), ran
    assert len(names(two.store, "/keyset/")) == before
    assert [item.removed is not None for item in trust_in(two.store).principals].count(True) == 1
    two.accepted()
    two.refused("no slot", who=two.will, code=12)


def test_a_full_rotation_of_two_owners_goes_on_once_both_have_signed(two: Cast) -> None:
    path = proposed(two, "rotate", DATASET, "--full")
    two.rita.must("key", "cosign", DATASET, path)
    done = two.olga.must("key", "rotate", DATASET, "--full")
    assert (done["epoch"], done["resealed"] > 0, done["condemned"] > 0) == (2, True, True)
    assert proposed(two, "rotate", DATASET, "--full").is_file()  # all is done: this is another one
    two.accepted()
    two.olga.must("verify", DATASET, "--read-data")


# what owners read


def lines(cast: Cast, keyset: Keyset | None = None, trust: TrustRoot | None = None) -> str:
    with opened(cast.rita) as dataset:
        return "\n".join(describe(dataset, Change(keyset, trust)))


def test_a_slot_of_a_passphrase_is_shown(two: Cast) -> None:
    with opened(two.olga) as dataset:
        slot = make_slot(Grantee("x", passphrase="open sesame"), dataset.keyring, 0, signer(two.olga).public)
    old = keyset_in(two.store)
    more = changed(old, slots=tuple(sorted((*old.slots, slot), key=lambda item: item.id)))
    assert lines(two, more) == "gives slots to 1 passphrases: reads everything until for ever"
    assert lines(two, old) == "nothing changes"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"until": 1}, "reads everything until 1970-01-01 00:00 UTC"),
        ({"scope": 2}, "reads names and history until for"),
    ],
)
def test_other_terms_of_a_slot_are_shown(two: Cast, change: dict[str, int], words: str) -> None:
    old = keyset_in(two.store)
    slots = tuple(changed(slot, **change) if n == 0 else slot for n, slot in enumerate(old.slots))
    shown = lines(two, changed(old, slots=slots))
    assert shown.startswith("changes the slot of ")
    assert words in shown


def test_a_new_holder_is_named_with_what_it_may_read(two: Cast) -> None:
    anna = two.person("anna")
    path = proposed(
        two, "grant", DATASET, anna.public(), "--name", "anna", "--role", "auditor", "--until", "2099-01-01"
    )
    ran = two.rita.run("key", "cosign", DATASET, path)
    assert ran.code == 0, ran
    assert "gives a slot to anna, the key " in ran.err
    assert "(hpke-mlkem768-x25519): reads names and history until 2099-01-01" in ran.err


# what no change may do


def drops(root: TrustRoot) -> TrustRoot:
    return changed(root, principals=tuple(item for item in root.principals if item.removed is None))


def mark(root: TrustRoot, removed: tuple[int, bytes] | None) -> TrustRoot:
    gone = next(item for item in root.principals if item.removed is not None)
    others = tuple(item for item in root.principals if item is not gone)
    return changed(root, principals=tuple(sorted((*others, changed(gone, removed=removed)), key=lambda i: i.signer)))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (drops, "drops the signer"),
        (lambda root: mark(root, None), "anew"),
        (lambda root: mark(root, (1, NOBODY)), "back"),
    ],
)
def test_a_trust_root_that_forgets_is_refused(two: Cast, edit: Callable[[TrustRoot], TrustRoot], words: str) -> None:
    two.rita.must("key", "cosign", DATASET, proposed(two, "revoke", DATASET, "will"))
    with opened(two.olga) as dataset:
        root = dataset.trusted.root
        following = changed(edit(root), version=root.version + 1, dataset=dataset.id, previous=dataset.trusted.digest)
        path = two.place()
        path.write_text(write_proposal(propose(dataset, Change(None, following), signer(two.olga))))
    refuses(two, path, words)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda k: changed(k, name=bytes(len(k.name))), "changes the dataset's name"),
        (lambda k: changed(k, public=(changed(k.public[0], data=bytes(1216)),)), "replaces the keys"),
    ],
)
def test_a_keyset_that_rewrites_what_is_there_is_refused(
    two: Cast, edit: Callable[[Keyset], Keyset], words: str
) -> None:
    with opened(two.olga) as dataset:
        keyset = dataset.keyset.keyset
        following = changed(edit(keyset), version=keyset.version + 1, previous=dataset.keyset.digest)
        path = two.place()
        path.write_text(write_proposal(propose(dataset, Change(following, None), signer(two.olga))))
    refuses(two, path, words)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"format": "datasync-proposal", "dataset": 3}',
        '{"format": "datasync-proposal", "dataset": "00", "keyset": "AAAA"}',
        json.dumps({"format": "datasync-proposal", "dataset": "00", "trust": base64.b64encode(b"x" * 40).decode()}),
    ],
)
def test_what_is_no_proposal_is_refused_in_one_line(two: Cast, text: str) -> None:
    path = two.place()
    path.write_text(text)
    before = names(two.store)
    told(two.rita.run("key", "cosign", DATASET, path))
    assert names(two.store) == before


# terms


def principal(cast: Cast, signer_: bytes) -> Principal:
    return next(item for item in trust_in(cast.store).principals if item.signer == signer_)


def test_a_lesser_role_with_an_end_does_not_end_the_others(cast: Cast) -> None:
    before = names(cast.store)
    cast.olga.refused(
        2, "key", "grant", DATASET, cast.will.public(), "--role", "tagger", "--until", "1d", words="end at one time"
    )
    assert names(cast.store) == before
    cast.olga.must("key", "grant", DATASET, cast.will.public(), "--role", "tagger", "--name", "will")
    assert principal(cast, signer(cast.will).public).until == 0


def test_the_owners_that_a_threshold_needs_get_no_end(two: Cast) -> None:
    before = names(two.store)
    two.olga.refused(
        2,
        "key",
        "grant",
        DATASET,
        two.rita.public(),
        "--role",
        "owner",
        "--until",
        "30d",
        words="whose time does not end",
    )
    assert names(two.store) == before
    assert principal(two, signer(two.rita).public).roles & OWNER


def test_a_founder_whose_revocation_died_half_way_is_named_by_its_signer(cast: Cast) -> None:
    """Founders have no name but their slot's, and that is gone already."""
    kit = cast.place()
    cast.olga.must("key", "export-recovery", "--output", kit)
    (cast.source / "more").write_bytes(b"more")
    cast.olga.must("push", cast.source, "--dataset", "other")
    create = amend._create

    def dies(history: History, kind: str, *rest: object) -> None:
        if kind == "trust":
            raise OSError("the cable")
        create(history, kind, *rest)  # type: ignore[arg-type]

    with mock.patch.object(amend, "_create", dies):
        assert cast.olga.run("key", "revoke", "other", "recovery").code != 0
    ran = cast.olga.run("key", "revoke", "other", "recovery")
    assert (ran.code, "signers without a name have: " in ran.err) == (4, True), ran
    short = ran.err.partition("have: ")[2].partition("…")[0]
    assert f"signer {short}: owner, writer" in cast.olga.run("key", "list", "other").out
    cast.olga.refused(4, "key", "revoke", "other", "", words="nobody called")
    cast.olga.must("key", "revoke", "other", short)
    holders = cast.olga.must("key", "list", "other")["holders"]
    assert [item["roles"] for item in holders] == [["reader", "owner", "writer"]]
