"""MeteredStore counts each kind by itself, failures as requests without bytes."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from datasync.errors import AlreadyExists, NotFound
from datasync.storage.memory import MemoryStore
from datasync.storage.meter import Meter, MeteredStore, Traffic


def test_each_kind_is_counted() -> None:
    store = MeteredStore(MemoryStore())
    store.put_if_absent("a/one", bytearray(100))
    store.get("a/one", limit=100)
    store.get_range("a/one", 10, memoryview(bytearray(30)))
    assert [found.size for found in store.list("")] == [100]
    assert list(store.list_directories("")) == ["a"]
    store.stat("a/one")
    store.delete("a/one")
    expected = Meter(
        get=Traffic(2, 130), put=Traffic(1, 100), list=Traffic(2, 0), stat=Traffic(1, 0), delete=Traffic(1, 0)
    )
    assert store.snapshot() == expected


def test_a_failure_is_a_request_without_bytes() -> None:
    store = MeteredStore(MemoryStore())
    store.put_if_absent("one", b"x")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("one", b"yy")
    with pytest.raises(NotFound):
        store.get("two", limit=10)
    assert store.snapshot() == Meter(get=Traffic(1, 0), put=Traffic(2, 1))


def test_a_snapshot_is_frozen_and_stays_as_it_was() -> None:
    store = MeteredStore(MemoryStore())
    before = store.snapshot()
    store.put_if_absent("one", b"x")
    assert before == Meter()
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.get = Traffic(1, 1)  # type: ignore[misc]


def test_no_request_of_many_threads_is_lost() -> None:
    store = MeteredStore(MemoryStore())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.put_if_absent(f"n/{number}", b"12345"), range(400)))
    assert store.snapshot().put == Traffic(400, 2000)
