"""Packs and boxes: commitments stripped, ciphertexts of two keys, swapped and edited objects: each refused by name."""

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from datasync.crypto.aead import PackOpener, PackSealer, open_box
from datasync.crypto.kdf import derive
from datasync.errors import IntegrityError
from datasync.format import pack as packs
from datasync.format.pack import PackHeader
from datasync.repository.keyring import pack_info
from tests.keys.forge import DATASET, Cast, newest, opened, told
from tests.keys.two_keys import NONCE, collide
from tests.support.copies import LIMIT, names, replace

ONE, OTHER = bytes(range(32)), bytes(range(1, 33))
SALT = b"s" * 32
COMMITMENT = slice(80, 112)  # of a pack's header


# one ciphertext, two keys


def test_gcm_alone_opens_one_ciphertext_under_two_keys() -> None:
    sealed = collide(ONE, OTHER, b"header", 4)
    texts = [AESGCM(key).decrypt(NONCE, sealed, b"header") for key in (ONE, OTHER)]
    assert len(texts[0]) == 64
    assert texts[0] != texts[1]


def test_a_box_that_two_keys_would_open_is_opened_by_the_committed_one_alone() -> None:
    info = b"datasync/v1/box/slot-key\0context"
    okm = [derive(key, info, 64, salt=SALT) for key in (ONE, OTHER)]
    sealed = collide(okm[0][:32], okm[1][:32], b"", 3)
    for half in okm:
        AESGCM(half[:32]).decrypt(NONCE, sealed, None)  # without the commitment both would do
    for mine, (key, wrong) in enumerate(((ONE, OTHER), (OTHER, ONE))):
        box = SALT + okm[mine][32:] + sealed
        assert len(open_box(key, "slot-key", b"context", box)) == 48
        with pytest.raises(IntegrityError, match="sealed slot-key: the key commitment does not match"):
            open_box(wrong, "slot-key", b"context", box)


def test_a_chunk_that_two_keys_would_open_is_opened_by_the_committed_one_alone() -> None:
    dataset = b"d" * 32
    info = pack_info(packs.DATA, packs.DERIVED, 1, dataset)
    for material, wrong in ((ONE, OTHER), (OTHER, ONE)):
        commitment = PackSealer(material, SALT, info).commitment
        head = PackHeader(packs.DATA, packs.DERIVED, 1, dataset, SALT, commitment, b"").encode()
        aad = packs.aad(head, packs.WHAT_CHUNK, 0, 0, 48, b"i" * 32)
        keys = [derive(key, info, 64, salt=SALT)[:32] for key in (material, wrong)]
        sealed = collide(keys[0], keys[1], aad, 3)
        for key in keys:
            AESGCM(key).decrypt(NONCE, sealed, aad)  # without the commitment both would do
        assert len(PackOpener(material, SALT, info, commitment, "pack 1").open(0, sealed, aad)) == 48
        with pytest.raises(IntegrityError, match="pack 1: the key commitment does not match"):
            PackOpener(wrong, SALT, info, commitment, "pack 1")


# stored objects

Change = Callable[[bytearray], object]


def zero_commitment(data: bytearray) -> None:
    data[COMMITMENT] = bytes(32)


def no_commitment(data: bytearray) -> None:
    del data[COMMITMENT]


def lower_suite(data: bytearray) -> None:
    data[9] = 0


def raise_suite(data: bytearray) -> None:
    data[9] = 2


def other_version(data: bytearray) -> None:
    data[8] = 2


def other_source(data: bytearray) -> None:
    data[11] = packs.SEALED


def other_epoch(data: bytearray) -> None:
    data[12] = 2


def other_type(data: bytearray) -> None:
    data[10] = packs.TAGS


def other_dataset(data: bytearray) -> None:
    data[16] ^= 1


def other_salt(data: bytearray) -> None:
    data[48] ^= 1


def edit_table(data: bytearray) -> None:
    """Change the table of chunks: the last sealed part."""
    data[-40] ^= 1


