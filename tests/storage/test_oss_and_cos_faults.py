"""OSS, through both SDKs, and COS against a server that fails on purpose: the right error, one try, no wrong bytes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
from datasync.storage.cos import open_cos
from datasync.storage.http import HttpOptions
from datasync.storage.location import parse_url
from datasync.storage.oss import open_oss
from datasync.storage.sdk.credentials import Keys
from datasync.storage.sdk.store import SdkStore
from tests.support.faulty_server import Answer, FaultyServer, Request, fault, faulty_server
from tests.support.servers import free_ports

DATA = bytes(range(256)) * 4
LARGE = bytes(300_000)
DATED = {"Last-Modified": "Mon, 30 Nov 2026 08:00:00 GMT"}
KEYS = Keys("ACCESS-KEY", "OWN-SECRET-KEY", "OWN-SECRET-TOKEN")
XML = "<Resource>r</Resource><RequestId>1</RequestId>"
URLS = {
    "oss2": "oss://bucket/root?endpoint=http://oss-cn-beijing.localhost:{}&client=oss2",
    "v2": "oss://bucket/root?endpoint=http://oss-cn-beijing.localhost:{}&client=v2",
    "cos": "cos://bucket-1250000000/root?endpoint=http://cos.ap-beijing.localhost:{}",
}

Call = Callable[[SdkStore], object]
CALLS: dict[str, Call] = {
    "get": lambda store: store.get("one", limit=5_000),
    "get_range": lambda store: store.get_range("one", 0, memoryview(bytearray(10))),
    "put": lambda store: store.put_if_absent("one", DATA),
    "put large": lambda store: store.put_if_absent("one", LARGE),
    "list": lambda store: list(store.list("one")),
    "list_directories": lambda store: list(store.list_directories("one/")),
    "stat": lambda store: store.stat("one"),
    "delete": lambda store: store.delete("one"),
    "delete_many": lambda store: store.delete_many(["one", "two"]),
    "versioning": lambda store: store.versioning(),
}
WITH_BODY = [call for call in CALLS if call != "stat"]
PARSED = ["list", "list_directories", "delete_many", "versioning"]


@pytest.fixture(params=list(URLS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(kind: str, port: int, options: HttpOptions | None = None) -> SdkStore:
    place = parse_url(URLS[kind].format(port))
    return (open_cos if kind == "cos" else open_oss)(place, keys=lambda: KEYS, options=options)


@contextmanager
def against(kind: str, answer: Answer | Callable[[Request], Answer]) -> Iterator[tuple[SdkStore, FaultyServer]]:
    rule = (lambda _: answer) if isinstance(answer, Answer) else answer
    with faulty_server(rule) as server:
        store = make(kind, server.port)
        yield store, server
        store.close()


def caught(kind: str, answer: Answer, call: Call, expected: type[DatasyncError]) -> tuple[str, FaultyServer]:
    with against(kind, answer) as (store, server), pytest.raises(expected) as error:
        call(store)
    message = str(error.value)
    assert not [part for part in ("OWN-SECRET", "SECRET-IN", "ignature=", "ACCESS-KEY") if part in message]
    assert "root" in message
    return message, server


@pytest.mark.parametrize("call", WITH_BODY)
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (500, "InternalError", StorageUnavailable),
        (502, "BadGateway", StorageUnavailable),
        (503, "SlowDown", SlowDown),
        (503, "QpsLimitExceeded", SlowDown),
        (429, "TooManyRequests", SlowDown),
        (400, "RequestTimeout", StorageUnavailable),
        (409, "OperationAborted", StorageUnavailable),
        (403, "AccessDenied", NotAuthorized),
        (403, "InvalidAccessKeyId", NotAuthorized),
        (403, "SignatureDoesNotMatch", NotAuthorized),
        (401, "Unauthorized", NotAuthorized),
        (507, "InsufficientStorage", NoSpace),
        (405, "MethodNotAllowed", UsageError),
        (404, "NoSuchBucket", NotFound),
    ],
)
def test_a_refusal_becomes_its_error_after_one_try(
    kind: str, call: str, status: int, code: str, expected: type[DatasyncError]
) -> None:
    _, server = caught(kind, fault(status, code, extra=XML), CALLS[call], expected)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "expected"),
    [(403, NotAuthorized), (404, NotFound), (500, StorageUnavailable), (503, StorageUnavailable)],
)
def test_a_refusal_without_a_body_is_told_by_its_status(kind: str, status: int, expected: type[DatasyncError]) -> None:
    for call in ("stat", "get", "put"):
        _, server = caught(kind, Answer(status), CALLS[call], expected)
        assert len(server.requests) == 1


def test_the_pause_that_a_busy_server_asks_for_is_handed_on(kind: str) -> None:
    with against(kind, fault(503, "SlowDown", extra=XML, headers={"Retry-After": "7"})) as (store, _):
        with pytest.raises(SlowDown) as error:
            store.put_if_absent("one", DATA)
        assert error.value.retry_after == 7


def test_deleting_what_is_not_there_is_no_error_whatever_the_answer(kind: str) -> None:
    with against(kind, fault(404, "NoSuchKey", extra=XML)) as (store, _):
        store.delete("one")


def test_a_taken_name_is_told_by_its_code_alone(kind: str) -> None:
    caught(kind, fault(409, "FileAlreadyExists", extra=XML), CALLS["put"], AlreadyExists)
    caught(kind, fault(409, "PathConflict", extra=XML), CALLS["put"], StorageUnavailable)


@pytest.mark.parametrize("call", CALLS)
def test_a_reset_connection_is_unavailable(kind: str, call: str) -> None:
    caught(kind, Answer(status=0, reset=True), CALLS[call], StorageUnavailable)


@pytest.mark.parametrize("call", ["get", "put", "list"])
def test_a_refused_connection_is_unavailable(kind: str, call: str) -> None:
    (port,) = free_ports(1)
    with pytest.raises(StorageUnavailable):
        CALLS[call](make(kind, port))


@pytest.mark.parametrize("call", PARSED)
@pytest.mark.parametrize("body", [b"<html><body>Sign in to the network</body>", b"<html><p>no</p></html>", b"", b"\0"])
def test_a_page_of_something_else_is_unavailable(kind: str, call: str, body: bytes) -> None:
    caught(kind, Answer(200, {"Content-Type": "application/xml"}, body), CALLS[call], StorageUnavailable)
    caught(kind, Answer(200, {"Content-Type": "text/html"}, body), CALLS[call], StorageUnavailable)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_is_never_followed_and_never_success(kind: str, call: str, status: int) -> None:
    with faulty_server(lambda _: Answer()) as other:
        answer = Answer(status, {"Location": f"http://elsewhere.localhost:{other.port}/x"})
        message, server = caught(kind, answer, CALLS[call], UsageError)
        assert "elsewhere.localhost" in message
        assert other.requests == []
        assert len(server.requests) == 1


@pytest.mark.parametrize("length", [len(DATA) + 10, 4_000])
def test_a_short_body_is_unavailable(kind: str, length: int) -> None:
    caught(kind, Answer(200, DATED, DATA, length=length), CALLS["get"], StorageUnavailable)


def ranged(first: int, last: int, body: bytes, total: int = len(DATA)) -> Answer:
    return Answer(206, {"Content-Range": f"bytes {first}-{last}/{total}"}, body)


@pytest.mark.parametrize(
    "answer",
    [
        ranged(1, 10, DATA[1:11]),
        ranged(0, 9, DATA[:9]),
        ranged(0, 4, DATA[:5]),
        Answer(206, {}, DATA[:10]),
        Answer(200, {}, DATA[:5], length=10),
    ],
)
def test_another_range_than_was_asked_for_is_never_given_out(kind: str, answer: Answer) -> None:
    with against(kind, answer) as (store, _):
        buffer = bytearray(10)
        with pytest.raises((StorageUnavailable, IntegrityError)):
            store.get_range("one", 0, memoryview(buffer))


def test_the_whole_object_is_cut_to_the_range(kind: str) -> None:
    """What OSS answers by itself to a range past the end, and what caches answer."""
    with against(kind, Answer(200, {}, DATA)) as (store, _):
        buffer = bytearray(10)
        store.get_range("one", 300, memoryview(buffer))
        assert buffer == DATA[300:310]
        with pytest.raises(IntegrityError):
            store.get_range("one", len(DATA) - 5, memoryview(buffer))


def test_an_object_past_the_limit_is_not_read(kind: str) -> None:
    with against(kind, Answer(200, DATED, DATA)) as (store, _), pytest.raises(IntegrityError, match="expected at most"):
        store.get("one", limit=len(DATA) - 1)


def test_a_listing_that_does_not_go_on_stops(kind: str) -> None:
    nexts = "<NextMarker>root/a</NextMarker><NextContinuationToken>root/a</NextContinuationToken>"
    body = f"<ListBucketResult><Name>b</Name><Prefix/><MaxKeys>1</MaxKeys><IsTruncated>true</IsTruncated>{nexts}"
    answer = Answer(200, {"Content-Type": "application/xml"}, f"{body}</ListBucketResult>".encode())
    with against(kind, answer) as (store, server):
        with pytest.raises(StorageUnavailable, match="does not go on"):
            list(store.list(""))
        assert len(server.requests) == 2


def test_nothing_is_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The SDKs log headers, signatures and tokens, at debug and some at info and error."""
    caplog.set_level(logging.NOTSET)
    for answer in (fault(403, "AccessDenied", extra=XML), Answer(status=0, reset=True), Answer(200, DATED, DATA)):
        with against(kind, answer) as (store, _):
            for call in CALLS.values():
                try:
                    call(store)
                except DatasyncError:
                    continue
    text = caplog.text
    assert not [part for part in ("OWN-SECRET", "ignature", "ACCESS-KEY", "ecurity-token") if part in text]
