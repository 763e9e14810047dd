"""Each chunk is stored once, and what the journal says is believed only where the store has it."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from datasync.format.names import pack_name
from datasync.format.pack import DERIVED
from datasync.model.entries import PackRef
from datasync.model.limits import KIB
from datasync.push.index import ChunkIndex
from datasync.push.record import IDS_AT_ONCE, Record
from datasync.push.sync import FEW_PACKS, _check_journal
from datasync.repository.compression import PROBE_FROM_BYTES, compress, decompress
from datasync.storage.memory import MemoryStore
from datasync.storage.meter import MeteredStore

DATASET = bytes(32)


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    with closing(Record(tmp_path / "record.db")) as found:
        yield found


def pack(number: int) -> PackRef:
    return PackRef(number.to_bytes(32, "big"), 100, DERIVED, 1, bytes(32), bytes(32), b"")


def ids(*numbers: int) -> list[tuple[bytes, int]]:
    return [(number.to_bytes(32, "big"), 10) for number in numbers]


def test_a_chunk_is_claimed_once_whoever_asks(record: Record) -> None:
    index = ChunkIndex(record)
    claimed = index.claim(ids(1, 2, 1))
    assert [new for _, new in claimed] == [True, True, False]
    assert claimed[0][0] is claimed[2][0]
    assert [new for _, new in index.claim(ids(2, 3))] == [False, True]


def test_what_the_record_has_is_placed(record: Record) -> None:
    stored = [(chunk_id, raw, raw, 0, number, 7) for number, (chunk_id, raw) in enumerate(ids(*range(200)))]
    record.add_pack(pack(1), stored, stored=0, committed=True)
    index = ChunkIndex(record)
    assert 2 * IDS_AT_ONCE < 200
    claimed = index.claim(ids(*range(100, 300)))
    assert [new for _, new in claimed] == [False] * 100 + [True] * 100
    assert [chunk.settled()[4:] for chunk, new in claimed if not new] == [(pack(1), n, 7) for n in range(100, 200)]
    index.stored([chunk for chunk, new in claimed if new])
    assert [new for _, new in index.claim(ids(250))] == [True]  # its pack never got into the record


@pytest.mark.parametrize("count", [FEW_PACKS, 40, 2_500])
def test_only_packs_that_are_stored_stay_in_the_journal(record: Record, count: int) -> None:
    store = MeteredStore(MemoryStore())
    now = int(time.time() * 1000)
    for number in range(count):
        record.add_pack(pack(number), [(b"%032d" % number, 1, 1, 0, 0, 1)], stored=now, committed=False)
        if number % 3:
            store.put_if_absent(pack_name(DATASET, pack(number).id), b"pack")
    dataset = SimpleNamespace(id=DATASET, history=SimpleNamespace(store=store), keyring=SimpleNamespace(epoch=1))
    _check_journal(cast(Any, dataset), record, now)
    kept = [ref.id for some in record.journal() for ref, _ in some]
    assert kept == [pack(number).id for number in range(count) if number % 3]
    assert record.count_packs() == (len(kept), len(kept))
    meter = store.snapshot()
    assert (meter.stat.requests, meter.list.requests) == ((count, 0) if count <= FEW_PACKS else (0, 1))


@pytest.mark.parametrize("size", [1, KIB, PROBE_FROM_BYTES, 100 * KIB, 4 * 1024 * KIB])
def test_text_is_compressed_at_any_size_and_comes_back(size: int) -> None:
    raw = (b'{"label": 17, "text": "some words, and some more of the same"}\n' * (size // 60 + 1))[:size]
    form, stored = compress(raw)
    assert bytes(decompress(form, stored, size, "chunk")) == raw
    assert size < 100 or len(stored) < size // 2
