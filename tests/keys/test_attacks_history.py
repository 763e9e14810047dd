"""Forged, replayed and forked snapshots, heads, tags, condemned lists and relocations: each refused by name."""

import time

import msgspec
import pytest

from datasync.crypto.hashing import hash_bytes
from datasync.format import pack as packs
from datasync.format.control import (
    Condemned,
    EmptiedPage,
    Head,
    Relocation,
    RelocationPage,
    RelocationsHeader,
    TagAssignment,
    Tags,
)
from datasync.format.encoding import encode
from datasync.format.signed import Signature, write_signed
from datasync.model.entries import FORM_RAW, StoredChunk
from datasync.model.ids import ZERO_ID
from datasync.repository.manifest import ManifestReader
from datasync.repository.packs import Piece, seal_pack
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import HEAD_LIFE_MS
from tests.keys.forge import DATASET, Cast, name_of, newest, opened, put_control, put_trust, signer, told
from tests.support.copies import copy, move, names, replace
from tests.support.people import Person


def forge_snapshot(cast: Cast, dataset: OpenDataset, by: Person, seq: int | None = None, *, head: bool = True) -> str:
    """Seal a snapshot that follows the newest with *dataset*'s keys, signed by *by*; return its object's name."""
    last = dataset.history.latest()
    assert last is not None
    number = seq or last.body.seq + 1
    body = msgspec.structs.replace(
        last.body, seq=number, previous=last.id, message="forged", epoch=dataset.keyring.epoch
    )
    name = put_control(cast.store, dataset, "snapshots", packs.SNAPSHOT, number, body, signer(by), last.lists)
    if head:
        forge_head(cast, dataset, by, number, hash_bytes(cast.store.get(name, limit=1 << 26)))
    return name


def forge_head(cast: Cast, dataset: OpenDataset, by: Person, seq: int, snapshot: bytes) -> str:
    found = dataset.history.head()
    assert found is not None
    now = int(time.time() * 1000)
    number = found.head.number + 1
    head = Head(dataset.id, number, found.digest, seq, snapshot, now, now + HEAD_LIFE_MS)
    return put_control(cast.store, dataset, "heads", packs.HEAD, number, head, signer(by))


# snapshots


def test_a_writer_does_with_the_same_means_what_a_reader_may_not(cast: Cast) -> None:
    with opened(cast.will) as dataset:
        forge_snapshot(cast, dataset, cast.will)
    cast.accepted()


def test_a_reader_forges_a_snapshot(cast: Cast) -> None:
    with opened(cast.rita) as dataset:
        name = forge_snapshot(cast, dataset, cast.rita, head=False)
        forge_head(cast, dataset, cast.will, 3, hash_bytes(cast.store.get(name, limit=1 << 26)))
    cast.refused(name, "trust root does not list")
    told(cast.pull(cast.rita.machine), name, "trust root does not list")
    told(cast.pull(cast.olga.machine), name)
    told(cast.will.run("push", cast.source, "--dataset", DATASET, "--allow-empty"), name)


def test_a_reader_forges_a_snapshot_and_its_head(cast: Cast) -> None:
    with opened(cast.rita) as dataset:
        forge_snapshot(cast, dataset, cast.rita)
    cast.refused(newest(cast.store, "heads"), "trust root does not list")


def test_a_reader_forges_a_snapshot_without_a_head_and_nobody_follows_it(cast: Cast) -> None:
    with opened(cast.rita) as dataset:
        name = forge_snapshot(cast, dataset, cast.rita, head=False)
    cast.accepted()  # the head names the snapshot before
    cast.refused(name, reference=f"{DATASET}@3")
    told(cast.olga.run("push", cast.source, "--dataset", DATASET), name)
    assert cast.olga.run("verify", DATASET).code == 7


def test_a_reader_forges_the_signature_of_a_writer(cast: Cast) -> None:
    with opened(cast.rita) as dataset:
        last = dataset.history.latest()
        assert last is not None
        body = encode(msgspec.structs.replace(last.body, seq=3, previous=last.id))
        signed = write_signed(body, [Signature(signer(cast.will).public, bytes(64))])
        pieces = [Piece(hash_bytes(item), FORM_RAW, len(item), item) for item in (signed, *last.lists)]
        out = memoryview(bytearray(1 << 22))
        data = bytes(seal_pack(dataset.keyring.sealing(packs.SNAPSHOT), packs.SNAPSHOT, pieces, out, full=False).data)
        cast.store.put_if_absent(name_of(dataset.id, "snapshots", 3), data)
    cast.refused(name_of(dataset.id, "snapshots", 3), "does not hold", reference=f"{DATASET}@3")


