"""GCS and Azure drivers against a server that fails on purpose: each failure becomes the right error."""

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from email.utils import formatdate
from hashlib import md5
from typing import NamedTuple

import google_crc32c
import pytest

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    IntegrityError,
    NoSpace,
    NotAuthorized,
    NotFound,
    SlowDown,
    StorageUnavailable,
    UsageError,
)
from datasync.storage.azure import AzureOptions, AzureStore
from datasync.storage.gcs import GcsOptions, GcsStore
from datasync.storage.http import HttpOptions
from datasync.storage.location import parse_url
from datasync.storage.protocol import ObjectStore
from tests.support.fault_proxy import error
from tests.support.faulty_server import Answer, FaultyServer, Request, faulty_server
from tests.support.servers import free_ports

DATA = bytes(range(256)) * 4
LARGE = bytes(700_000)
DATED = {"Last-Modified": "Mon, 30 Nov 2026 08:00:00 GMT"}
KEY = b64encode(b"SECRET-KEY").decode()

Call = Callable[[ObjectStore], object]
CALLS: dict[str, Call] = {
    "get": lambda store: store.get("one", limit=5000),
    "get_range": lambda store: store.get_range("one", 0, memoryview(bytearray(10))),
    "put": lambda store: store.put_if_absent("one", DATA),
    "put large": lambda store: store.put_if_absent("one", LARGE),
    "list": lambda store: list(store.list("one")),
    "list_directories": lambda store: list(store.list_directories("one/")),
    "stat": lambda store: store.stat("one"),
    "delete": lambda store: store.delete("one"),
}


class Driver(NamedTuple):
    dialect: str
    open: Callable[[int, float], ObjectStore]


def gcs(port: int, seconds: float = 60.0) -> ObjectStore:
    options = GcsOptions(lambda: "Bearer SECRET-TOKEN", HttpOptions(read_seconds=seconds))
    return GcsStore(parse_url(f"gs://bucket/root?endpoint=http://127.0.0.1:{port}"), options)


def azure(port: int, seconds: float = 60.0) -> ObjectStore:
    options = AzureOptions(key=KEY, http=HttpOptions(read_seconds=seconds))
    return AzureStore(parse_url(f"az://bucket/root?endpoint=http://127.0.0.1:{port}/account"), options)


DRIVERS = [pytest.param(Driver("gcs", gcs), id="gcs"), pytest.param(Driver("azure", azure), id="azure")]
every_driver = pytest.mark.parametrize("driver", DRIVERS)


def always(answer: Answer) -> Callable[[Request], Answer]:
    return lambda _: answer


def caught(driver: Driver, answer: Answer, call: Call, kind: type[DatasyncError]) -> tuple[DatasyncError, FaultyServer]:
    with faulty_server(always(answer)) as server:
        store = driver.open(server.port, 60.0)
        with pytest.raises(kind) as raised:
            call(store)
        store.close()
    message = str(raised.value)
    assert "SECRET" not in message
    assert KEY not in message
    assert "one" in message
    return raised.value, server


@every_driver
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (500, StorageUnavailable),
        (502, StorageUnavailable),
        (503, SlowDown),
        (429, SlowDown),
        (408, StorageUnavailable),
        (403, NotAuthorized),
        (401, NotAuthorized),
        (507, NoSpace),
        (400, UsageError),
        (405, UsageError),
        (301, UsageError),
    ],
)
def test_a_refusal_becomes_its_error_after_one_try(
    driver: Driver, call: str, status: int, kind: type[DatasyncError]
) -> None:
    _, server = caught(driver, error(driver.dialect, status), CALLS[call], kind)
    assert len(server.requests) == 1


@every_driver
def test_the_pause_that_the_store_asks_for_is_kept(driver: Driver) -> None:
    answer = error(driver.dialect, 503, headers={"Retry-After": "7"})
    found, _ = caught(driver, answer, CALLS["put"], SlowDown)
    assert isinstance(found, SlowDown)
    assert found.retry_after == 7


@every_driver
@pytest.mark.parametrize("call", CALLS)
def test_a_reset_connection_is_unavailable(driver: Driver, call: str) -> None:
    caught(driver, Answer(status=0, reset=True), CALLS[call], StorageUnavailable)


@every_driver
@pytest.mark.parametrize("call", ["list", "list_directories"])
def test_an_answer_of_another_kind_is_unavailable(driver: Driver, call: str) -> None:
    caught(driver, Answer(200, {}, b"<html>Sign in to the network"), CALLS[call], StorageUnavailable)