def fewer_chunks(data: bytearray) -> None:
    length = int.from_bytes(data[-4:], "little")
    data[-4:] = (length - 41).to_bytes(4, "little")


CHANGES = [
    zero_commitment, no_commitment, lower_suite, raise_suite, other_version, other_source, other_epoch, other_type,
    other_dataset, other_salt, edit_table, fewer_chunks,
]  # fmt: skip


def edited(cast: Cast, name: str, change: Change) -> None:
    data = bytearray(cast.store.get(name, limit=LIMIT))
    change(data)
    replace(cast.store, name, bytes(data))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["heads", "snapshots"])
def test_a_control_object_that_the_provider_edits(cast: Cast, kind: str, change: Change) -> None:
    name = newest(cast.store, kind)
    edited(cast, name, change)
    cast.refused(name)


@pytest.mark.parametrize("change", CHANGES)
def test_a_pack_that_the_provider_edits(cast: Cast, change: Change) -> None:
    for name in names(cast.store, "/packs/"):
        before = cast.store.get(name, limit=LIMIT)
        edited(cast, name, change)
        ran = cast.olga.run("verify", DATASET, "--read-data")
        assert ran.code == 7, ran
        assert name in ran.out + ran.err
        replace(cast.store, name, before)
    assert cast.olga.run("verify", DATASET, "--read-data").code == 0


def test_packs_are_swapped_under_each_others_names(cast: Cast) -> None:
    found = names(cast.store, "/packs/")
    contents = [cast.store.get(name, limit=LIMIT) for name in found]
    for name, data in zip(found, contents[1:] + contents[:1], strict=True):
        replace(cast.store, name, data)
    ran = cast.pull(cast.fresh(cast.rita))
    assert ran.code == 7, ran
    assert any(name.rpartition("/")[2] in ran.message for name in found)
    ran = cast.olga.run("verify", DATASET, "--read-data")
    assert ran.code == 7, ran
    assert any(name.rpartition("/")[2] in ran.out + ran.err for name in found), ran


def test_a_head_is_offered_as_a_snapshot(cast: Cast) -> None:
    name = newest(cast.store, "snapshots")
    replace(cast.store, name, cast.store.get(newest(cast.store, "heads"), limit=LIMIT))
    cast.refused(name)


def test_an_object_of_another_dataset_of_the_same_owner(cast: Cast) -> None:
    cast.olga.must("push", cast.source, "--dataset", "other")
    cast.olga.grant("other", cast.rita, "reader")
    for kind in ("heads", "snapshots"):
        mine = newest_in(cast, cast.dataset, kind)
        (other,) = {item.split("/")[1] for item in names(cast.store, "d/")} - {cast.dataset}
        before = cast.store.get(mine, limit=LIMIT)
        replace(cast.store, mine, cast.store.get(newest_in(cast, other, kind), limit=LIMIT))
        cast.refused(mine)
        replace(cast.store, mine, before)
    cast.accepted()


def newest_in(cast: Cast, dataset: str, kind: str) -> str:
    return names(cast.store, f"{dataset}/{kind}/")[0]


def test_a_deposit_with_the_sealed_key_of_another_pack(cast: Cast) -> None:
    lab = cast.person("lab")
    cast.olga.grant(DATASET, lab, "push-only")
    done = lab.must("push", cast.source, "--dataset", DATASET, "--source-change")
    name = newest(cast.store, "snapshots")
    head = newest(cast.store, "heads")
    other = cast.store.get(head, limit=LIMIT)

    def swap(data: bytearray) -> None:
        data[116 : 116 + 1168] = other[116 : 116 + 1168]

    cast.accepted()
    edited(cast, name, swap)
    cast.refused(name, reference=f"{DATASET}@{done['seq']}")
    with opened(cast.rita) as dataset, pytest.raises(IntegrityError, match="sealed pack key"):
        dataset.history.read(done["seq"])
    told(cast.pull(cast.rita.machine), name)
