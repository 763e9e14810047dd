"""One suite for every store: the docstrings of datasync.storage.protocol, as tests."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from datasync.errors import AlreadyExists, IntegrityError, NotAuthorized, NotFound, UsageError
from datasync.storage.names import NAME_CHARACTERS
from datasync.storage.probe import PROBE_PREFIX, honours_put_if_absent
from datasync.storage.protocol import Created, ObjectStore
from datasync.storage.retry import RetryingStore
from tests.support.servers import S3Server

MIB = 1024 * 1024
LIMIT = 64 * MIB


def put_all(store: ObjectStore, names: Iterable[str]) -> None:
    """Store *names*, many at a time; again where rclone's server fails puts that meet in a new folder."""
    store = RetryingStore(store)
    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(lambda name: store.put_if_absent(name, name.encode()), names):
            pass


def listed(store: ObjectStore, prefix: str, *, limit: int | None = None, after: str = "") -> list[str]:
    return [found.name for found in store.list(prefix, limit=limit, after=after)]


def read_range(store: ObjectStore, name: str, offset: int, size: int) -> bytes:
    buffer = bytearray(size)
    store.get_range(name, offset, memoryview(buffer))
    return bytes(buffer)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_an_object_comes_back_as_it_was_put(any_store: ObjectStore, kind: Callable[[bytes], bytes]) -> None:
    data = os.urandom(1000)
    assert isinstance(any_store.put_if_absent("d/one", kind(data)), Created)
    assert any_store.get("d/one", limit=1000) == data


def test_an_empty_object_is_an_object(any_store: ObjectStore) -> None:
    any_store.put_if_absent("empty", b"")
    assert any_store.get("empty", limit=0) == b""
    assert any_store.stat("empty").size == 0
    assert read_range(any_store, "empty", 0, 0) == b""


def test_an_object_above_the_limit_is_refused(any_store: ObjectStore) -> None:
    any_store.put_if_absent("one", bytes(1000))
    with pytest.raises(IntegrityError, match="1000 bytes, expected at most 999"):
        any_store.get("one", limit=999)


@pytest.mark.parametrize(("offset", "size"), [(0, 1000), (0, 1), (999, 1), (300, 400), (0, 0), (1000, 0)])
def test_a_range_fills_the_buffer(any_store: ObjectStore, offset: int, size: int) -> None:
    data = os.urandom(1000)
    any_store.put_if_absent("one", data)
    assert read_range(any_store, "one", offset, size) == data[offset : offset + size]


@pytest.mark.parametrize(("offset", "size"), [(0, 1001), (999, 2), (1000, 1), (5000, 10), (1001, 0)])
def test_a_range_past_the_end_is_an_integrity_error(any_store: ObjectStore, offset: int, size: int) -> None:
    any_store.put_if_absent("one", bytes(1000))
    with pytest.raises(IntegrityError):
        read_range(any_store, "one", offset, size)


def test_a_large_object_goes_in_and_out_whole(any_store: ObjectStore) -> None:
    data = bytearray(os.urandom(MIB) * 33)
    data[-16:] = b"the last 16 byte"
    any_store.put_if_absent("large", data)
    assert any_store.get("large", limit=LIMIT) == data
    assert read_range(any_store, "large", 32 * MIB - 5, MIB + 5) == data[32 * MIB - 5 :]
    assert any_store.stat("large").size == len(data)


def test_a_missing_object_is_not_found(any_store: ObjectStore) -> None:
    any_store.put_if_absent("there", b"x")
    with pytest.raises(NotFound, match="missing"):
        any_store.get("missing", limit=10)
    with pytest.raises(NotFound, match="there/missing"):
        read_range(any_store, "there/missing", 0, 1)
    with pytest.raises(NotFound, match="missing"):
        any_store.stat("missing")


def test_a_directory_is_not_an_object(any_store: ObjectStore) -> None:
    any_store.put_if_absent("d/one", b"x")
    with pytest.raises(NotFound):
        any_store.get("d", limit=10)
    with pytest.raises(NotFound):
        any_store.stat("d")