def test_a_snapshot_is_replayed_under_a_later_number(cast: Cast) -> None:
    with opened(cast.rita) as dataset:
        later = name_of(dataset.id, "snapshots", 3)
    move(cast.store, name_of(dataset.id, "snapshots", 1), later)
    cast.refused(later, "it says snapshot 1", reference=f"{DATASET}@3")
    told(cast.olga.run("push", cast.source, "--dataset", DATASET), later)


def test_a_snapshot_is_replayed_under_the_number_of_the_newest(cast: Cast) -> None:
    name = newest(cast.store, "snapshots")
    move(cast.store, names(cast.store, "/snapshots/")[1], name)
    cast.refused(name, "replaced")


def test_a_fork_is_refused_by_who_saw_one_side_and_by_the_head(cast: Cast) -> None:
    one, other = copy(cast.store), copy(cast.store)
    cast.will.machine.must("push", cast.source, "--dataset", DATASET, "--allow-empty", store=one)
    (cast.source / "two").write_bytes(b"two")
    clone = cast.will.machine.clone(cast.place())
    clone.must("push", cast.source, "--dataset", DATASET, store=other)
    assert cast.pull(cast.rita.machine, store=other).code == 0
    (cast.source / "three").write_bytes(b"three")
    cast.will.machine.must("push", cast.source, "--dataset", DATASET, store=one)
    cast.will.machine.must("push", cast.source, "--dataset", DATASET, "-m", "x", store=one)
    told(cast.pull(cast.rita.machine, store=one), "snapshot 3", "history was forked")


def test_two_snapshots_of_one_number_are_both_named(cast: Cast) -> None:
    name = newest(cast.store, "snapshots")
    data = cast.store.get(names(cast.store, "/snapshots/")[1], limit=1 << 26)
    cast.store.put_if_absent(f"{name}-{hash_bytes(data).hex()}", data)
    told(cast.olga.run("push", cast.source, "--dataset", DATASET, "--allow-empty"), name, "are kept")


def test_a_removed_writer_goes_on_with_its_old_keys(cast: Cast) -> None:
    with opened(cast.will) as before:
        last = before.history.latest()
        assert last is not None
        cast.olga.must("key", "revoke", DATASET, "will")
        body = msgspec.structs.replace(last.body, seq=3, previous=last.id)
        name = put_control(cast.store, before, "snapshots", packs.SNAPSHOT, 3, body, signer(cast.will), last.lists)
    cast.accepted()
    cast.refused(name, "removed after snapshot 2", reference=f"{DATASET}@3")
    told(cast.olga.run("push", cast.source, "--dataset", DATASET), name)


def test_a_removed_writer_replaces_its_last_snapshot(cast: Cast) -> None:
    with opened(cast.will) as before:
        last = before.history.latest()
        assert last is not None
        cast.olga.must("key", "revoke", DATASET, "will")
        body = msgspec.structs.replace(last.body, message="another")
        whole = copy(cast.store)
        cast.push(cast.olga)
        name = put_control(cast.store, before, "snapshots", packs.SNAPSHOT, 2, body, signer(cast.will), last.lists)
    cast.refused(name, "removed after snapshot 2", reference=f"{DATASET}@2")
    replace(whole, name, cast.store.get(name, limit=1 << 26))
    told(cast.pull(cast.fresh(cast.rita), store=whole), name, "replaced")


def test_a_removed_writer_replaces_an_older_snapshot_of_somebody_else(cast: Cast) -> None:
    cast.push(cast.olga)
    with opened(cast.will) as before:
        first, last = before.history.read(1), before.history.latest()
        assert last is not None
        cast.olga.must("key", "revoke", DATASET, "will")
        body = msgspec.structs.replace(first.body, manifest=last.body.manifest, lists=last.body.lists)
        put_control(cast.store, before, "snapshots", packs.SNAPSHOT, 1, body, signer(cast.will), last.lists)
    cast.refused("snapshot 1", reference=f"{DATASET}@1")
    assert cast.olga.run("verify", DATASET).code == 7


