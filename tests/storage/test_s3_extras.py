"""What S3 can do beyond the protocol, against moto and SeaweedFS: locks, signed requests, versions, batches."""

import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from datasync.errors import AlreadyExists, NotAuthorized, NotFound, UsageError
from datasync.storage.extras import BatchDelete, Notes, ObjectLock, Presign, Retention, SignedRequest, Versions
from datasync.storage.location import parse_url
from datasync.storage.s3 import S3Credentials, S3Options, S3Store
from datasync.storage.s3.client import make_client
from tests.support.faulty_server import Answer, faulty_server
from tests.support.machine import Machine
from tests.support.servers import S3Server

DAY = 86_400.0


@pytest.fixture
def locked(moto: S3Server, fresh_bucket: str) -> Iterator[S3Store]:
    """A store in a bucket that was made for locks, and so keeps versions."""
    client = make_client(parse_url(moto.url(fresh_bucket)), moto.options())
    client.create_bucket(Bucket=fresh_bucket, ObjectLockEnabledForBucket=True)
    client.close()
    with closing(moto.open(fresh_bucket, "prefix")) as store:
        yield store


def plain(server: S3Server, bucket: str) -> S3Store:
    server.make_bucket(bucket)
    return server.open(bucket, "prefix")


def test_the_driver_has_each_of_the_extras(locked: S3Store) -> None:
    for protocol in (BatchDelete, Notes, ObjectLock, Presign, Retention, Versions):
        assert isinstance(locked, protocol), protocol


def test_a_locked_object_is_kept_from_its_first_moment_on(locked: S3Store) -> None:
    until = time.time() + 30 * DAY + 0.5
    locked.put_locked("audit/1", b"kept", until=until, legal_hold=True)
    lock = locked.lock_of("audit/1")
    assert (int(until) + 1, True, True) == (lock.until, lock.legal_hold, lock.compliance)
    version = next(iter(locked.list_versions("audit/1"))).version
    with pytest.raises(NotAuthorized):
        locked.delete_version("audit/1", version)
    locked.delete("audit/1")  # hides it; the version stays
    assert [item.version for item in locked.list_versions("audit/1") if not item.deleted] == [version]


def test_a_locked_put_never_replaces(locked: S3Store) -> None:
    locked.put_locked("audit/1", b"first", until=time.time() + DAY)
    with pytest.raises(AlreadyExists):
        locked.put_locked("audit/1", b"second", until=time.time() + DAY)
    assert locked.get("audit/1", limit=10) == b"first"
    assert not locked.lock_of("audit/1").legal_hold


def test_retention_is_given_later_and_never_shortened(locked: S3Store) -> None:
    locked.put_if_absent("one", b"x")
    assert locked.lock_of("one").until == 0
    late, early = float(int(time.time() + 20 * DAY)), time.time() + DAY
    locked.retain_until("one", late)
    locked.retain_until("one", early)
    assert locked.lock_of("one").until == late


def test_a_missing_object_has_no_lock(locked: S3Store) -> None:
    with pytest.raises(NotFound):
        locked.lock_of("never")


def test_a_bucket_without_locks_refuses_them(moto: S3Server, fresh_bucket: str) -> None:
    store = plain(moto, fresh_bucket)
    assert store.retention_days() is None
    with pytest.raises(UsageError):
        store.put_locked("one", b"x", until=time.time() + DAY)


