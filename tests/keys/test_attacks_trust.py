"""Trust roots that somebody edited, signed or held back, and states that were destroyed and put back."""

import json
import time
from collections.abc import Callable

import msgspec
import pytest

from datasync.crypto.hashing import hash_bytes
from datasync.format.trust import OWNER, WRITER, Principal, TrustRoot, read_trust, write_trust
from tests.keys.forge import (
    DATASET,
    Cast,
    edit,
    keyset_in,
    name_of,
    newest,
    put_keyset,
    put_trust,
    signer,
    told,
    trust_in,
)
from tests.support.copies import LIMIT, copy, names, replace
from tests.support.people import Person

Change = Callable[[TrustRoot, Cast], TrustRoot]


def dataset_of(cast: Cast) -> bytes:
    return bytes.fromhex(cast.dataset)


def following(cast: Cast, extra: tuple[Principal, ...] = ()) -> TrustRoot:
    """Return what would be the next trust root."""
    root = trust_in(cast.store)
    digest = hash_bytes(cast.store.get(newest(cast.store, "trust"), limit=LIMIT))
    people = tuple(sorted([*root.principals, *extra], key=lambda item: item.signer))
    return msgspec.structs.replace(
        root, version=root.version + 1, dataset=dataset_of(cast), previous=digest, principals=people
    )


def with_reader_as_writer(cast: Cast) -> TrustRoot:
    return following(cast, (Principal(signer(cast.rita).public, OWNER | WRITER, b"", 1, 0, None),))


def test_what_the_owner_signs_is_believed(cast: Cast) -> None:
    put_trust(cast.store, dataset_of(cast), with_reader_as_writer(cast), signer(cast.olga))
    cast.accepted()
    cast.push(cast.rita)


def more_roles(root: TrustRoot, cast: Cast) -> TrustRoot:
    people = tuple(msgspec.structs.replace(item, roles=OWNER | WRITER) for item in root.principals)
    return msgspec.structs.replace(root, principals=people)


def never_ends(root: TrustRoot, cast: Cast) -> TrustRoot:
    return msgspec.structs.replace(root, expires=root.expires + 1)


def other_threshold(root: TrustRoot, cast: Cast) -> TrustRoot:
    return msgspec.structs.replace(root, threshold=2)


def other_owner(root: TrustRoot, cast: Cast) -> TrustRoot:
    people = (Principal(signer(cast.rita).public, OWNER | WRITER, b"", 1, 0, None),)
    return msgspec.structs.replace(root, principals=people)


@pytest.mark.parametrize("change", [more_roles, never_ends, other_threshold, other_owner])
def test_a_trust_root_that_the_provider_edits(cast: Cast, change: Change) -> None:
    edit(cast.store, "trust", lambda body: write_trust(change(read_trust(body, "trust"), cast)))
    cast.refused("trust root 2", "does not hold")


def test_the_first_trust_root_is_replaced_by_one_that_holds(cast: Cast) -> None:
    dataset = dataset_of(cast)
    first = trust_in(cast.store, name_of(dataset, "trust", 1))
    people = (Principal(signer(cast.rita).public, OWNER | WRITER, b"", 1, 0, None),)
    put_trust(cast.store, dataset, msgspec.structs.replace(first, principals=people), signer(cast.rita))
    cast.refused("trust root 1", "not to the dataset's id")


@pytest.mark.parametrize("who", ["rita", "will"])
def test_the_next_trust_root_is_signed_by_who_does_not_own(cast: Cast, who: str) -> None:
    put_trust(cast.store, dataset_of(cast), with_reader_as_writer(cast), signer(getattr(cast, who)))
    cast.refused("trust root 3", "1 owners, found 0")
    told(cast.pull(cast.olga.machine), "trust root 3", "1 owners, found 0")


def test_the_next_trust_root_is_signed_by_an_owner_whom_it_makes(cast: Cast) -> None:
    """A reader that lists itself as owner and signs that is none."""
    put_trust(cast.store, dataset_of(cast), with_reader_as_writer(cast), signer(cast.rita), signer(cast.will))
    cast.refused("trust root 3", "1 owners, found 0")


