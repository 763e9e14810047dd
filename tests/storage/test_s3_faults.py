"""S3Store against a server that fails on purpose: each failure becomes the right error, and never wrong bytes, through
our own client and through the SDK.
"""

import email.utils
import time
import zlib
from base64 import b64encode
from collections.abc import Callable

import pytest

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    IntegrityError,
    NoSpace,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
    UsageError,
)
from datasync.storage.s3 import S3Store
from tests.support.faulty_server import Answer, FaultyServer, Request, fault, faulty_server
from tests.support.servers import free_ports

DATA = bytes(range(256)) * 4
LARGE = bytes(300_000)  # asks first (Expect: 100-continue)
DATED = {"Last-Modified": "Mon, 30 Nov 2026 08:00:00 GMT"}

Call = Callable[[S3Store], object]
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


@pytest.fixture(autouse=True, params=["plain", "sdk"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two clients `FaultyServer.open` gives."""
    monkeypatch.setattr(FaultyServer, "sdk", request.param == "sdk")


def always(answer: Answer) -> Callable[[Request], Answer]:
    return lambda _: answer


def caught(answer: Answer, call: Call, kind: type[DatasyncError]) -> tuple[str, FaultyServer]:
    with faulty_server(always(answer)) as server:
        store = server.open()
        with pytest.raises(kind) as error:
            call(store)
        store.close()
    message = str(error.value)
    assert not [secret for secret in ("SECRET", "Signature=", "AKIDTEST") if secret in message]
    assert "one" in message
    return message, server


STATUS_CALLS = [call for call in CALLS if call != "stat"]


def right(request: Request) -> Answer:
    if request.method == "PUT":
        return Answer()
    return ranged(0, 9) if "Range" in request.headers else Answer(200, DATED, DATA)


@pytest.mark.parametrize("call", STATUS_CALLS)
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "InternalError", StorageUnavailable),
        (502, "BadGateway", StorageUnavailable),
        (503, "SlowDown", StorageUnavailable),
        (429, "TooManyRequests", StorageUnavailable),
        (400, "RequestTimeout", StorageUnavailable),
        (403, "AccessDenied", NotAuthorized),
        (403, "InvalidAccessKeyId", NotAuthorized),
        (403, "SignatureDoesNotMatch", NotAuthorized),
        (400, "ExpiredToken", NotAuthorized),
        (401, "Unauthorized", NotAuthorized),
        (507, "InsufficientStorage", NoSpace),
        (405, "MethodNotAllowed", UsageError),
    ],
)
def test_a_refusal_becomes_its_error_after_one_try(
    call: str, status: int, code: str, kind: type[DatasyncError]
) -> None:
    _, server = caught(fault(status, code), CALLS[call], kind)
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestTimeout"])
def test_a_refusal_without_a_body_is_told_by_its_status(code: str) -> None:
    """The answer to HEAD holds no code, so 400 can only be told as what it is."""
    message, _ = caught(fault(400, code), CALLS["stat"], UsageError)
    assert "the server answered 400" in message


@pytest.mark.parametrize("call", CALLS)
def test_a_reset_connection_is_unavailable(call: str) -> None:
    caught(Answer(status=0, reset=True), CALLS[call], StorageUnavailable)


@pytest.mark.parametrize("call", ["get", "list"])
def test_an_answer_that_is_no_s3_is_unavailable(call: str) -> None:
    page = b"<html><body>Sign in to the network</body>"
    caught(Answer(503, {"Content-Type": "text/html"}, page), CALLS[call], StorageUnavailable)


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_a_denial_says_what_to_do(code: str) -> None:
    message, _ = caught(fault(403, code), CALLS["get"], NotAuthorized)
    assert any(word in message for word in ("ask for access", "renew", "check"))


@pytest.mark.parametrize(("seconds", "word"), [(-3600, "ahead of"), (7200, "behind")])
def test_a_wrong_clock_is_told_in_seconds(seconds: int, word: str) -> None:
    date = {"Date": email.utils.formatdate(time.time() + seconds, usegmt=True)}
    message, _ = caught(fault(403, "RequestTimeTooSkewed", headers=date), CALLS["put"], NotAuthorized)
    told = int(message.partition("clock is ")[2].split()[0])
    assert abs(told - abs(seconds)) < 60
    assert word in message


def test_a_missing_object_and_a_missing_bucket_are_told_apart() -> None:
    message, _ = caught(fault(404, "NoSuchKey"), CALLS["get"], NotFound)
    assert "bucket bucket" not in message
    message, _ = caught(fault(404, "NoSuchBucket"), CALLS["get"], NotFound)
    assert "bucket bucket does not exist; create it" in message
    message, _ = caught(fault(404, "NoSuchBucket"), CALLS["delete"], NotFound)
    assert "bucket bucket does not exist" in message


def test_deleting_what_a_server_reports_as_missing_is_no_error() -> None:
    with faulty_server(always(fault(404, "NoSuchKey"))) as server:
        server.open().delete("one")
        assert len(server.requests) == 1


@pytest.mark.parametrize("call", ["put", "put large"])
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (412, "PreconditionFailed", AlreadyExists),
        (409, "FileAlreadyExists", AlreadyExists),
        (409, "ConditionalRequestConflict", StorageUnavailable),
    ],
)
def test_a_failed_condition_is_already_exists(call: str, status: int, code: str, kind: type[DatasyncError]) -> None:
    caught(fault(status, code), CALLS[call], kind)


def test_a_put_carries_condition_checksum_and_no_hash_of_the_payload() -> None:
    with faulty_server(always(Answer())) as server:
        store = server.open()
        store.put_if_absent("one", memoryview(DATA))
        store.put_if_absent("two", bytearray(LARGE))
    small, large = server.requests
    for request, data in ((small, DATA), (large, LARGE)):
        assert request.body == data
        assert request.headers["If-None-Match"] == "*"
        assert request.headers["x-amz-checksum-crc32"] == b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
        assert request.headers["X-Amz-Content-SHA256"] == "UNSIGNED-PAYLOAD"
        assert "x-amz-trailer" not in {key.lower() for key in request.headers}
    assert ("Expect" in small.headers, "Expect" in large.headers) == (False, True)


@pytest.mark.parametrize(
    ("status", "code"), [(400, "MissingContentLength"), (400, "NotImplemented"), (501, "NotImplemented")]
)
@pytest.mark.parametrize("data", [DATA, LARGE])
def test_a_server_that_refuses_the_checksum_gets_none_from_then_on(status: int, code: str, data: bytes) -> None:
    def rule(request: Request) -> Answer:
        return fault(status, code) if "x-amz-checksum-crc32" in request.headers else Answer()

    with faulty_server(rule) as server:
        store = server.open()
        store.put_if_absent("one", data)
        store.put_if_absent("two", data)
    assert ["x-amz-checksum-crc32" in request.headers for request in server.requests] == [True, False, False]
    assert all(request.body == data and request.headers["If-None-Match"] == "*" for request in server.requests)


def test_a_server_that_refuses_the_condition_is_never_asked_without_it() -> None:
    _, server = caught(fault(501, "NotImplemented"), CALLS["put"], UsageError)
    assert [request.headers.get("If-None-Match") for request in server.requests] == ["*", "*"]


@pytest.mark.parametrize("call", ["get", "get_range"])
@pytest.mark.parametrize("reset", [False, True])
def test_a_body_that_ends_early_is_unavailable(call: str, reset: bool) -> None:
    answer = Answer(200, DATED, DATA[:5], length=10, reset=reset)
    caught(answer, CALLS[call], StorageUnavailable)


def test_an_object_above_the_limit_is_refused_before_its_body() -> None:
    message, _ = caught(Answer(200, DATED, DATA, length=10**15), CALLS["get"], IntegrityError)
    assert "1000000000000000 bytes, expected at most 5000" in message


def ranged(first: int, last: int, total: int | str = len(DATA), *, status: int = 206) -> Answer:
    return Answer(status, {**DATED, "Content-Range": f"bytes {first}-{last}/{total}"}, DATA[first : last + 1])


@pytest.mark.parametrize(
    "answer",
    [
        ranged(100, 149),
        ranged(100, 149, "*"),
        ranged(100, 149, status=200),  # as rclone answers
        Answer(200, DATED, DATA),  # the whole object: the server knows no ranges
    ],
)
def test_a_right_range_is_read_however_it_is_answered(answer: Answer) -> None:
    buffer = bytearray(50)
    with faulty_server(always(answer)) as server:
        server.open().get_range("one", 100, memoryview(buffer))
    assert buffer == DATA[100:150]
    assert server.requests[0].headers["Range"] == "bytes=100-149"


@pytest.mark.parametrize(
    "answer",
    [
        ranged(0, 49),
        ranged(0, 49, status=200),
        ranged(101, 150),
        ranged(100, 150),
        ranged(100, 140),
        Answer(206, DATED, DATA[100:150]),  # no Content-Range
        Answer(206, {**DATED, "Content-Range": f"bytes 100-149/{len(DATA)}"}, DATA[100:140]),
        Answer(206, {**DATED, "Content-Range": "bytes */1024"}, DATA[100:150]),
    ],
)
def test_a_wrong_range_is_never_returned_as_data(answer: Answer) -> None:
    buffer = bytearray(50)
    caught(answer, lambda store: store.get_range("one", 100, memoryview(buffer)), StorageUnavailable)
    assert buffer == bytes(50)


@pytest.mark.parametrize("answer", [ranged(1000, 1023), Answer(200, DATED, DATA), fault(416, "InvalidRange")])
def test_a_range_past_the_end_is_an_integrity_error(answer: Answer) -> None:
    caught(answer, lambda store: store.get_range("one", 1000, memoryview(bytearray(50))), IntegrityError)


def test_one_connection_serves_many_requests() -> None:
    with faulty_server(right) as server:
        store = server.open()
        for _ in range(3):
            store.get_range("one", 0, memoryview(bytearray(10)))
            store.get("one", limit=5000)
            store.put_if_absent("one", DATA)
            store.put_if_absent("one", LARGE)
    assert len({request.peer for request in server.requests}) == 1


@pytest.mark.parametrize("wrong", [
    fault(301, "PermanentRedirect", headers={"x-amz-bucket-region": "eu-west-1"}),
    fault(400, "AuthorizationHeaderMalformed", extra="<Region>eu-west-1</Region>"),
])  # fmt: skip
@pytest.mark.parametrize("call", ["get", "put", "put large", "stat"])
def test_a_bucket_in_another_region_is_found_there(wrong: Answer, call: str) -> None:
    wrong_with_region = Answer(wrong.status, {**wrong.headers, "x-amz-bucket-region": "eu-west-1"}, wrong.body)

    def rule(request: Request) -> Answer:
        return right(request) if "/eu-west-1/s3/" in request.headers["Authorization"] else wrong_with_region

    with faulty_server(rule) as server:
        store = server.open()
        CALLS[call](store)
        CALLS[call](store)
    first, second, third = server.requests
    assert "/us-east-1/s3/" in first.headers["Authorization"]
    assert first.body == second.body == third.body


def test_a_region_that_is_wrong_too_ends_in_an_error() -> None:
    answer = fault(301, "PermanentRedirect", headers={"x-amz-bucket-region": "eu-west-1"})
    _, server = caught(answer, CALLS["get"], UsageError)
    assert len(server.requests) == 2


def page(*names: str, token: str = "") -> Answer:
    items = "".join(
        f"<Contents><Key>root/{name}</Key><Size>1</Size><LastModified>2026-11-30T08:00:00Z</LastModified></Contents>"
        for name in names
    )
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return Answer(
        200, {"Content-Type": "application/xml"}, f"<ListBucketResult>{items}{more}</ListBucketResult>".encode()
    )


def test_a_listing_that_turns_in_circles_is_unavailable() -> None:
    _, server = caught(page(token="again"), CALLS["list"], StorageUnavailable)
    assert len(server.requests) == 2


def test_a_listing_out_of_order_is_refused() -> None:
    caught(page("one2", "one1"), CALLS["list"], UsageError)


def test_foreign_names_in_a_bucket_are_passed_over() -> None:
    with faulty_server(always(page("one", "one two", "one//x", "one~"))) as server:
        assert [found.name for found in server.open().list("one")] == ["one"]


def test_a_port_without_a_listener_is_unavailable() -> None:
    (port,) = free_ports(1)
    with pytest.raises(StorageUnavailable):
        FaultyServer(always(Answer()), port).open().stat("one")


def test_a_server_that_stays_silent_is_unavailable() -> None:
    def rule(_: Request) -> Answer:
        time.sleep(1)
        return Answer()

    with faulty_server(rule) as server, pytest.raises(StorageUnavailable):
        server.open(read_seconds=0.2).get("one", limit=10)


def test_no_credentials_is_not_authorized(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent/config")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with faulty_server(always(Answer())) as server:
        with pytest.raises(NotAuthorized, match="no usable credentials"):
            S3Store(server.place()).stat("one")
        monkeypatch.setenv("AWS_PROFILE", "nobody")
        with pytest.raises(NotAuthorized, match="no usable credentials"):
            S3Store(server.place())
        assert server.requests == []
