"""Keysets and slots that somebody changed, swapped, copied or lowered: each refused by name.

What a provider changes breaks a signature. The second half signs each change with the owner's key: the checks behind
the signature hold without it.
"""

from collections.abc import Callable
from dataclasses import replace as changed

import msgspec
import pytest

from datasync.crypto import aead
from datasync.crypto.identity import Identity
from datasync.crypto.kdf import Argon2Cost, derive
from datasync.crypto.slots import SCOPE_METADATA
from datasync.format import signed as plain
from datasync.format.encoding import encode
from datasync.format.keyset import (
    Argon2Params,
    Keyset,
    SealedParams,
    Slot,
    read_argon2_params,
    read_keyset,
    read_sealed_params,
    write_keyset,
)
from datasync.format.signed import Signature, write_plain, write_signed
from tests.keys.forge import (
    DATASET,
    Cast,
    edit,
    keyset_in,
    newest,
    only_slot,
    opened,
    put_keyset,
    sign_plain,
    signer,
    told,
    with_slot,
)
from tests.support.copies import copy, names, replace
from tests.support.machine import Machine
from tests.support.people import Person

PASSPHRASE = "a passphrase of the dataset"
Change = Callable[[Keyset, Cast], Keyset]


def swap_recipient(keyset: Keyset, cast: Cast) -> Keyset:
    """Put the fingerprint of somebody else's key into the reader's slot."""
    slot = only_slot(keyset, cast.rita)
    other = msgspec.structs.replace(slot, fingerprint=Identity.generate().recipient.fingerprint)
    return msgspec.structs.replace(keyset, slots=with_slot(keyset, other))


def more_epochs(keyset: Keyset, cast: Cast) -> Keyset:
    return msgspec.structs.replace(keyset, epoch=keyset.epoch + 1)


def later(keyset: Keyset, cast: Cast) -> Keyset:
    slot = msgspec.structs.replace(only_slot(keyset, cast.rita), until=2**62)
    return msgspec.structs.replace(keyset, slots=with_slot(keyset, slot))


def no_slots(keyset: Keyset, cast: Cast) -> Keyset:
    return msgspec.structs.replace(keyset, slots=())


def other_public(keyset: Keyset, cast: Cast) -> Keyset:
    """Put own public keys where push-only writers seal to."""
    theirs = msgspec.structs.replace(keyset.public[-1], data=Identity.generate().recipient.public)
    return msgspec.structs.replace(keyset, public=(*keyset.public[:-1], theirs))


def suite(number: int) -> Change:
    return lambda keyset, cast: msgspec.structs.replace(keyset, suite=number)


def scope(keyset: Keyset, cast: Cast) -> Keyset:
    slot = msgspec.structs.replace(only_slot(keyset, cast.rita), scope=SCOPE_METADATA)
    return msgspec.structs.replace(keyset, slots=with_slot(keyset, slot))


def kind(keyset: Keyset, cast: Cast) -> Keyset:
    slot = msgspec.structs.replace(only_slot(keyset, cast.rita), kind=2)
    return msgspec.structs.replace(keyset, slots=with_slot(keyset, slot))


def stripped(keyset: Keyset, cast: Cast) -> Keyset:
    """Take the commitment out of the slot's box."""
    slot = only_slot(keyset, cast.rita)
    bare = msgspec.structs.replace(slot, wrapped=slot.wrapped[:32] + slot.wrapped[64:])
    return msgspec.structs.replace(keyset, slots=with_slot(keyset, bare))


def other_commitment(keyset: Keyset, cast: Cast) -> Keyset:
    slot = only_slot(keyset, cast.rita)
    bare = msgspec.structs.replace(slot, wrapped=slot.wrapped[:32] + bytes(32) + slot.wrapped[64:])
    return msgspec.structs.replace(keyset, slots=with_slot(keyset, bare))


def other_name(keyset: Keyset, cast: Cast) -> Keyset:
    return msgspec.structs.replace(keyset, name=keyset.name[:-1] + bytes((keyset.name[-1] ^ 1,)))