@every_driver
@pytest.mark.parametrize(("seconds", "word"), [(-3600, "ahead of"), (7200, "behind")])
def test_a_wrong_clock_is_told_in_seconds(driver: Driver, seconds: int, word: str) -> None:
    date = {"Date": formatdate(time.time() + seconds, usegmt=True)}
    found, _ = caught(driver, error(driver.dialect, 403, headers=date), CALLS["put"], NotAuthorized)
    told = int(str(found).partition("clock is ")[2].split()[0])
    assert abs(told - abs(seconds)) < 60
    assert word in str(found)


def no_bucket(dialect: str) -> Answer:
    if dialect == "azure":
        return Answer(404, {"x-ms-error-code": "ContainerNotFound"}, b"")
    about = {"error": {"code": 404, "message": "The specified bucket does not exist.", "errors": []}}
    return Answer(404, {}, json.dumps(about).encode())


@every_driver
@pytest.mark.parametrize("call", ["get", "put", "list", "delete"])
def test_a_missing_bucket_is_told_from_a_missing_object(driver: Driver, call: str) -> None:
    found, _ = caught(driver, no_bucket(driver.dialect), CALLS[call], NotFound)
    assert "bucket bucket does not exist; create" in str(found)
    if call == "get":
        found, _ = caught(driver, error(driver.dialect, 404), CALLS[call], NotFound)
        assert "bucket bucket" not in str(found)


@every_driver
def test_deleting_what_is_not_there_is_no_error(driver: Driver) -> None:
    with faulty_server(always(error(driver.dialect, 404))) as server:
        driver.open(server.port, 60.0).delete("one")
    assert len(server.requests) == 1


@every_driver
@pytest.mark.parametrize("call", ["put", "put large"])
def test_a_failed_condition_is_already_exists(driver: Driver, call: str) -> None:
    caught(driver, error(driver.dialect, 412), CALLS[call], AlreadyExists)


def test_azures_own_word_for_a_taken_name_is_already_exists() -> None:
    caught(Driver("azure", azure), error("azure", 409, "BlobAlreadyExists"), CALLS["put"], AlreadyExists)


@every_driver
@pytest.mark.parametrize("call", ["get", "get_range"])
@pytest.mark.parametrize("reset", [False, True])
def test_a_body_that_ends_early_is_unavailable(driver: Driver, call: str, reset: bool) -> None:
    caught(driver, Answer(200, DATED, DATA[:5], length=10, reset=reset), CALLS[call], StorageUnavailable)


@every_driver
def test_an_object_above_the_limit_is_refused_before_its_body(driver: Driver) -> None:
    found, _ = caught(driver, Answer(200, DATED, DATA, length=10**15), CALLS["get"], IntegrityError)
    assert "1000000000000000 bytes, expected at most 5000" in str(found)


def ranged(first: int, last: int, total: int | str = len(DATA), *, status: int = 206) -> Answer:
    return Answer(status, {**DATED, "Content-Range": f"bytes {first}-{last}/{total}"}, DATA[first : last + 1])


@every_driver
@pytest.mark.parametrize("answer", [ranged(100, 149), ranged(100, 149, "*"), Answer(200, DATED, DATA)])
def test_a_right_range_is_read_however_it_is_answered(driver: Driver, answer: Answer) -> None:
    buffer = bytearray(50)
    with faulty_server(always(answer)) as server:
        driver.open(server.port, 60.0).get_range("one", 100, memoryview(buffer))
    assert buffer == DATA[100:150]
    assert server.requests[0].headers["Range"] == "bytes=100-149"


@every_driver
@pytest.mark.parametrize(
    "answer",
    [
        ranged(0, 49),
        ranged(101, 150),
        ranged(100, 150),
        ranged(100, 140),
        Answer(206, DATED, DATA[100:150]),  # no Content-Range
        Answer(206, {**DATED, "Content-Range": f"bytes 100-149/{len(DATA)}"}, DATA[100:140]),
        Answer(206, {**DATED, "Content-Range": "bytes */1024"}, DATA[100:150]),
    ],
)
def test_a_wrong_range_is_never_returned_as_data(driver: Driver, answer: Answer) -> None:
    buffer = bytearray(50)
    caught(driver, answer, lambda store: store.get_range("one", 100, memoryview(buffer)), StorageUnavailable)
    assert buffer == bytes(50)


@every_driver
@pytest.mark.parametrize("answer", [ranged(1000, 1023), Answer(200, DATED, DATA), Answer(416)])
def test_a_range_past_the_end_is_an_integrity_error(driver: Driver, answer: Answer) -> None:
    caught(driver, answer, lambda store: store.get_range("one", 1000, memoryview(bytearray(50))), IntegrityError)