def test_a_snapshot_says_another_epoch_than_it_was_sealed_in(cast: Cast) -> None:
    cast.olga.must("key", "rotate", DATASET)
    with opened(cast.will) as dataset:
        last = dataset.history.latest()
        assert last is not None
        body = msgspec.structs.replace(last.body, seq=3, previous=last.id, epoch=1)
        name = put_control(cast.store, dataset, "snapshots", packs.SNAPSHOT, 3, body, signer(cast.will), last.lists)
    cast.refused(name, "epoch", reference=f"{DATASET}@3")


def test_a_snapshot_has_other_page_lists_than_it_signed(cast: Cast) -> None:
    with opened(cast.will) as dataset:
        last, first = dataset.history.latest(), dataset.history.read(1)
        assert last is not None
        body = msgspec.structs.replace(last.body, seq=3, previous=last.id)
        name = put_control(cast.store, dataset, "snapshots", packs.SNAPSHOT, 3, body, signer(cast.will), first.lists)
    cast.refused(name, "page lists", reference=f"{DATASET}@3")


# heads


def test_a_reader_forges_a_head(cast: Cast) -> None:
    with opened(cast.rita) as dataset:
        first = dataset.history.read(1)
        name = forge_head(cast, dataset, cast.rita, 1, first.id)
    cast.refused(name, "trust root does not list")


def test_a_removed_writer_writes_a_head(cast: Cast) -> None:
    with opened(cast.will) as before:
        first = before.history.read(1)
        cast.olga.must("key", "revoke", DATASET, "will")
        number = len(names(cast.store, "/heads/")) + 1
        now = int(time.time() * 1000)
        head = Head(before.id, number, ZERO_ID, 1, first.id, now, now + HEAD_LIFE_MS)
        name = put_control(cast.store, before, "heads", packs.HEAD, number, head, signer(cast.will))
    cast.refused(name, "trust root does not list")
    told(cast.pull(cast.rita.machine), name)


def test_the_head_goes_back(cast: Cast) -> None:
    assert cast.pull(cast.rita.machine).code == 0
    cast.store.delete(newest(cast.store, "heads"))
    told(cast.pull(cast.rita.machine), "head", "this machine has seen number 2", "rolled back")


def test_a_writer_points_the_head_back_and_who_saw_more_follows_only_if_it_is_one_line(cast: Cast) -> None:
    assert cast.pull(cast.rita.machine).code == 0
    with opened(cast.will) as dataset:
        forge_head(cast, dataset, cast.will, 1, bytes(31) + b"\1")
    told(cast.pull(cast.rita.machine), "snapshot", "replaced")


def test_a_head_made_after_its_writers_time(cast: Cast) -> None:
    ended = 1  # long before any head was made
    with opened(cast.olga) as dataset:
        root, mine = dataset.trusted.root, signer(cast.will).public
    people = tuple(msgspec.structs.replace(p, until=ended) if p.signer == mine else p for p in root.principals)
    following = msgspec.structs.replace(
        root, version=root.version + 1, dataset=dataset.id, previous=dataset.trusted.digest, principals=people
    )
    put_trust(cast.store, dataset.id, following, signer(cast.olga))
    cast.refused(newest(cast.store, "heads"), "trust root does not list")


# tags, condemned lists, relocations


def tags_of(dataset: OpenDataset, table_by: Person, tag_by: Person, snapshot: bytes, seq: int) -> Tags:
    now = int(time.time() * 1000)
    body = encode(TagAssignment(dataset.id, "prod", seq, snapshot, now))
    key = signer(tag_by)
    item = write_signed(body, [Signature(key.public, key.sign("tag", body))])
    return Tags(dataset.id, 1, ZERO_ID, now, (("prod", item),))


@pytest.mark.parametrize(("table_by", "tag_by"), [("rita", "rita"), ("rita", "will"), ("will", "rita")])
def test_a_reader_signs_a_tag_or_the_table_of_tags(cast: Cast, table_by: str, tag_by: str) -> None:
    with opened(cast.rita) as dataset:
        first = dataset.history.read(1)
        one, other = getattr(cast, table_by), getattr(cast, tag_by)
        table = tags_of(dataset, one, other, first.id, 1)
        name = put_control(cast.store, dataset, "tags", packs.TAGS, 1, table, signer(one))
    cast.refused(name, "trust root does not list", reference=f"{DATASET}:prod")