CHANGES = [
    swap_recipient, more_epochs, later, no_slots, other_public, suite(0), suite(2), scope, kind, stripped,
    other_commitment, other_name,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_keyset_that_the_provider_edits(cast: Cast, change: Change) -> None:
    name = edit(cast.store, "keyset", lambda body: write_keyset(change(msgspec_keyset(body), cast)))
    cast.refused("keyset 3", "does not hold")
    assert newest(cast.store, "keyset") == name
    told(cast.pull(cast.fresh(cast.olga)), "keyset 3", "does not hold")


def msgspec_keyset(body: bytes) -> Keyset:
    return read_keyset(body, "keyset")


# who signs


def test_a_keyset_that_nobody_signed(cast: Cast) -> None:
    keyset = keyset_in(cast.store)
    put_keyset(cast.store, keyset, Identity.generate().signing_key)
    cast.refused("keyset 3", "1 owners, found 0")


@pytest.mark.parametrize("who", ["rita", "will"])
def test_a_keyset_that_a_reader_or_writer_signed(cast: Cast, who: str) -> None:
    put_keyset(cast.store, msgspec.structs.replace(keyset_in(cast.store), version=4), signer(getattr(cast, who)))
    cast.refused("keyset 4", "1 owners, found 0")
    told(cast.pull(cast.olga.machine), "keyset 4", "1 owners, found 0")


def test_a_keyset_that_a_removed_owner_signed(cast: Cast) -> None:
    cast.olga.grant(DATASET, cast.will, "owner")
    cast.will.must("key", "list", DATASET)
    cast.olga.must("key", "revoke", DATASET, "will")
    keyset = keyset_in(cast.store)
    put_keyset(cast.store, msgspec.structs.replace(keyset, version=keyset.version + 1), signer(cast.will))
    cast.refused(f"keyset {keyset.version + 1}", "1 owners, found 0")


def test_a_signature_for_something_else_does_not_sign_a_keyset(cast: Cast) -> None:
    body = write_keyset(msgspec.structs.replace(keyset_in(cast.store), version=3))
    key = signer(cast.olga)
    signed = write_signed(body, [Signature(key.public, key.sign("trust", body))])
    replace(cast.store, newest(cast.store, "keyset"), write_plain(plain.KEYSET, signed))
    cast.refused("keyset 3", "does not hold")


def test_a_trust_root_is_offered_as_a_keyset(cast: Cast) -> None:
    data = cast.store.get(newest(cast.store, "trust"), limit=1 << 26)
    replace(cast.store, newest(cast.store, "keyset"), data)
    cast.refused("keyset 3", "expected a keyset object")


def test_keysets_of_two_datasets_are_swapped(cast: Cast) -> None:
    cast.olga.must("push", cast.source, "--dataset", "other")
    cast.olga.grant("other", cast.rita, "reader")
    found = [newest_of(cast, dataset) for dataset in sorted({item.split("/")[1] for item in names(cast.store, "d/")})]
    one, other = (cast.store.get(item, limit=1 << 26) for item in found)
    replace(cast.store, found[0], other)
    replace(cast.store, found[1], one)
    for dataset in (DATASET, "other"):
        cast.refused("keyset", "of dataset", reference=dataset)


def newest_of(cast: Cast, dataset: str) -> str:
    return names(cast.store, f"{dataset}/keyset/")[0]


def test_a_keyset_names_a_trust_root_that_is_not_there(cast: Cast) -> None:
    keyset = msgspec.structs.replace(keyset_in(cast.store), trust=(9, bytes(32)))
    put_keyset(cast.store, keyset, signer(cast.olga))
    cast.refused("keyset 3", "names trust root 9")


# what the owner's signature would not save


def signed_by_the_owner(cast: Cast, change: Change) -> str:
    return put_keyset(cast.store, change(keyset_in(cast.store), cast), signer(cast.olga))


@pytest.mark.parametrize(
    ("change", "words", "code"),
    [
        (suite(0), ("keyset 3", "suite 1, found 0"), 7),
        (suite(2), ("keyset 3", "suite 1, found 2"), 7),
        (more_epochs, ("keyset 3", "epochs"), 7),
        (scope, ("keyset 3", "slot", "copied from elsewhere"), 7),
        (stripped, ("slot", "with its commitment", "found 80"), 7),
        (other_commitment, ("slot", "commitment does not match"), 7),
        (other_public, ("keyset 3", "public keys"), 7),
        (other_name, ("keyset 3", "authentication failed"), 7),
        (swap_recipient, ("no slot",), 12),
        (no_slots, ("no slot",), 12),
    ],
)
def test_a_change_that_the_owner_signed(cast: Cast, change: Change, words: tuple[str, ...], code: int) -> None:
    signed_by_the_owner(cast, change)
    cast.refused(*words, code=code)


def test_a_slot_is_copied_between_datasets(cast: Cast) -> None:
    cast.olga.must("push", cast.source, "--dataset", "other")
    cast.olga.grant("other", cast.rita, "reader")
    with opened(cast.rita) as dataset:
        mine = dataset.id.hex()
    (other,) = {item.split("/")[1] for item in names(cast.store, "d/")} - {mine}
    stolen = only_slot(keyset_in(cast.store, newest_of(cast, other)), cast.rita)
    target = keyset_in(cast.store, newest_of(cast, mine))
    kept = [slot for slot in target.slots if slot.id != only_slot(target, cast.rita).id]
    put_keyset(
        cast.store,
        msgspec.structs.replace(target, slots=tuple(sorted([*kept, stolen], key=lambda slot: slot.id))),
        signer(cast.olga),
    )
    cast.refused("keyset 3", stolen.id.hex(), "copied from elsewhere")


def test_a_slot_is_copied_from_an_older_epoch(cast: Cast) -> None:
    old = only_slot(keyset_in(cast.store), cast.rita)
    cast.olga.must("key", "rotate", DATASET)
    keyset = keyset_in(cast.store)
    mine = only_slot(keyset, cast.rita)
    copied = msgspec.structs.replace(mine, params=old.params, wrapped=old.wrapped)
    put_keyset(cast.store, msgspec.structs.replace(keyset, slots=with_slot(keyset, copied)), signer(cast.olga))
    cast.refused("keyset 4", mine.id.hex())
    renamed = msgspec.structs.replace(old, epoch=2)
    slots = tuple(sorted([*(s for s in keyset.slots if s.id != mine.id), renamed], key=lambda slot: slot.id))
    put_keyset(cast.store, msgspec.structs.replace(keyset, slots=slots), signer(cast.olga))
    cast.refused("keyset 4", old.id.hex())


def test_an_old_epochs_slot_alone_opens_nothing_new(cast: Cast) -> None:
    old = only_slot(keyset_in(cast.store), cast.rita)
    cast.olga.must("key", "revoke", DATASET, "rita")
    keyset = keyset_in(cast.store)
    slots = tuple(sorted([*keyset.slots, old], key=lambda slot: slot.id))
    put_keyset(cast.store, msgspec.structs.replace(keyset, slots=slots), signer(cast.olga))
    cast.refused("no slot", code=12)


def test_the_sealed_key_of_another_slot(cast: Cast) -> None:
    keyset = keyset_in(cast.store)
    theirs, mine = read_sealed_params(only_slot(keyset, cast.will), "x"), only_slot(keyset, cast.rita)
    other = msgspec.structs.replace(mine, params=encode(SealedParams(theirs.sealed)))
    put_keyset(cast.store, msgspec.structs.replace(keyset, slots=with_slot(keyset, other)), signer(cast.olga))
    cast.refused("keyset 3", mine.id.hex())


def test_the_chain_leads_to_other_keys(cast: Cast) -> None:
    cast.olga.must("key", "rotate", DATASET)
    with opened(cast.olga) as dataset:
        ring = dataset.keyring
    root = ring.epochs[2].root
    assert root is not None
    box = aead.seal_box(
        derive(root, b"datasync/v1/chain"), "chain", ring.dataset + (1).to_bytes(4, "little"), bytes(32)
    )
    keyset = keyset_in(cast.store)
    link = msgspec.structs.replace(keyset.chain[0], root=box)
    put_keyset(cast.store, msgspec.structs.replace(keyset, chain=(link,)), signer(cast.olga))
    cast.refused("keyset 4", "epoch 1")


def test_a_link_of_the_chain_is_copied_from_another_epoch(cast: Cast) -> None:
    for _ in range(2):
        cast.olga.must("key", "rotate", DATASET)
    keyset = keyset_in(cast.store)
    first, second = keyset.chain
    swapped = (msgspec.structs.replace(second, epoch=1), msgspec.structs.replace(first, epoch=2))
    put_keyset(cast.store, msgspec.structs.replace(keyset, chain=swapped), signer(cast.olga))
    cast.refused("keyset 5", "chain", "commitment")


# passphrases


@pytest.fixture
def guesser(cast: Cast) -> Person:
    """Somebody who reads by a passphrase alone."""
    owner = Person("olga", changed(cast.olga.machine, extra={"DATASYNC_PASSPHRASE": PASSPHRASE}), cast.store)
    trust = owner.must("key", "grant", DATASET, "passphrase")["trust"]
    machine = cast.rita.machine.sibling(cast.place(), DATASYNC_PASSPHRASE=PASSPHRASE, DATASYNC_TRUST=trust)
    machine.identity.unlink()
    return Person("guesser", machine, cast.store)


def lower(cast: Cast, cost: Argon2Cost) -> Slot:
    keyset = keyset_in(cast.store)
    (slot,) = [item for item in keyset.slots if item.kind == 3]
    salt = read_argon2_params(slot, "x").salt
    low = msgspec.structs.replace(slot, params=encode(Argon2Params(salt, cost.memory, cost.passes, cost.lanes)))
    put_keyset(cast.store, msgspec.structs.replace(keyset, slots=with_slot(keyset, low)), signer(cast.olga))
    return slot


@pytest.mark.parametrize(
    "cost",
    [Argon2Cost(8, 3, 4), Argon2Cost(65_536, 1, 4), Argon2Cost(65_536, 3, 0), Argon2Cost(8_388_608, 3, 4),
     Argon2Cost(65_536, 65, 4), Argon2Cost(65_536, 3, 17)],
)  # fmt: skip
def test_argon2_costs_are_lowered_or_raised(cast: Cast, guesser: Person, cost: Argon2Cost) -> None:
    assert cast.pull(guesser.machine).code == 0
    slot = lower(cast, cost)
    told(
        cast.pull(Machine.make(cast.place(), guesser.machine.repository, guesser.machine.extra)),
        "keyset 4",
        slot.id.hex(),
        "at least 65536 KiB",
    )


def test_another_cost_within_the_limits_does_not_open(cast: Cast, guesser: Person) -> None:
    lower(cast, Argon2Cost(65_536, 4, 4))
    told(cast.pull(guesser.machine), "no slot", code=12)


# taking back


def test_an_older_keyset_is_offered_to_who_has_seen_a_newer(cast: Cast) -> None:
    before = copy(cast.store)
    cast.olga.must("key", "rotate", DATASET)
    assert cast.pull(cast.rita.machine).code == 0
    told(cast.pull(cast.rita.machine, store=before), "keyset", "this machine has seen number 4", "rolled back")
    told(cast.olga.machine.run("key", "list", DATASET, store=before), "keyset", "this machine has seen number 4")
    (cast.source / "more").write_bytes(b"more")
    told(cast.olga.machine.run("push", cast.source, "--dataset", DATASET, store=before), "this machine has seen number")


def test_another_keyset_of_a_known_number(cast: Cast) -> None:
    assert cast.pull(cast.rita.machine).code == 0
    for path in (cast.rita.machine.state).rglob("*_keyset_*"):
        path.unlink()  # its own copy would serve
    keyset = keyset_in(cast.store)
    replace(
        cast.store,
        newest(cast.store, "keyset"),
        sign_plain(
            "keyset", write_keyset(msgspec.structs.replace(keyset, created=keyset.created + 1)), signer(cast.olga)
        ),
    )
    told(cast.pull(cast.rita.machine), "keyset 3", "history was forked")


def test_a_revoked_reader_gets_the_old_keyset_from_the_provider_and_no_new_data(cast: Cast) -> None:
    before = copy(cast.store)
    cast.olga.must("key", "revoke", DATASET, "rita")
    cast.push(cast.olga, "secret")
    for name in names(cast.store, "/heads/") + names(cast.store, "/snapshots/") + names(cast.store, "/packs/"):
        replace(before, name, cast.store.get(name, limit=1 << 26))
    told(cast.pull(cast.rita.machine, store=before), "epoch 2")
    told(cast.pull(cast.fresh(cast.rita), f"{DATASET}@3", before), "epoch 2")