@every_driver
def test_a_port_without_a_listener_is_unavailable(driver: Driver) -> None:
    (port,) = free_ports(1)
    with pytest.raises(StorageUnavailable):
        driver.open(port, 60.0).stat("one")


@every_driver
def test_a_server_that_stays_silent_is_unavailable(driver: Driver) -> None:
    def rule(_: Request) -> Answer:
        time.sleep(1)
        return Answer()

    with faulty_server(rule) as server, pytest.raises(StorageUnavailable):
        driver.open(server.port, 0.2).get("one", limit=10)


@every_driver
def test_one_connection_serves_many_requests(driver: Driver) -> None:
    def rule(request: Request) -> Answer:
        if request.method in ("PUT", "POST"):
            return Answer(201 if request.method == "PUT" else 200, {}, b"{}" if request.method == "POST" else b"")
        return ranged(0, 9) if "Range" in request.headers else Answer(200, DATED, DATA)

    with faulty_server(rule) as server:
        store = driver.open(server.port, 60.0)
        for _ in range(3):
            store.get_range("one", 0, memoryview(bytearray(10)))
            store.get("one", limit=5000)
            store.put_if_absent("one", LARGE)
    assert len({request.peer for request in server.requests}) == 1


def test_a_put_to_gcs_carries_condition_and_checksum() -> None:
    with faulty_server(always(Answer(200, {}, b'{"size": "700000"}'))) as server:
        gcs(server.port).put_if_absent("one", memoryview(LARGE))
    (request,) = server.requests
    assert "ifGenerationMatch=0" in request.path
    head, _, rest = request.body.partition(b"\r\n\r\n")
    about = json.loads(rest.partition(b"\r\n--")[0])
    assert about["name"] == "root/one"
    assert b64decode(about["crc32c"]) == google_crc32c.value(LARGE).to_bytes(4, "big")
    assert LARGE in request.body
    assert request.headers["Authorization"] == "Bearer SECRET-TOKEN"
    assert head.startswith(b"--")


def test_a_put_of_which_gcs_has_another_size_is_unavailable() -> None:
    caught(Driver("gcs", gcs), Answer(200, {}, b'{"size": "7"}'), CALLS["put"], StorageUnavailable)


def test_a_put_to_azure_carries_condition_and_checksum() -> None:
    with faulty_server(always(Answer(201))) as server:
        azure(server.port).put_if_absent("one", memoryview(LARGE))
    (request,) = server.requests
    assert request.body == LARGE
    assert request.headers["If-None-Match"] == "*"
    assert b64decode(request.headers["Content-MD5"]) == md5(LARGE, usedforsecurity=False).digest()
    assert request.headers["x-ms-blob-type"] == "BlockBlob"


@pytest.mark.parametrize(
    ("driver", "page"),
    [
        (Driver("gcs", gcs), b'{"nextPageToken": "again"}'),
        (Driver("azure", azure), b"<R><Blobs/><NextMarker>again</NextMarker></R>"),
    ],
)
def test_a_listing_that_turns_in_circles_is_unavailable(driver: Driver, page: bytes) -> None:
    _, server = caught(driver, Answer(200, {}, page), CALLS["list"], StorageUnavailable)
    assert len(server.requests) == 2


def gcs_page(*names: str) -> bytes:
    items = [{"name": f"root/{name}", "size": "1", "timeCreated": "2026-11-30T08:00:00Z"} for name in names]
    return json.dumps({"items": items}).encode()


def azure_page(*names: str) -> bytes:
    about = "<Content-Length>1</Content-Length><Last-Modified>Mon, 30 Nov 2026 08:00:00 GMT</Last-Modified>"
    blobs = "".join(f"<Blob><Name>root/{name}</Name><Properties>{about}</Properties></Blob>" for name in names)
    return f"<R><Blobs>{blobs}</Blobs><NextMarker/></R>".encode()


PAGES = [(Driver("gcs", gcs), gcs_page), (Driver("azure", azure), azure_page)]


@pytest.mark.parametrize(("driver", "page"), PAGES)
def test_a_listing_out_of_order_is_refused(driver: Driver, page: Callable[..., bytes]) -> None:
    caught(driver, Answer(200, {}, page("one2", "one1")), CALLS["list"], UsageError)


@pytest.mark.parametrize(("driver", "page"), PAGES)
def test_foreign_names_are_passed_over(driver: Driver, page: Callable[..., bytes]) -> None:
    with faulty_server(always(Answer(200, {}, page("one", "one two", "one//x", "one~")))) as server:
        store = driver.open(server.port, 60.0)
        assert [found.name for found in store.list("one")] == ["one"]
