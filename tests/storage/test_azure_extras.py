"""Azure: batch deletes, versions, retention, locks.

Against azurite where it does as the vendor's pages say (batches, with each part's signature checked), and against a
scripted container that answers in the REST interface's format and refuses what those pages say is refused.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from datasync.errors import AlreadyExists, NotAuthorized, NotFound, SlowDown, StorageUnavailable, UsageError
from datasync.storage.azure import AzureOptions, AzureStore
from datasync.storage.azure.signing import VERSION, authorization, parse_key
from datasync.storage.extras import BatchDelete, Lock, ObjectLock, Retention, Versions
from datasync.storage.location import parse_url
from tests.support.azurite import KEY, AzureServer
from tests.support.faulty_server import Answer, FaultyServer, Request, faulty_server
from tests.support.stores import Running

YEAR_2100 = 4_102_444_800.0
UNTIL = "x-ms-immutability-policy-until-date"
MODE = "x-ms-immutability-policy-mode"
HOLD = "x-ms-legal-hold"
OLD, NEW = "2026-01-01T00:00:00.1234567Z", "2026-01-02T00:00:00.1234567Z"


@pytest.fixture
def server(running: Running, monkeypatch: pytest.MonkeyPatch) -> AzureServer:
    for name in ("CONNECTION_STRING", "SAS_TOKEN", "KEY", "ACCOUNT"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    found = running.server("azure")
    assert isinstance(found, AzureServer)
    return found


@pytest.fixture
def store(server: AzureServer, fresh_bucket: str) -> AzureStore:
    server.make_bucket(fresh_bucket)
    return server.open(fresh_bucket, "root")


def failure(status: int, code: str) -> Answer:
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>SECRET</Message></Error>'
    return Answer(status, {"x-ms-error-code": code, "Content-Type": "application/xml"}, body.encode())


@dataclass
class Container:
    """A container at `/account/box` that answers as the pages say; `fails` holds what single deletes answer."""

    blobs: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, list[str]] = field(default_factory=dict)
    fails: dict[str, Answer] = field(default_factory=dict)
    pages: list[str] = field(default_factory=list)
    kept: str = "false"
    locks: bool = True
    server: FaultyServer = field(init=False)

    def answer(self, request: Request) -> Answer:
        place = urlsplit(request.path)
        query = parse_qs(place.query)
        assert request.headers["x-ms-version"] == VERSION
        if query.get("comp") == ["batch"]:
            return self._batch(request)
        if query.get("comp") == ["list"]:
            return self._page(query)
        if query.get("restype") == ["container"]:
            return Answer(200, {"x-ms-has-immutability-policy": self.kept})
        name = place.path.removeprefix("/account/box/")
        if request.method == "DELETE":
            return self.delete(name, query.get("versionid", [""])[0])
        if request.method == "PUT":
            return self._lock(name, request) if query else self._put(name, request)
        return Answer(200, self.blobs[name]) if name in self.blobs else Answer(404, {"x-ms-error-code": "BlobNotFound"})

    def _batch(self, request: Request) -> Answer:
        """Take a batch apart as "Blob Batch" describes it; the answers come in another order."""
        assert request.method == "POST"
        assert request.path.startswith("/account/box?restype=container&comp=batch")
        boundary = request.headers["Content-Type"].partition("multipart/mixed; boundary=")[2].encode()
        *parts, end = request.body.split(b"--" + boundary)[1:]
        assert end == b"--\r\n"
        assert len(parts) <= 256
        return multipart([self._answer_to(part) for part in reversed(parts)])

    def _answer_to(self, part: bytes) -> tuple[str, Answer]:
        found = re.fullmatch(
            rb"\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: (\d+)\r\n\r\n"
            rb"DELETE (\S+) HTTP/1\.1\r\n(.*)\r\n\r\n\r\n",
            part,
            re.DOTALL,
        )
        assert found, part
        target = found[2].decode()
        headers = dict(line.split(": ", 1) for line in found[3].decode().split("\r\n"))
        assert "x-ms-version" not in headers
        if "sig=" not in target:
            signed = headers.pop("Authorization")
            assert signed == authorization("account", parse_key(KEY), "DELETE", target, headers)
        return found[1].decode(), self.delete(urlsplit(target).path.removeprefix("/account/box/"), "")

    def delete(self, name: str, version: str) -> Answer:
        if name in self.fails:
            return self.fails[name]
        known = self.versions.get(name, [])
        if version:
            if version not in known:
                return failure(404, "BlobNotFound")
            if name in self.blobs and version == known[-1]:
                return failure(403, "OperationNotAllowedOnRootBlob")
            known.remove(version)
            return Answer(202)
        return Answer(202) if self.blobs.pop(name, None) is not None else failure(404, "BlobNotFound")

    def _page(self, query: dict[str, list[str]]) -> Answer:
        assert query["include"] == ["versions"]
        number = int(query.get("marker", ["0"])[0])
        marker = f"<NextMarker>{number + 1}</NextMarker>" if number + 1 < len(self.pages) else "<NextMarker />"
        body = f"<EnumerationResults><Blobs>{self.pages[number]}</Blobs>{marker}</EnumerationResults>"
        return Answer(200, {"Content-Type": "application/xml"}, body.encode())

    def _put(self, name: str, request: Request) -> Answer:
        assert request.headers["If-None-Match"] == "*"
        if not self.locks:
            return failure(409, "VersionLevelWormNotEnabled")
        if name in self.blobs:
            return failure(409, "BlobAlreadyExists")
        self.blobs[name] = {key: request.headers[key] for key in (UNTIL, MODE, HOLD) if key in request.headers}
        return Answer(201)

    def _lock(self, name: str, request: Request) -> Answer:
        """Set a policy; a locked one is only ever extended."""
        assert request.path.endswith("?comp=immutabilityPolicies")
        if not self.locks:
            return failure(409, "VersionLevelWormNotEnabled")
        before = self.blobs[name]
        if before.get(MODE) == "Locked":
            assert parsedate_to_datetime(request.headers[UNTIL]) >= parsedate_to_datetime(before[UNTIL])
        self.blobs[name] = {key: request.headers[key] for key in (UNTIL, MODE)}
        return Answer(200, self.blobs[name])


def multipart(answers: list[tuple[str, Answer]]) -> Answer:
    """Write what "Blob Batch" shows as its sample response."""
    body = b""
    for number, answer in answers:
        lines = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        body += f"--batchresponse_x\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n".encode()
        body += f"HTTP/1.1 {answer.status} It is said.\r\n{lines}\r\n".encode() + answer.body + b"\r\n"
    return Answer(202, {"Content-Type": "multipart/mixed; boundary=batchresponse_x"}, body + b"--batchresponse_x--")


@contextmanager
def scripted(container: Container, options: AzureOptions | None = None) -> Iterator[AzureStore]:
    with faulty_server(container.answer) as container.server:
        url = f"az://box/root?endpoint=http://127.0.0.1:{container.server.port}/account"
        yield AzureStore(parse_url(url), options or AzureOptions(key=KEY))


def date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)


def test_the_driver_offers_what_the_service_has() -> None:
    store = AzureStore(parse_url("az://box?account=acme"))
    for kind in (BatchDelete, Versions, Retention, ObjectLock):
        assert isinstance(store, kind)


# Batch deletes


def test_many_objects_go_at_once_and_others_stay(store: AzureStore) -> None:
    names = [f"d/n-{number:03}" for number in range(300)]
    for name in [*names[:270], "kept"]:
        store.put_if_absent(name, b"x")
    store.delete_many(iter(names))
    assert [item.name for item in store.list("")] == ["kept"]


def test_an_emulated_container_checks_who_asks(server: AzureServer, store: AzureStore, fresh_bucket: str) -> None:
    store.put_if_absent("one", b"x")
    wrong = replace(server, key="YSB3cm9uZyBrZXk=").open(fresh_bucket, "root")
    with pytest.raises(NotAuthorized):
        wrong.delete_many(["one"])
    assert store.get("one", limit=1) == b"x"


def test_a_batch_holds_256_calls_each_signed_for_itself() -> None:
    container = Container(blobs={f"root/n{number}": {} for number in range(600)})
    with scripted(container) as store:
        store.delete_many(f"n{number}" for number in range(600))
    assert container.blobs == {}
    assert [request.body.count(b"\r\nDELETE /account/box/root/n") for request in container.server.requests] == [
        256, 256, 88
    ]  # fmt: skip


def test_a_shared_signature_goes_with_the_batch_and_each_part() -> None:
    container = Container(blobs={"root/a": {}, "root/b": {}})
    with scripted(container, AzureOptions(sas="sv=1&sig=abc")) as store:
        store.delete_many(["a", "b"])
    (request,) = container.server.requests
    assert request.path.endswith("comp=batch&sv=1&sig=abc")
    assert request.body.count(b"?sv=1&sig=abc HTTP/1.1") == 2
    assert container.blobs == {}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(failure(409, "BlobImmutableDueToPolicy"), NotAuthorized), (failure(403, "AuthorizationFailure"), NotAuthorized),
     (failure(409, "BlobImmutableDueToLegalHold"), NotAuthorized), (failure(503, "ServerBusy"), SlowDown),
     (failure(500, "InternalError"), StorageUnavailable)],
)  # fmt: skip
def test_the_first_failure_is_told_after_all_were_tried(answer: Answer, kind: type[Exception]) -> None:
    container = Container(
        blobs={f"root/n{number}": {} for number in range(300)},
        fails={"root/n7": answer, "root/n290": failure(403, "Other")},
    )
    with (
        scripted(container) as store,
        pytest.raises(kind, match=f"n7.*{answer.status} {answer.headers['x-ms-error-code']}"),
    ):
        store.delete_many(f"n{number}" for number in range(300))
    assert sorted(container.blobs) == ["root/n290", "root/n7"]


def test_a_missing_container_is_no_success() -> None:
    missing = failure(404, "ContainerNotFound")
    for answer in (missing, multipart([("0", missing)])):
        with faulty_server(lambda _, answer=answer: answer) as server:  # type: ignore[misc]
            url = f"az://box?endpoint=http://127.0.0.1:{server.port}/account"
            with pytest.raises(NotFound, match="bucket box does not exist"):
                AzureStore(parse_url(url), AzureOptions(key=KEY)).delete_many(["one"])


@pytest.mark.parametrize(
    "answer",
    [
        Answer(202, {"Content-Type": "multipart/mixed; boundary=x"}, b"--x--\r\n"),
        Answer(202, {}, b""),
        replace(
            multipart([("0", Answer(202)), ("1", Answer(202))]),
            body=multipart([("0", Answer(202)), ("1", Answer(202))]).body.removesuffix(b"--"),
        ),
        multipart([("0", Answer(202))]),
        multipart([("0", Answer(202)), ("\xff", Answer(202))]),
        multipart([("0", Answer(202)), ("1", Answer(202)), ("2", Answer(202))]),
    ],
)
def test_an_answer_that_does_not_tell_of_all_is_no_success(answer: Answer) -> None:
    with faulty_server(lambda _: answer) as server:
        url = f"az://box?endpoint=http://127.0.0.1:{server.port}/account"
        with pytest.raises(StorageUnavailable, match="asked 2 things"):
            AzureStore(parse_url(url), AzureOptions(key=KEY)).delete_many(["one", "two"])


def test_one_unnumbered_answer_stands_for_all() -> None:
    """As when the service could not read the batch."""
    refused = multipart([("", failure(400, "InvalidInput"))])
    with faulty_server(lambda _: refused) as server:
        url = f"az://box?endpoint=http://127.0.0.1:{server.port}/account"
        with pytest.raises(UsageError, match="one: the server answered 400 InvalidInput"):
            AzureStore(parse_url(url), AzureOptions(key=KEY)).delete_many(["one", "two"])


# Versions


def listed(name: str, version: str = "", *, current: bool = False) -> str:
    told = f"<VersionId>{version}</VersionId>" if version else ""
    told += "<IsCurrentVersion>true</IsCurrentVersion>" if current else ""
    properties = "<Last-Modified>Thu, 01 Jan 1970 00:01:00 GMT</Last-Modified><Content-Length>3</Content-Length>"
    return f"<Blob><Name>{name}</Name>{told}<Properties>{properties}</Properties></Blob>"


def test_versions_of_a_name_come_newest_first_even_over_pages() -> None:
    pages = [
        listed("root/a", OLD),
        listed("root/a", NEW, current=True) + listed("root/bad//name", OLD) + listed("root/b", OLD),
        listed("root/c"),
    ]
    with scripted(Container(pages=pages)) as store:
        found = list(store.list_versions(""))
        assert store.versioning() == "enabled"
    assert [(item.name, item.version, item.newest) for item in found] == [
        ("a", NEW, True), ("a", OLD, False), ("b", OLD, False), ("c", "", True)
    ]  # fmt: skip
    assert {(item.deleted, item.size, item.modified) for item in found} == {(False, 3, 60.0)}


def test_without_a_version_anywhere_versioning_is_off() -> None:
    with scripted(Container(pages=[listed("root/a"), listed("root/b")])) as store:
        assert store.versioning() == "off"


def test_an_old_version_goes_and_the_current_one_stays() -> None:
    container = Container(blobs={"root/a": {}}, versions={"root/a": [OLD, NEW]})
    with scripted(container) as store:
        store.delete_version("a", OLD)
        store.delete_version("a", OLD)  # it is not there any more
    assert (container.blobs, container.versions) == ({"root/a": {}}, {"root/a": [NEW]})
    assert container.server.requests[0].path == f"/account/box/root/a?versionid={OLD.replace(':', '%3A')}"


def test_the_current_version_goes_with_its_blob() -> None:
    container = Container(blobs={"root/a": {}, "root/b": {}}, versions={"root/a": [OLD, NEW]})
    with scripted(container) as store:
        store.delete_version("a", NEW)
        store.delete_version("b", "")
    assert (container.blobs, container.versions) == ({}, {"root/a": [OLD]})


def test_a_version_that_is_kept_is_told() -> None:
    container = Container(fails={"root/a": failure(409, "BlobImmutableDueToPolicy")})
    with scripted(container) as store:
        with pytest.raises(NotAuthorized, match=r"a was not removed.*BlobImmutableDueToPolicy"):
            store.delete_version("a", OLD)
        with pytest.raises(NotAuthorized, match=r"a was not removed.*BlobImmutableDueToPolicy"):
            store.delete("a")


def test_an_emulated_container_has_no_versions(store: AzureStore) -> None:
    store.put_if_absent("a/one", b"123")
    (found,) = store.list_versions("a/")
    assert (found.name, found.version, found.newest, found.size) == ("a/one", "", True, 3)
    assert store.versioning() == "off"
    store.delete_version("a/one", "")
    assert list(store.list_versions("")) == []


# Retention and locks


def test_the_containers_retention_is_told_as_far_as_it_is_known(store: AzureStore) -> None:
    assert store.retention_days() is None  # azurite
    with scripted(Container(kept="true")) as kept, pytest.raises(UsageError, match="immutability-policy show"):
        kept.retention_days()


def test_an_object_is_kept_and_never_for_less() -> None:
    container = Container(blobs={"root/a": {}})
    with scripted(container) as store:
        store.retain_until("a", YEAR_2100 - 0.5)
        kept = {UNTIL: date(YEAR_2100), MODE: "Locked"}
        assert container.blobs["root/a"] == kept
        store.retain_until("a", YEAR_2100 - 60)
        assert container.blobs["root/a"] == kept
        store.retain_until("a", YEAR_2100 + 60)
        assert store.lock_of("a").until == YEAR_2100 + 60
        with pytest.raises(NotFound, match="b does not exist"):
            store.retain_until("b", YEAR_2100)
    assert [request.method for request in container.server.requests] == ["HEAD", "PUT", "HEAD", "HEAD", "PUT"] + 2 * [
        "HEAD"
    ]


def test_a_policy_that_can_be_lifted_is_locked_without_being_shortened() -> None:
    container = Container(blobs={"root/a": {UNTIL: date(YEAR_2100), MODE: "unlocked"}})
    with scripted(container) as store:
        assert store.lock_of("a") == Lock(YEAR_2100, legal_hold=False, compliance=False)
        store.retain_until("a", YEAR_2100 - 60)
        assert store.lock_of("a") == Lock(YEAR_2100, legal_hold=False, compliance=True)


def test_a_container_that_keeps_no_single_blobs_is_told() -> None:
    with scripted(Container(blobs={"root/a": {}}, locks=False)) as store:
        with pytest.raises(UsageError, match="version-level immutability"):
            store.retain_until("a", YEAR_2100)
        with pytest.raises(UsageError, match="version-level immutability"):
            store.put_locked("b", b"123", until=YEAR_2100)


@pytest.mark.parametrize("hold", [True, False])
def test_an_object_is_locked_from_its_first_moment_on(hold: bool) -> None:
    container = Container()
    with scripted(container) as store:
        store.put_locked("a", b"123", until=YEAR_2100, legal_hold=hold)
        assert store.lock_of("a") == Lock(YEAR_2100, legal_hold=hold, compliance=True)
        with pytest.raises(AlreadyExists):
            store.put_locked("a", b"123", until=YEAR_2100)
    assert container.server.requests[0].method == "PUT"


def test_an_emulator_that_ignores_locks_is_not_believed(store: AzureStore) -> None:
    with pytest.raises(UsageError, match="did not lock it"):
        store.put_locked("a", b"123", until=YEAR_2100)
    with pytest.raises(UsageError, match=r"501 APINotImplemented.*version-level immutability"):
        store.retain_until("a", YEAR_2100)


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {UNTIL: date(YEAR_2100 - 1), MODE: "Locked", HOLD: "true"},
        {UNTIL: date(YEAR_2100), MODE: "Unlocked", HOLD: "true"},
        {UNTIL: date(YEAR_2100), MODE: "Locked"},
    ],
)
def test_a_server_that_locks_less_than_asked_is_not_believed(kept: dict[str, str]) -> None:
    with faulty_server(lambda asked: Answer(201) if asked.method == "PUT" else Answer(200, kept)) as server:
        url = f"az://box?endpoint=http://127.0.0.1:{server.port}/account"
        with pytest.raises(UsageError, match="is stored, but the server"):
            AzureStore(parse_url(url), AzureOptions(key=KEY)).put_locked("a", b"1", until=YEAR_2100, legal_hold=True)
