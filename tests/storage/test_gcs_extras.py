"""GCS: batch deletes, versions, retention, locks.

Against fake-gcs-server where it does as the vendor's pages say (batches, versions), and against a scripted bucket that
answers in the JSON interface's format and refuses what those pages say is refused.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from datasync.errors import AlreadyExists, NotAuthorized, NotFound, SlowDown, StorageUnavailable, UsageError
from datasync.storage.extras import BatchDelete, Lock, ObjectLock, Retention, Versions
from datasync.storage.gcs import GcsStore
from datasync.storage.location import parse_url
from tests.support.faulty_server import Answer, FaultyServer, Request, faulty_server
from tests.support.gcs import GcsServer
from tests.support.stores import Running

YEAR_2100 = 4_102_444_800.0


@pytest.fixture
def store(running: Running, fresh_bucket: str) -> GcsStore:
    server = running.server("gcs")
    assert isinstance(server, GcsServer)
    server.make_bucket(fresh_bucket)
    return server.open(fresh_bucket, "root")


def document(found: object, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json; charset=UTF-8"}, json.dumps(found).encode())


def failure(status: int, reason: str, message: str = "") -> Answer:
    return document({"error": {"code": status, "message": message, "errors": [{"reason": reason}]}}, status)


@dataclass
class Bucket:
    """A bucket that answers as the pages say; `fails` holds what single deletes answer."""

    about: dict[str, Any] = field(default_factory=dict)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    fails: dict[str, tuple[int, str]] = field(default_factory=dict)
    pages: list[list[dict[str, Any]]] = field(default_factory=list)
    locks: bool = True
    server: FaultyServer = field(init=False)

    def answer(self, request: Request) -> Answer:
        path, query = urlsplit(request.path).path, parse_qs(urlsplit(request.path).query)
        if path == "/batch/storage/v1":
            return self._batch(request)
        if path == "/storage/v1/b/bucket":
            return document(self.about)
        if path == "/storage/v1/b/bucket/o":
            return self._page(query)
        if path == "/upload/storage/v1/b/bucket/o":
            return self._insert(request)
        name = unquote(path.removeprefix("/storage/v1/b/bucket/o/"))
        if request.method == "DELETE":
            return self._delete(name)
        if request.method == "PATCH":
            return self._patch(name, json.loads(request.body), query)
        return document(self.objects[name]) if name in self.objects else failure(404, "notFound")

    def _batch(self, request: Request) -> Answer:
        """Take a batch apart as "Batch requests" describes it; the answers come in another order."""
        assert request.method == "POST"
        boundary = request.headers["Content-Type"].partition("multipart/mixed; boundary=")[2].encode()
        *parts, end = request.body.split(b"--" + boundary)[1:]
        assert end == b"--\r\n"
        assert len(parts) <= 100
        return multipart([self._answer_to(part) for part in reversed(parts)])

    def _answer_to(self, part: bytes) -> tuple[str, Answer]:
        found = re.fullmatch(
            rb"\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: (\d+)\r\n\r\n"
            rb"DELETE /storage/v1/b/bucket/o/(\S+) HTTP/1\.1\r\n\r\n\r\n",
            part,
        )
        assert found, part
        return f"response-{found[1].decode()}", self._delete(unquote(urlsplit(found[2].decode()).path))

    def _delete(self, name: str) -> Answer:
        if name in self.fails:
            return failure(*self.fails[name])
        return Answer(204) if self.objects.pop(name, None) is not None else failure(404, "notFound", "No such object")

    def _page(self, query: dict[str, list[str]]) -> Answer:
        assert query["versions"] == ["true"]
        number = int(query.get("pageToken", ["0"])[0])
        more = {"nextPageToken": str(number + 1)} if number + 1 < len(self.pages) else {}
        return document({"items": self.pages[number], **more})

    def _insert(self, request: Request) -> Answer:
        about = json.loads(request.body.split(b"\r\n\r\n")[1].split(b"\r\n--")[0])
        if about["name"] in self.objects:
            return failure(412, "conditionNotMet")
        if "retention" in about and not self.locks:
            return failure(400, "invalid", "Object retention is not enabled for this bucket")
        self.objects[about["name"]] = about
        return document({**about, "size": "3"})

    def _patch(self, name: str, change: dict[str, Any], query: dict[str, list[str]]) -> Answer:
        assert "overrideUnlockedRetention" not in query
        if not self.locks:
            return failure(400, "invalid", "Object retention is not enabled for this bucket")
        if name not in self.objects:
            return failure(404, "notFound")
        self.objects[name] |= change
        return document(self.objects[name])


def multipart(answers: list[tuple[str, Answer]]) -> Answer:
    body = b"".join(
        b"--batch_x\r\nContent-Type: application/http\r\nContent-ID: <%s>\r\n\r\nHTTP/1.1 %d Said\r\n"
        b"Content-Length: %d\r\n\r\n%s\r\n" % (number.encode(), answer.status, len(answer.body), answer.body)
        for number, answer in answers
    )
    return Answer(200, {"Content-Type": "multipart/mixed; boundary=batch_x"}, body + b"--batch_x--\r\n")


@contextmanager
def scripted(bucket: Bucket, more: str = "") -> Iterator[GcsStore]:
    with faulty_server(bucket.answer) as bucket.server:
        yield GcsStore(parse_url(f"gs://bucket/root?endpoint=http://127.0.0.1:{bucket.server.port}{more}"))


def test_the_driver_offers_what_the_service_has() -> None:
    store = GcsStore(parse_url("gs://bucket"))
    for kind in (BatchDelete, Versions, Retention, ObjectLock):
        assert isinstance(store, kind)


# Batch deletes


def test_many_objects_go_at_once_and_others_stay(store: GcsStore) -> None:
    names = [f"d/n-{number:03}" for number in range(230)]
    for name in [*names[:205], "kept"]:
        store.put_if_absent(name, b"x")
    store.delete_many(iter(names))
    assert [item.name for item in store.list("")] == ["kept"]


def test_a_batch_holds_a_hundred_calls_and_who_pays() -> None:
    bucket = Bucket(objects={f"root/n{number}": {} for number in range(250)})
    with scripted(bucket, "&project=mine") as store:
        store.delete_many(f"n{number}" for number in range(250))
    assert bucket.objects == {}
    assert [request.body.count(b"DELETE ") for request in bucket.server.requests] == [100, 100, 50]
    assert all(request.body.count(b"?userProject=mine ") in (100, 50) for request in bucket.server.requests)


@pytest.mark.parametrize(
    ("said", "kind"),
    [((403, "retentionPolicyNotMet"), NotAuthorized), ((429, "rateLimitExceeded"), SlowDown),
     ((503, "backendError"), SlowDown), ((500, "internalError"), StorageUnavailable)],
)  # fmt: skip
def test_the_first_failure_is_told_after_all_were_tried(said: tuple[int, str], kind: type[Exception]) -> None:
    bucket = Bucket(
        objects={f"root/n{number}": {} for number in range(150)},
        fails={"root/n7": said, "root/n120": (403, "forbidden")},
    )
    with scripted(bucket) as store, pytest.raises(kind, match=f"n7: the server answered {said[0]} {said[1]}"):
        store.delete_many(f"n{number}" for number in range(150))
    assert sorted(bucket.objects) == ["root/n120", "root/n7"]


def test_a_missing_bucket_is_no_success() -> None:
    missing = failure(404, "notFound", "The specified bucket does not exist.")
    with faulty_server(lambda _: multipart([("response-0", missing)])) as server:
        store = GcsStore(parse_url(f"gs://bucket?endpoint=http://127.0.0.1:{server.port}"))
        with pytest.raises(NotFound, match="bucket bucket does not exist"):
            store.delete_many(["one"])
        with pytest.raises(UsageError, match="object name"):
            store.delete_many(["../one"])


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, {"Content-Type": "multipart/mixed; boundary=batch_x"}, b"--batch_x--\r\n"),
        Answer(200, {"Content-Type": "text/html"}, b"<html>"),
        multipart([("response-0", Answer(204))]),
        multipart([("response-0", Answer(204)), ("response-2", Answer(204))]),
        multipart([("response-0", Answer(204)), ("response-0", Answer(204))]),
    ],
)
def test_an_answer_that_does_not_tell_of_all_is_no_success(answer: Answer) -> None:
    with faulty_server(lambda _: answer) as server:
        store = GcsStore(parse_url(f"gs://bucket?endpoint=http://127.0.0.1:{server.port}"))
        with pytest.raises(StorageUnavailable, match="asked 2 things"):
            store.delete_many(["one", "two"])


# Versions


@pytest.mark.parametrize(
    ("about", "state"),
    [({}, "off"), ({"versioning": {"enabled": True}}, "enabled"), ({"versioning": {"enabled": False}}, "suspended")],
)
def test_versioning_is_what_the_bucket_says(about: dict[str, Any], state: str) -> None:
    bucket = Bucket(about=about)
    with scripted(bucket) as store:
        assert store.versioning() == state
    assert bucket.server.requests[0].path == "/storage/v1/b/bucket?fields=versioning"


def version(name: str, generation: int, *, gone: bool = False) -> dict[str, Any]:
    made = {"name": name, "generation": str(generation), "size": "3", "timeCreated": "1970-01-01T00:01:00Z"}
    return made | ({"timeDeleted": "2026-01-01T00:00:00Z"} if gone else {})


def test_versions_of_a_name_come_newest_first_even_over_pages() -> None:
    bucket = Bucket(
        pages=[
            [version("root/a", 5, gone=True), version("root/a", 60, gone=True)],
            [version("root/a", 700), version("root/bad//name", 1), version("root/b", 2, gone=True)],
        ]
    )
    with scripted(bucket) as store:
        found = list(store.list_versions(""))
    assert [(item.name, item.version, item.newest) for item in found] == [
        ("a", "700", True), ("a", "60", False), ("a", "5", False), ("b", "2", False)
    ]  # fmt: skip
    assert {(item.deleted, item.size, item.modified) for item in found} == {(False, 3, 60.0)}
    assert "prefix=root%2F&versions=true" in bucket.server.requests[0].path


def test_one_version_is_removed_by_its_generation() -> None:
    bucket = Bucket(objects={"root/d/a": {}})
    with scripted(bucket) as store:
        store.delete_version("d/a", "700")
        store.delete_version("d/a", "700")  # it is not there any more
    sent = {(request.method, request.path) for request in bucket.server.requests}
    assert sent == {("DELETE", "/storage/v1/b/bucket/o/root%2Fd%2Fa?generation=700")}


def test_a_version_that_is_kept_is_told() -> None:
    bucket = Bucket(fails={"root/a": (403, "retentionPolicyNotMet")})
    with scripted(bucket) as store, pytest.raises(NotAuthorized, match="a: the server answered 403 retention"):
        store.delete_version("a", "1")


def test_an_emulated_bucket_lists_and_removes_what_is_there(store: GcsStore) -> None:
    store.put_if_absent("a/one", b"123")
    (found,) = store.list_versions("a/")
    assert (found.name, found.newest, found.size) == ("a/one", True, 3)
    store.delete_version(found.name, found.version)
    assert list(store.list_versions("")) == []


# Retention and locks


@pytest.mark.parametrize(("seconds", "days"), [(None, None), ("604800", 7), ("604801", 8), ("60", 1)])
def test_the_buckets_retention_is_told_in_whole_days(seconds: str | None, days: int | None) -> None:
    about = {"retentionPolicy": {"retentionPeriod": seconds, "isLocked": True}} if seconds else {}
    with scripted(Bucket(about=about)) as store:
        assert store.retention_days() == days


def test_an_object_is_kept_and_never_for_less() -> None:
    bucket = Bucket(objects={"root/a": {}})
    with scripted(bucket) as store:
        store.retain_until("a", YEAR_2100 - 0.5)
        kept = {"mode": "Locked", "retainUntilTime": "2100-01-01T00:00:00Z"}
        assert bucket.objects["root/a"] == {"retention": kept}
        store.retain_until("a", YEAR_2100 - 60)
        assert bucket.objects["root/a"] == {"retention": kept}
        with pytest.raises(NotFound, match="b does not exist"):
            store.retain_until("b", YEAR_2100)
    (patch,) = (request for request in bucket.server.requests if request.method == "PATCH")
    assert patch.headers["Content-Type"] == "application/json"


def test_a_retention_that_can_be_lifted_is_not_taken_over() -> None:
    lifted = {"retention": {"mode": "Unlocked", "retainUntilTime": "2100-01-01T00:00:00Z"}}
    bucket = Bucket(objects={"root/a": lifted})
    with scripted(bucket) as store:
        with pytest.raises(UsageError, match="can be lifted"):
            store.retain_until("a", 1.0)
        assert not store.lock_of("a").compliance
    assert {request.method for request in bucket.server.requests} == {"GET"}


def test_a_bucket_that_keeps_no_single_objects_is_told() -> None:
    with scripted(Bucket(objects={"root/a": {}}, locks=False)) as store:
        with pytest.raises(UsageError, match="--enable-per-object-retention"):
            store.retain_until("a", YEAR_2100)
        with pytest.raises(UsageError, match="--enable-per-object-retention"):
            store.put_locked("b", b"123", until=YEAR_2100)


@pytest.mark.parametrize("hold", [True, False])
def test_an_object_is_locked_from_its_first_moment_on(hold: bool) -> None:
    bucket = Bucket()
    with scripted(bucket) as store:
        store.put_locked("a", b"123", until=YEAR_2100, legal_hold=hold)
        found = store.lock_of("a")
        assert (found.until, found.legal_hold, found.compliance) == (YEAR_2100, hold, True)
        with pytest.raises(AlreadyExists):
            store.put_locked("a", b"123", until=YEAR_2100)
    assert [request.method for request in bucket.server.requests] == ["POST", "GET", "POST"]
    assert "ifGenerationMatch=0" in bucket.server.requests[0].path


def test_an_emulated_object_carries_its_lock(store: GcsStore) -> None:
    """fake-gcs-server keeps what it is told, and lets the object go all the same: that much is tested here."""
    store.put_locked("a", b"123", until=YEAR_2100)
    assert store.lock_of("a") == Lock(YEAR_2100, legal_hold=False, compliance=True)
    store.put_if_absent("b", b"123")
    assert store.lock_of("b") == Lock(0, legal_hold=False, compliance=False)
    store.retain_until("b", YEAR_2100)
    assert store.lock_of("b").until == YEAR_2100


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"retention": {"mode": "Locked", "retainUntilTime": "2099-12-31T23:59:59Z"}, "temporaryHold": True},
        {"retention": {"mode": "Unlocked", "retainUntilTime": "2100-01-01T00:00:00Z"}, "temporaryHold": True},
        {"retention": {"mode": "Locked", "retainUntilTime": "2100-01-01T00:00:00Z"}},
    ],
)
def test_a_server_that_locks_less_than_asked_is_not_believed(kept: dict[str, Any]) -> None:
    with faulty_server(lambda _: document({"size": "3", **kept})) as server:
        store = GcsStore(parse_url(f"gs://bucket/root?endpoint=http://127.0.0.1:{server.port}"))
        with pytest.raises(UsageError, match="did not lock it"):
            store.put_locked("a", b"123", until=YEAR_2100, legal_hold=True)


def test_a_change_that_is_ignored_is_not_believed() -> None:
    with faulty_server(lambda _: document({})) as server:
        store = GcsStore(parse_url(f"gs://bucket/root?endpoint=http://127.0.0.1:{server.port}"))
        with pytest.raises(UsageError, match="did not lock it"):
            store.retain_until("a", YEAR_2100)