def test_stat_and_listing_tell_size_and_time(any_store: ObjectStore) -> None:
    before = time.time()
    any_store.put_if_absent("d/one", bytes(321))
    (found,) = any_store.list("d/")
    for stat in (found, any_store.stat("d/one")):
        assert (stat.name, stat.size) == ("d/one", 321)
        assert abs(stat.modified - before) < 300  # the same clock, and in Unix seconds


def test_delete_removes_and_can_be_repeated(any_store: ObjectStore) -> None:
    any_store.put_if_absent("d/one", b"x")
    any_store.delete("d/one")
    any_store.delete("d/one")
    any_store.delete("never/there")
    assert listed(any_store, "") == []
    assert list(any_store.list_directories("")) in ([], ["d"])  # some servers keep the empty directory for a while
    any_store.put_if_absent("d/one", b"y")
    assert any_store.get("d/one", limit=1) == b"y"


def test_a_listing_is_in_byte_order(any_store: ObjectStore) -> None:
    names = ["B/x", "a/0", "a/1", "a/1-f", "a/b/c", "a0", "a_b/x", "b"]
    put_all(any_store, reversed(names))
    assert listed(any_store, "") == names == sorted(names)
    assert listed(any_store, "a/") == names[1:5]
    assert listed(any_store, "a") == names[1:7]
    assert listed(any_store, "a/b") == ["a/b/c"]
    assert listed(any_store, "nothing/") == []


TRICKY_NAMES = ("a-b/x", "a.b/x", "a/0")  # `-` and `.` come before `/`


def test_a_listing_is_in_byte_order_of_full_names(ordering_store: ObjectStore) -> None:
    put_all(ordering_store, TRICKY_NAMES)
    assert listed(ordering_store, "") == list(TRICKY_NAMES)
    assert listed(ordering_store, "", limit=1, after="a-b/x") == ["a.b/x"]
    assert list(ordering_store.list_directories("")) == ["a-b", "a.b", "a"]


def test_a_listing_out_of_order_is_refused(seaweedfs: S3Server, fresh_bucket: str) -> None:
    """SeaweedFS sorts by components; no two names of a repository show the difference."""
    seaweedfs.make_bucket(fresh_bucket)
    store = seaweedfs.open(fresh_bucket)
    put_all(store, TRICKY_NAMES)
    with pytest.raises(UsageError, match=r"lists a/0 before a-b/x"):
        listed(store, "")


def test_a_listing_goes_on_after_a_name_up_to_a_limit(any_store: ObjectStore) -> None:
    names = [f"d/{letter}/{number}" for letter in "abc" for number in range(4)]
    put_all(any_store, names)
    assert listed(any_store, "d/", limit=1) == names[:1]
    assert listed(any_store, "d/", limit=5) == names[:5]
    assert listed(any_store, "d/", limit=0) == []
    assert listed(any_store, "d/", after="d/a/2") == names[3:]
    assert listed(any_store, "d/", after="d/a/2x") == names[3:]
    assert listed(any_store, "d/b", after="d/a/2") == names[4:8]
    assert listed(any_store, "d/", after="d/c/3") == []
    assert listed(any_store, "d/", limit=6, after="d/a/1") == names[2:8]


def test_a_listing_pages_through_more_than_a_thousand_names(any_store: ObjectStore) -> None:
    names = [f"packs/{number % 7}/{number:05}" for number in range(1105)]
    put_all(any_store, names)
    names.sort()
    assert listed(any_store, "packs/") == names
    assert listed(any_store, "packs/", limit=1003) == names[:1003]
    assert listed(any_store, "packs/", after=names[50]) == names[51:]
    assert list(any_store.list_directories("packs/")) == list("0123456")


def test_directories_are_the_next_components_of_deeper_names(any_store: ObjectStore) -> None:
    put_all(any_store, ["top", "a/x", "a/b/c", "a/b/d", "aa/x", "a/c/e"])
    assert list(any_store.list_directories("")) == ["a", "aa"]
    assert list(any_store.list_directories("a/")) == ["b", "c"]
    assert list(any_store.list_directories("a/b/")) == []
    assert list(any_store.list_directories("none/")) == []