def test_a_tag_of_a_writer_is_moved_to_another_name(cast: Cast) -> None:
    with opened(cast.will) as dataset:
        first = dataset.history.read(1)
        table = tags_of(dataset, cast.will, cast.will, first.id, 1)
        table = msgspec.structs.replace(table, tags=(("beta", table.tags[0][1]),))
        name = put_control(cast.store, dataset, "tags", packs.TAGS, 1, table, signer(cast.will))
    cast.refused(name, "beta", reference=f"{DATASET}:beta")


def test_a_removed_writers_tags_stay_but_it_sets_none(cast: Cast) -> None:
    cast.will.must("tag", DATASET, "prod")
    cast.olga.must("key", "revoke", DATASET, "will")
    cast.accepted(reference=f"{DATASET}:prod")
    cast.will.refused(12, "tag", f"{DATASET}@1", "prod")


def test_a_reader_condemns_the_packs(cast: Cast) -> None:
    with opened(cast.rita) as dataset:
        now = int(time.time() * 1000)
        found = [bytes.fromhex(item.rpartition("/")[2]) for item in names(cast.store, "/packs/")]
        body = Condemned(dataset.id, 1, ZERO_ID, now, tuple(sorted((pack, now) for pack in found)))
        name = put_control(cast.store, dataset, "condemned", packs.CONDEMNED, 1, body, signer(cast.rita))
    (cast.source / "more").write_bytes(b"more")
    told(cast.will.run("push", cast.source, "--dataset", DATASET), name, "trust root does not list")


def relocation(dataset: OpenDataset, number: int, page: RelocationPage) -> tuple[RelocationsHeader, list[bytes]]:
    emptied = {chunk.pack.id for chunk in chunks_of(dataset, 1)}
    pages = [encode(page), encode(EmptiedPage(tuple(sorted(emptied))))]
    now, epoch = int(time.time() * 1000), dataset.keyring.epoch
    return RelocationsHeader(dataset.id, number, ZERO_ID, now, epoch, tuple(map(hash_bytes, pages))), pages


def chunks_of(dataset: OpenDataset, seq: int) -> list[StoredChunk]:
    reader = ManifestReader(dataset.history, dataset.history.read(seq))
    return [chunk for entry, page in reader.entries() for chunk in reader.chunks(entry, page)]


def two_chunks(dataset: OpenDataset) -> RelocationPage:
    """Return a page that says of one chunk that it lies where another one does, in another pack."""
    one = chunks_of(dataset, 1)[0]
    other = next(chunk for chunk in chunks_of(dataset, 2) if chunk.pack.id != one.pack.id)
    return RelocationPage(
        (other.pack,), (Relocation(one.id, other.stored, other.form, 0, other.position, other.offset),)
    )


def test_a_reader_writes_a_relocation(cast: Cast) -> None:
    cast.olga.must("key", "rotate", DATASET)
    with opened(cast.rita) as dataset:
        header, rest = relocation(dataset, 1, two_chunks(dataset))
        name = put_control(cast.store, dataset, "relocations", packs.RELOCATIONS, 1, header, signer(cast.rita), rest)
    cast.refused(name, "trust root does not list")


def test_a_relocation_to_other_bytes_denies_and_never_substitutes(cast: Cast) -> None:
    cast.olga.must("key", "rotate", DATASET)
    with opened(cast.will) as dataset:
        page = two_chunks(dataset)
        header, rest = relocation(dataset, 1, page)
        put_control(cast.store, dataset, "relocations", packs.RELOCATIONS, 1, header, signer(cast.will), rest)
    cast.refused(page.packs[0].id.hex(), reference=f"{DATASET}@1")
    assert cast.olga.run("verify", DATASET, "--read-data").code == 7


def test_a_relocation_has_other_pages_than_it_signed(cast: Cast) -> None:
    cast.olga.must("key", "rotate", DATASET)
    with opened(cast.will) as dataset:
        header, _ = relocation(dataset, 1, two_chunks(dataset))
        name = put_control(
            cast.store, dataset, "relocations", packs.RELOCATIONS, 1, header, signer(cast.will), [b"other"]
        )
    cast.refused(name, "pages")
