"""An answer with status 200 that is not what the service answers raises one of our errors, and lists nothing."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from datasync.errors import StorageUnavailable, UsageError
from datasync.storage.azure import AzureOptions, AzureStore
from datasync.storage.cos import open_cos
from datasync.storage.gcs import GcsOptions, GcsStore
from datasync.storage.listing import Listing
from datasync.storage.location import parse_url
from datasync.storage.oss import open_oss
from datasync.storage.protocol import ObjectStat, ObjectStore
from datasync.storage.sdk.credentials import Keys
from datasync.storage.skew import seconds_ahead, wrong_clock
from tests.support.faulty_server import Answer, FaultyServer, faulty_server

KEYS = Keys("ACCESS-KEY", "OWN-SECRET-KEY", "OWN-SECRET-TOKEN")
HERE = "127.0.0.1"


def gcs(server: FaultyServer) -> ObjectStore:
    return GcsStore(parse_url(f"gs://bucket?endpoint=http://{HERE}:{server.port}"), GcsOptions(lambda: "Bearer x"))


def azure(server: FaultyServer) -> ObjectStore:
    where = parse_url(f"az://bucket?endpoint=http://{HERE}:{server.port}/account")
    return AzureStore(where, AzureOptions(key="a2V5"))


def oss(client: str) -> Callable[[FaultyServer], ObjectStore]:
    def made(server: FaultyServer) -> ObjectStore:
        where = parse_url(f"oss://bucket?endpoint=http://oss-cn-beijing.localhost:{server.port}&client={client}")
        return open_oss(where, keys=lambda: KEYS)

    return made


def cos(server: FaultyServer) -> ObjectStore:
    where = parse_url(f"cos://bucket-1250000000?endpoint=http://cos.ap-beijing.localhost:{server.port}")
    return open_cos(where, keys=lambda: KEYS)


OPEN: dict[str, Callable[[FaultyServer], ObjectStore]] = {
    "s3": lambda server: server.open(),
    "gcs": gcs,
    "azure": azure,
    "oss2": oss("oss2"),
    "v2": oss("v2"),
    "cos": cos,
}
XML, JSON = {"Content-Type": "application/xml"}, {"Content-Type": "application/json"}
ENTRIES = (
    "<Contents/>",
    "<Contents><Key>a</Key></Contents>",
    "<Contents><Key>a</Key><Size>many</Size><LastModified>2026-11-30T08:00:00.000Z</LastModified></Contents>",
    "<Contents><Key>a</Key><Size>1</Size><LastModified>yesterday</LastModified></Contents>",
    "<Contents><Key>a</Key><Size>1</Size></Contents>",
)
BLOBS = (
    "<Blob/>",
    "<Blob><Name>a</Name></Blob>",
    "<Blob><Name>a</Name><Properties><Content-Length>many</Content-Length></Properties></Blob>",
)
DOCUMENTS = (
    '{"items": [{}]}',
    '{"items": 3}',
    '{"items": [3]}',
    '{"items": [{"name": 3}]}',
    '{"items": [{"name": "a"}]}',
    '{"items": [{"name": "a", "size": "many", "timeCreated": "2026-11-30T08:00:00Z"}]}',
    '{"items": [{"name": "a", "size": "1", "timeCreated": "yesterday"}]}',
    '{"items": [{"name": "a", "size": "1", "timeCreated": 3}]}',
    "[" * 100_000,
    "[]",
)


def bodies(driver: str) -> list[str]:
    if driver == "gcs":
        return list(DOCUMENTS)
    if driver == "azure":
        page = "<?xml version='1.0'?><EnumerationResults><Blobs>{}</Blobs><NextMarker/></EnumerationResults>"
        return [page.format(blob) for blob in BLOBS]
    page = "<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>"
    return [page.format(entry) for entry in ENTRIES]


CASES = [pytest.param(driver, body, id=f"{driver}-{n}") for driver in OPEN for n, body in enumerate(bodies(driver))]


@pytest.mark.parametrize(("driver", "body"), CASES)
def test_a_listing_that_lacks_something_lists_nothing(driver: str, body: str) -> None:
    with faulty_server(lambda _: Answer(200, JSON if driver == "gcs" else XML, body.encode())) as server:
        store = OPEN[driver](server)
        with suppress(StorageUnavailable):  # or what is no entry is passed over
            assert list(store.list("")) == []
        store.close()
    assert len(server.requests) == 1


@pytest.mark.parametrize("driver", OPEN)
def test_a_stat_without_size_or_time_is_unavailable(driver: str) -> None:
    with faulty_server(lambda _: Answer(200, JSON, b"{}" if driver == "gcs" else b"")) as server:
        store = OPEN[driver](server)
        with pytest.raises(StorageUnavailable):
            store.stat("one")
        store.close()


@pytest.mark.parametrize("size", ["many", "-", "[]"])
def test_a_put_whose_size_is_no_number_is_unavailable(size: str) -> None:
    with faulty_server(lambda _: Answer(200, JSON, f'{{"size": "{size}"}}'.encode())) as server:
        store = gcs(server)
        with pytest.raises(StorageUnavailable):
            store.put_if_absent("one", b"x")
        store.close()


VERSIONS = (
    "<Version/>",
    "<Version><Key>a</Key><VersionId>1</VersionId></Version>",
    "<IsTruncated>true</IsTruncated>",
)


@pytest.mark.parametrize("part", VERSIONS)
def test_a_listing_of_s3_versions_that_lacks_something_is_unavailable(part: str) -> None:
    body = f"<?xml version='1.0'?><ListVersionsResult>{part}</ListVersionsResult>".encode()
    with faulty_server(lambda _: Answer(200, XML, body)) as server:
        store = server.open()
        with pytest.raises(StorageUnavailable):
            list(store.list_versions(""))
        store.close()


@pytest.mark.parametrize("body", ['{"items": [{}]}', '{"items": [{"name": "a", "generation": "x"}]}', '{"items": 3}'])
def test_a_listing_of_gcs_versions_that_lacks_something_is_unavailable(body: str) -> None:
    with faulty_server(lambda _: Answer(200, JSON, body.encode())) as server:
        store = gcs(server)
        assert isinstance(store, GcsStore)
        with pytest.raises(StorageUnavailable):
            list(store.list_versions(""))
        store.close()


def test_what_a_server_says_of_a_delete_is_not_repeated() -> None:
    odd = "\u202e"
    body = f"<DeleteResult><Error><Key>root/{odd}</Key><Code>a{odd} b</Code></Error></DeleteResult>".encode()
    with faulty_server(lambda _: Answer(200, XML, body)) as server:
        store = server.open()
        with pytest.raises(StorageUnavailable, match=": an object was not removed: the server answered ab; try again"):
            store.delete_many(["one"])
        store.close()


# the one place that reads listings


def listed(keys: list[str], *, after: str = "", limit: int | None = None) -> list[str]:
    def stat(name: str, _: str) -> ObjectStat:
        return ObjectStat(name, 1, 0.0)

    return [item.name for item in Listing("x://b", "root/", "", after, limit).objects(keys, str, stat)]


def test_names_that_are_not_ours_are_passed_over() -> None:
    assert listed(["root/a", "root/a//b", "root/b/", "root/~c", "root/d"]) == ["a", "d"]


def test_names_up_to_the_start_are_passed_over() -> None:
    assert listed(["root/a", "root/b", "root/c"], after="b") == ["c"]


def test_no_more_is_read_than_was_asked_for() -> None:
    keys = iter(["root/a", "root/b", "root/c"])
    found = Listing("x://b", "root/", "", "", 2).objects(keys, str, lambda name, _: ObjectStat(name, 1, 0.0))
    assert [item.name for item in found] == ["a", "b"]
    assert next(keys) == "root/c"


@pytest.mark.parametrize("keys", [["root/b", "root/a"], ["root/a", "root/a"]])
def test_another_order_is_refused(keys: list[str]) -> None:
    with pytest.raises(UsageError, match="keeps byte order"):
        listed(keys)


@pytest.mark.parametrize("driver", ["oss2", "v2", "cos"])
def test_a_listing_out_of_order_is_refused(driver: str) -> None:
    entry = (
        "<Contents><Key>{}</Key><Size>1</Size><LastModified>2026-11-30T08:00:00.000Z</LastModified>"
        "<Type>Normal</Type><ETag>e</ETag><StorageClass>Standard</StorageClass></Contents>"
    )
    page = bodies(driver)[0].replace(ENTRIES[0], entry.format("b") + entry.format("a"))
    with faulty_server(lambda _: Answer(200, XML, page.encode())) as server:
        store = OPEN[driver](server)
        with pytest.raises(UsageError, match="lists b before a"):
            list(store.list(""))
        store.close()


# clocks


@pytest.mark.parametrize(
    ("date", "ahead"),
    [
        ("Mon, 30 Nov 2026 08:00:00 GMT", 60),
        ("Mon, 30 Nov 2026 08:02:00 GMT", -60),
        ("", 0),
        ("None", 0),
        ("Mon, 99 Nov 99999 08:00:00 GMT", 0),
    ],
)
def test_the_difference_of_two_clocks(date: str, ahead: int) -> None:
    assert seconds_ahead(date, datetime(2026, 11, 30, 8, 1, tzinfo=UTC).timestamp()) == ahead


def test_a_wrong_clock_is_told_in_seconds_where_that_is_known() -> None:
    assert "60 seconds ahead of" in wrong_clock(60)
    assert "60 seconds behind" in wrong_clock(-60)
    assert wrong_clock(0) == "this machine's clock is wrong; set it (NTP)"