def test_the_days_that_a_bucket_keeps_everything_are_told(moto: S3Server, fresh_bucket: str) -> None:
    store = plain(moto, fresh_bucket)
    client = make_client(parse_url(moto.url(fresh_bucket)), moto.options())
    client.put_bucket_versioning(Bucket=fresh_bucket, VersioningConfiguration={"Status": "Enabled"})
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 7}}
    client.put_object_lock_configuration(
        Bucket=fresh_bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    assert store.retention_days() == 7


def send(request: SignedRequest, body: bytes | None = None, more: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    headers = dict(request.headers) | dict(more or {})
    asked = urllib.request.Request(request.url, body, headers, method=request.method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def test_a_signed_request_lets_in_whoever_has_it(seaweedfs: S3Server, fresh_bucket: str) -> None:
    store = plain(seaweedfs, fresh_bucket)
    put, get = store.presign_put("one", 600), store.presign_get("one", 600)
    assert send(put, b"sent by another")[0] == 200
    assert send(put, b"sent twice")[0] == 412
    assert send(get) == (200, b"sent by another")
    assert send(get, more={"Range": "bytes=5-6"}) == (206, b"by")
    assert store.get("one", limit=100) == b"sent by another"
    assert abs(get.expires - time.time() - 600) < 60


def test_a_signed_request_that_is_changed_lets_nobody_in(seaweedfs: S3Server, fresh_bucket: str) -> None:
    store = plain(seaweedfs, fresh_bucket)
    store.put_if_absent("one", b"x")
    get = store.presign_get("one", 600)
    other = SignedRequest("GET", get.url.replace("/one?", "/two?"), get.headers, get.expires)
    assert send(other)[0] == 403
    assert "Signature" not in repr(get)


@pytest.mark.parametrize("seconds", [0, 7 * 24 * 3600 + 1])
def test_a_signed_request_holds_a_week_at_most(moto: S3Server, fresh_bucket: str, seconds: int) -> None:
    with pytest.raises(UsageError, match="7 days"):
        moto.open(fresh_bucket).presign_get("one", seconds)


def test_versions_are_seen_and_removed(locked: S3Store) -> None:
    assert locked.versioning() == "enabled"
    for body in (b"a", b"bb"):
        locked.put_if_absent("one", body)
        locked.delete("one")
    locked.put_if_absent("two", b"x")
    found = list(locked.list_versions(""))
    assert [item.name for item in found] == ["one"] * 4 + ["two"]
    assert [item.newest for item in found] == [True, False, False, False, True]
    assert (found[0].deleted, sorted(item.size for item in found if not item.deleted)) == (True, [1, 1, 2])
    for item in found[:4]:
        locked.delete_version(item.name, item.version)
    assert [item.name for item in locked.list_versions("")] == ["two"]


def test_a_bucket_that_never_kept_versions_says_so(moto: S3Server, fresh_bucket: str) -> None:
    assert plain(moto, fresh_bucket).versioning() == "off"


def test_many_objects_are_removed_with_few_requests(seaweedfs: S3Server, fresh_bucket: str) -> None:
    store = plain(seaweedfs, fresh_bucket)
    names = [f"many/{number}" for number in range(25)]
    for name in names:
        store.put_if_absent(name, b"x")
    store.delete_many([*names[:20], "never/there"])
    assert [item.name for item in store.list("")] == sorted(names[20:])
    store.delete_many([])


def test_a_batch_asks_for_a_thousand_names_at_a_time() -> None:
    done = Answer(200, {"Content-Type": "application/xml"}, b"<DeleteResult></DeleteResult>")
    with faulty_server(lambda _: done) as server:
        server.open().delete_many(f"name{number}" for number in range(2_500))
    assert [request.body.count(b"<Key>") for request in server.requests] == [1000, 1000, 500]


def test_what_a_batch_could_not_remove_is_named() -> None:
    error = b"<Error><Key>root/one</Key><Code>AccessDenied</Code><Message>SECRET</Message></Error>"
    done = Answer(200, {"Content-Type": "application/xml"}, b"<DeleteResult>" + error + b"</DeleteResult>")
    with faulty_server(lambda _: done) as server, pytest.raises(NotAuthorized, match="one was not removed") as caught:
        server.open().delete_many(["one", "two"])
    assert "SECRET" not in str(caught.value)


Asked = Callable[[S3Store], object]


@pytest.mark.parametrize(
    ("query", "put", "get"),
    [
        ("requester_pays=true", {"x-amz-request-payer": "requester"}, {"x-amz-request-payer": "requester"}),
        ("kms_key=default", {"x-amz-server-side-encryption": "aws:kms"}, {}),
        (
            "kms_key=arn:aws:kms:eu-west-1:1:key/a-b",
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:eu-west-1:1:key/a-b",
            },
            {},
        ),
    ],
)
def test_what_the_url_says_goes_with_each_request(query: str, put: dict[str, str], get: dict[str, str]) -> None:
    dated = {"Last-Modified": "Mon, 30 Nov 2026 08:00:00 GMT"}
    with faulty_server(lambda request: Answer(200, dated, b"" if request.method == "PUT" else b"data")) as server:
        store = S3Store(parse_url(f"{server.place()}&{query}"), S3Options(S3Credentials("AKIDTEST", "SECRET-KEY")))
        store.put_if_absent("one", b"data")
        store.get("one", limit=10)
        signed = store.presign_put("two", 60)
    for request, expected in zip(server.requests, (put, get), strict=True):
        found = {key: value for key, value in request.headers.items() if key in put | get}
        assert found == expected
    assert dict(signed.headers) == {"if-none-match": "*"} | put


def test_new_objects_go_into_the_class_that_the_url_asks_for(moto: S3Server, fresh_bucket: str) -> None:
    assert plain(moto, fresh_bucket).notes() == ()
    store = S3Store(parse_url(f"{moto.url(fresh_bucket, 'p')}&storage_class=STANDARD_IA"), moto.options())
    assert "fee for each byte read" in store.notes()[0]
    store.put_if_absent("one", b"x")
    client = make_client(parse_url(moto.url(fresh_bucket)), moto.options())
    assert client.head_object(Bucket=fresh_bucket, Key="p/one")["StorageClass"] == "STANDARD_IA"


def test_what_versions_and_retention_cost_is_told(locked: S3Store) -> None:
    assert any("keeps versions" in text for text in locked.notes())


@pytest.mark.parametrize(("name", "word"), [("DEEP_ARCHIVE", "restored before each read"), ("STANARD", "not known")])
def test_a_class_that_can_not_be_read_at_once_is_refused(name: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        S3Store(parse_url(f"s3://bucket?storage_class={name}"), S3Options(S3Credentials("AKID", "SECRET")))


@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("accelerate=true", "bucket.s3-accelerate.amazonaws.com"),
        ("dualstack=true", "bucket.s3.dualstack.eu-west-1.amazonaws.com"),
    ],
)
def test_the_endpoint_is_the_one_that_the_url_asks_for(query: str, host: str) -> None:
    store = S3Store(parse_url(f"s3://bucket?region=eu-west-1&{query}"), S3Options(S3Credentials("AKID", "SECRET")))
    assert store.presign_get("one", 60).url.startswith(f"https://{host}/one?")


def test_a_switch_is_true_or_false() -> None:
    with pytest.raises(UsageError, match="accelerate must be true or false"):
        S3Store(parse_url("s3://bucket?accelerate=yes"), S3Options(S3Credentials("AKID", os.urandom(4).hex())))


def test_a_class_with_a_fee_is_told_before_it_is_used(moto: S3Server, fresh_bucket: str, tmp_path: Path) -> None:
    machine = Machine.make(tmp_path / "home", moto.make_bucket(fresh_bucket), moto.environment())
    assert "fee for each byte read" in machine.must("init", "--storage-class", "STANDARD_IA").err
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_bytes(b"x")
    assert "fee for each byte read" in machine.must("push", tmp_path / "data", "--storage-class", "GLACIER_IR").err
    assert "fee" not in machine.must("push", tmp_path / "data").err
    client = make_client(parse_url(moto.url(fresh_bucket)), moto.options())
    found = {item["StorageClass"] for item in client.list_objects_v2(Bucket=fresh_bucket)["Contents"]}
    assert found == {"STANDARD_IA", "GLACIER_IR"}
    refused = machine.run("push", tmp_path / "data", "--storage-class", "DEEP_ARCHIVE")
    assert (refused.code, "restored" in refused.message) == (2, True)


def test_a_timetable_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    machine = Machine.make(tmp_path / "home", str(tmp_path / "repository"), {"DATASYNC_PUSH_BWLIMIT": "fast"})
    ran = machine.run("init")
    assert (ran.code, "08:00,50M 20:00,off" in ran.message) == (2, True)