def test_the_next_trust_root_is_signed_by_a_removed_owner(cast: Cast) -> None:
    cast.olga.grant(DATASET, cast.will, "owner")
    cast.olga.must("key", "revoke", DATASET, "will")
    put_trust(cast.store, dataset_of(cast), with_reader_as_writer(cast), signer(cast.will))
    cast.refused("trust root 5", "1 owners, found 0")


def test_the_next_trust_root_is_signed_by_an_owner_whose_time_has_ended(
    cast: Cast, shifted: Callable[[float], None]
) -> None:
    cast.olga.grant(DATASET, cast.will, "owner", "--until", "1d")
    shifted(25 * 3600)
    put_trust(cast.store, dataset_of(cast), with_reader_as_writer_at(cast, time.time() + 25 * 3600), signer(cast.will))
    cast.refused("trust root 4", "1 owners, found 0")


def with_reader_as_writer_at(cast: Cast, when: float) -> TrustRoot:
    return msgspec.structs.replace(with_reader_as_writer(cast), created=int(when * 1000))


def test_the_next_trust_root_follows_another(cast: Cast) -> None:
    wrong = msgspec.structs.replace(with_reader_as_writer(cast), previous=bytes(31) + b"\1")
    put_trust(cast.store, dataset_of(cast), wrong, signer(cast.olga))
    cast.refused("trust root 3", "does not follow version 2")


def test_a_trust_root_of_another_dataset(cast: Cast) -> None:
    cast.olga.must("push", cast.source, "--dataset", "other")
    (other,) = {item.split("/")[1] for item in names(cast.store, "d/")} - {cast.dataset}
    wrong = msgspec.structs.replace(with_reader_as_writer_of(cast), dataset=bytes.fromhex(other))
    put_trust(cast.store, bytes.fromhex(cast.dataset), wrong, signer(cast.olga))
    cast.refused("trust root 3", "does not follow version 2")


def with_reader_as_writer_of(cast: Cast) -> TrustRoot:
    name = names(cast.store, f"{cast.dataset}/trust/")[0]
    root = trust_in(cast.store, name)
    digest = hash_bytes(cast.store.get(name, limit=LIMIT))
    return msgspec.structs.replace(root, version=root.version + 1, previous=digest)


def test_a_version_is_left_out_or_repeated(cast: Cast) -> None:
    dataset = dataset_of(cast)
    skipped = msgspec.structs.replace(with_reader_as_writer(cast), version=4)
    whole = copy(cast.store)
    put_trust(cast.store, dataset, skipped, signer(cast.olga))
    told(cast.pull(cast.fresh(cast.rita)), "number 3 does not exist", "it was deleted")
    name = name_of(dataset, "trust", 3)
    replace(whole, name, whole.get(name_of(dataset, "trust", 2), limit=LIMIT))
    told(cast.pull(cast.fresh(cast.rita), store=whole), "trust root 3", "it says version 2")


def test_an_older_trust_root_is_offered_to_who_has_seen_a_newer(cast: Cast) -> None:
    before = copy(cast.store)
    cast.olga.must("key", "owners", DATASET, "--expires", "2999-01-01")
    assert cast.pull(cast.rita.machine).code == 0
    told(cast.pull(cast.rita.machine, store=before), "trust root", "this machine has seen number 3", "rolled back")


def test_an_expired_trust_root(cast: Cast, shifted: Callable[[float], None]) -> None:
    cast.olga.must("key", "owners", DATASET, "--expires", "1d")
    cast.accepted()
    cast.olga.must("key", "list", DATASET)
    shifted(2 * 24 * 3600)
    cast.refused("its trust root ended", "datasync key owners")
    told(cast.pull(cast.rita.machine), "its trust root ended")
    (cast.source / "more").write_bytes(b"more")
    told(cast.will.run("push", cast.source, "--dataset", DATASET), "its trust root ended")
    cast.olga.must("key", "owners", DATASET, "--expires", "9999d")
    cast.accepted()
    cast.will.must("push", cast.source, "--dataset", DATASET)


def test_an_expired_trust_root_stops_a_push_only_writer(cast: Cast, shifted: Callable[[float], None]) -> None:
    lab = cast.person("lab")
    cast.olga.grant(DATASET, lab, "push-only")
    cast.olga.must("key", "owners", DATASET, "--expires", "1d")
    lab.must("push", cast.source, "--dataset", DATASET)
    shifted(2 * 24 * 3600)
    (cast.source / "more").write_bytes(b"more")
    told(lab.run("push", cast.source, "--dataset", DATASET), "its trust root ended")