def test_a_name_may_be_as_long_as_the_protocol_says(any_store: ObjectStore) -> None:
    name = f"{'a' * 200}/{'B' * 200}/{'-' * (NAME_CHARACTERS - 402)}"
    any_store.put_if_absent(name, b"long")
    assert any_store.get(name, limit=4) == b"long"
    assert listed(any_store, "a") == [name]
    with pytest.raises(UsageError):
        any_store.put_if_absent(name + "-", b"too long")


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.", ".", "a/", "a b", "ä", "a\0", "a\n"]
)
def test_names_outside_the_grammar_are_refused(any_store: ObjectStore, name: str) -> None:
    with pytest.raises(UsageError):
        any_store.put_if_absent(name, b"x")
    with pytest.raises(UsageError):
        any_store.get(name, limit=1)
    with pytest.raises(UsageError):
        any_store.delete(name)


@pytest.mark.parametrize("prefix", ["../", "/", "a/../", "a//"])
def test_prefixes_that_no_name_has_are_refused(any_store: ObjectStore, prefix: str) -> None:
    with pytest.raises(UsageError):
        listed(any_store, prefix)
    with pytest.raises(UsageError):
        list(any_store.list_directories(prefix))


@pytest.mark.parametrize("size", [10, 200 * 1024])
def test_a_taken_name_is_never_overwritten(conditional_store: ObjectStore, size: int) -> None:
    first = os.urandom(size)
    conditional_store.put_if_absent("heads/1", first)
    for again in (first, os.urandom(size), b""):
        with pytest.raises(AlreadyExists, match="heads/1"):
            conditional_store.put_if_absent("heads/1", again)
    assert conditional_store.get("heads/1", limit=size) == first


def test_of_sixteen_racing_writers_one_wins(racing_store: ObjectStore) -> None:
    start = threading.Barrier(16)

    def race(number: int) -> bytes | None:
        body = b"writer %d" % number
        start.wait()
        try:
            racing_store.put_if_absent("snapshots/7", body)
        except AlreadyExists:
            return None
        return body

    with ThreadPoolExecutor(16) as pool:
        winners = [body for body in pool.map(race, range(16)) if body is not None]
    assert winners == [racing_store.get("snapshots/7", limit=100)]


def test_the_probe_finds_put_if_absent_and_cleans_up(conditional_store: ObjectStore) -> None:
    assert honours_put_if_absent(conditional_store)
    assert listed(conditional_store, PROBE_PREFIX) == []


def test_the_probe_finds_that_rclone_overwrites(rclone: S3Server, fresh_bucket: str) -> None:
    rclone.make_bucket(fresh_bucket)
    store = rclone.open(fresh_bucket)
    assert not honours_put_if_absent(store)
    assert listed(store, "") == []


@pytest.mark.parametrize("kind", ["seaweedfs", "rclone"])
def test_a_wrong_secret_is_not_authorized(request: pytest.FixtureRequest, kind: str, fresh_bucket: str) -> None:
    server: S3Server = request.getfixturevalue(kind)
    server.make_bucket(fresh_bucket)
    store = replace(server, secret_key="a-wrong-secret").open(fresh_bucket)
    for call in (
        lambda: store.put_if_absent("one", bytes(300_000)),
        lambda: store.get("one", limit=1),
        lambda: store.stat("one"),
        lambda: listed(store, ""),
    ):
        with pytest.raises(NotAuthorized) as caught:
            call()
        assert "a-wrong-secret" not in str(caught.value)
    assert listed(server.open(fresh_bucket), "") == []


def test_a_missing_bucket_is_named(s3_server: S3Server, fresh_bucket: str) -> None:
    store = s3_server.open(fresh_bucket)
    for call in (
        lambda: store.put_if_absent("one", b"x"),
        lambda: store.get("one", limit=1),
        lambda: listed(store, ""),
    ):
        with pytest.raises(NotFound, match=f"bucket {fresh_bucket} does not exist"):
            call()