def test_a_dataset_that_nobody_vouches_for_is_planted_under_the_same_name(cast: Cast) -> None:
    mallory = cast.person("mallory")
    elsewhere = copy(cast.store, lambda name: not name.startswith("d/"))
    mallory.machine.must("push", cast.source, "--dataset", DATASET, store=elsewhere)
    mallory.machine.must("key", "grant", DATASET, cast.rita.public(), store=elsewhere)
    for name in names(elsewhere, "d/"):
        replace(cast.store, name, elsewhere.get(name, limit=LIMIT))
    cast.accepted()  # the identity vouches for one of the two, and that one is read
    assert cast.pull(cast.rita.machine).code == 0
    stranger = cast.fresh(cast.rita)
    stranger.identity.write_text(stranger.identity.read_text().replace("trust = [", "# trust = ["))
    told(cast.pull(stranger), "nothing on this machine vouches for its trust root")
    assert cast.olga.must("status")["closed"] == 1


# destroyed and put back


def test_a_shredded_dataset_is_put_back_for_the_owner_and_for_who_saw_it_go(cast: Cast) -> None:
    before = copy(cast.store)
    assert cast.pull(cast.rita.machine).code == 0
    cast.olga.must("key", "shred", DATASET, "--yes", "--output", cast.place())
    told(cast.pull(cast.rita.machine), "it was shredded", code=4)
    last = newest(cast.store, "keyset")
    for name in names(before, "/keyset/"):
        replace(cast.store, name, before.get(name, limit=LIMIT))
    told(cast.pull(cast.rita.machine), "it was shredded", code=4)
    cast.store.delete(last)
    told(cast.pull(cast.rita.machine), "keyset", "this machine has seen number 4", "rolled back")
    told(cast.pull(cast.olga.machine), "keyset", "this machine has seen number 4", "rolled back")
    told(cast.olga.run("status"), "keyset", "this machine has seen number 4")


def test_the_last_keyset_of_a_shredded_dataset_is_forged(cast: Cast) -> None:
    keyset = keyset_in(cast.store)
    data = cast.store.get(newest(cast.store, "keyset"), limit=LIMIT)
    last = msgspec.structs.replace(
        keyset, version=4, previous=hash_bytes(data), name=b"", chain=(), public=(), slots=()
    )
    put_keyset(cast.store, last, signer(cast.rita))
    cast.refused("keyset 4", "1 owners, found 0")
    put_keyset(cast.store, msgspec.structs.replace(last, slots=keyset.slots), signer(cast.olga))
    cast.refused("keyset 4", "without a name")


@pytest.mark.parametrize(
    "field", ["dataset", "dataset_id", "time", "reason", "not_destroyed", "destroyed", "signer", "signature"]
)
def test_an_erasure_certificate_is_edited(cast: Cast, field: str) -> None:
    path = cast.place()
    cast.olga.must("key", "shred", DATASET, "--yes", "--reason", "contract", "--output", path)
    fields = json.loads(path.read_text())
    assert cast.rita.must("key", "certificate", path)["dataset"] == DATASET
    other = {"signer": cast.rita.must("key", "show")["signer"], "signature": "00" * 64}
    path.write_text(json.dumps(fields | {field: other.get(field, "another")}))
    cast.rita.refused(7, "key", "certificate", path, words="does not hold")
    path.write_text(json.dumps({key: value for key, value in fields.items() if key != field}))
    assert cast.rita.run("key", "certificate", path).code == 7


def test_no_key_opens_a_shredded_dataset_with_the_packs_still_there(cast: Cast) -> None:
    kit = cast.place()
    cast.olga.must("key", "export-recovery", "--output", kit)
    cast.olga.must("key", "shred", DATASET, "--yes", "--output", cast.place())
    assert names(cast.store, "/packs/")
    assert len(names(cast.store, "/keyset/")) == 1
    heir = Person("heir", cast.olga.machine.sibling(cast.place()), cast.store)
    heir.machine.identity.unlink()
    heir.must("key", "recover", "--kit", kit)
    for who in (heir, cast.will, cast.rita, cast.olga):
        assert cast.pull(who.machine).code in (4, 12)
