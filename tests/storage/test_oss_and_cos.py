"""What OSS, through both SDKs, and COS do beyond the contract: changing keys, signed requests, versions, retention."""

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from datasync.errors import AlreadyExists, DatasyncError, NotAuthorized, NotFound, StorageUnavailable, UsageError
from datasync.storage.extras import (
    BatchDelete,
    Notes,
    Presign,
    Retention,
    SignedRequest,
    StorageClass,
    Versions,
)
from datasync.storage.http import HttpOptions
from datasync.storage.location import parse_url
from datasync.storage.probe import honours_put_if_absent
from datasync.storage.sdk.credentials import Keys
from datasync.storage.sdk.session import SdkSession
from datasync.storage.sdk.store import SdkStore
from tests.support.cos_server import CosServer
from tests.support.object_server import Account, Bucket
from tests.support.oss_server import OssServer
from tests.support.stores import Running

AnyServer = OssServer | CosServer
DAY = 86_400


@pytest.fixture(params=["oss-oss2", "oss-v2", "cos"])
def server(request: pytest.FixtureRequest, running: Running) -> Iterator[AnyServer]:
    """A server of each kind whose clock and accounts are put back afterwards."""
    found = running.server(request.param)
    assert isinstance(found, OssServer | CosServer)
    accounts = dict(found.state.accounts)
    yield found
    found.state.accounts = accounts
    found.state.ahead = 0.0


@pytest.fixture
def bucket(server: AnyServer) -> str:
    name = f"b{os.urandom(6).hex()}"
    server.make_bucket(name)
    return name


@pytest.fixture
def store(server: AnyServer, bucket: str) -> SdkStore:
    return server.open(bucket, "root")


def state_of(server: AnyServer, bucket: str) -> Bucket:
    buckets = server.state.buckets
    return buckets[next(name for name in buckets if name.startswith(bucket))]


def opened(server: AnyServer, bucket: str, keys: Keys) -> SdkStore:
    return server.with_keys(keys).open(bucket, "root")


def sent(request: SignedRequest, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Send a signed request as somebody does who has no credentials."""
    with SdkSession(HttpOptions()) as session:
        answer = session.request(request.method, request.url, data=body, headers=dict(request.headers) | headers)
        return answer.status_code, answer.content


def test_it_can_all_that_it_says(store: SdkStore) -> None:
    for kind in (BatchDelete, Presign, Versions, Retention, StorageClass, Notes):
        assert isinstance(store, kind)


# keys


def test_keys_that_change_in_the_middle_fail_nothing(server: AnyServer, bucket: str) -> None:
    """Every request asks for the keys of its moment: the old ones are gone from the server as new ones come."""
    current = [Keys("TMP.0", "secret-0", "token-0")]
    place = parse_url(server.url(bucket, "root"))
    store = _open_with(server, place, current)
    for number in range(20):
        keys = Keys(f"TMP.{number}", f"secret-{number}", f"token-{number}")
        server.state.accounts = {keys.access_key: Account(keys.secret_key, keys.token, time.time() + 60)}
        current[0] = keys
        store.put_if_absent(f"o/{number}", b"x")
        assert store.get(f"o/{number}", limit=1) == b"x"
        assert len(list(store.list("o/"))) == number + 1


def test_keys_that_change_while_many_threads_send_never_mix(server: AnyServer, bucket: str) -> None:
    keys = [Keys(f"TMP.{number}", f"secret-{number}", f"token-{number}") for number in range(2)]
    server.state.accounts = {item.access_key: Account(item.secret_key, item.token, time.time() + 600) for item in keys}
    turn = iter(range(1_000_000))
    lock = threading.Lock()
    failed = list[DatasyncError]()

    def now() -> Keys:
        with lock:
            return keys[next(turn) % 2]

    store = _open_asking(server, parse_url(server.url(bucket)), now)

    def work(number: int) -> None:
        try:
            for part in range(10):
                store.put_if_absent(f"{number}/{part}", b"x")
        except DatasyncError as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def _open_with(server: AnyServer, place: object, current: list[Keys]) -> SdkStore:
    return _open_asking(server, place, lambda: current[0])


def _open_asking(server: AnyServer, place: object, keys: object) -> SdkStore:
    from datasync.storage.cos import open_cos
    from datasync.storage.oss import open_oss

    return (open_cos if isinstance(server, CosServer) else open_oss)(place, keys=keys)  # type: ignore[arg-type]


def test_an_expired_token_is_told_once_and_tried_once(server: AnyServer, bucket: str) -> None:
    keys = Keys("TMP.1", "secret-1", "token-1")
    server.state.accounts["TMP.1"] = Account("secret-1", "token-1", time.time() - 1)
    store, before = opened(server, bucket, keys), len(server.state.requests)
    with pytest.raises(NotAuthorized, match="have expired or are not valid; renew them") as caught:
        store.put_if_absent("one", b"x")
    assert len(server.state.requests) == before + 1
    assert not [part for part in ("token-1", "secret-1", "ignature=") if part in str(caught.value)]


@pytest.mark.parametrize("token", ["", "of-somebody-else"])
def test_a_token_that_does_not_belong_is_refused(server: AnyServer, bucket: str, token: str) -> None:
    server.state.accounts["TMP.1"] = Account("secret-1", "token-1", time.time() + 60)
    store = opened(server, bucket, Keys("TMP.1", "secret-1", token))
    with pytest.raises(NotAuthorized):
        store.put_if_absent("one", b"x")


@pytest.mark.parametrize("wrong", ["key", "secret"])
def test_wrong_keys_are_refused_for_every_request(server: AnyServer, bucket: str, wrong: str) -> None:
    right = server.keys
    keys = replace(right, access_key="UNKNOWN") if wrong == "key" else replace(right, secret_key="a-wrong-secret")
    store = opened(server, bucket, keys)
    for call in (
        lambda: store.put_if_absent("one", bytes(300_000)),
        lambda: store.get("one", limit=1),
        lambda: store.stat("one"),
        lambda: list(store.list("")),
        lambda: store.delete("one"),
    ):
        with pytest.raises(NotAuthorized) as caught:
            call()
        assert "a-wrong-secret" not in str(caught.value)


def test_a_reader_reads_and_can_not_write(server: AnyServer, bucket: str, store: SdkStore) -> None:
    store.put_if_absent("one", b"x")
    server.state.accounts["READER"] = Account("secret", writes=False, deletes=False)
    reader = opened(server, bucket, Keys("READER", "secret"))
    assert reader.get("one", limit=1) == b"x"
    with pytest.raises(NotAuthorized, match="403 AccessDenied; these credentials lack the right"):
        reader.put_if_absent("two", b"x")
    with pytest.raises(NotAuthorized):
        reader.delete("one")


@pytest.mark.parametrize(("ahead", "word"), [(7_200, "behind"), (-7_200, "ahead of")])
def test_a_wrong_clock_is_told_by_how_much(server: AnyServer, store: SdkStore, ahead: int, word: str) -> None:
    server.state.ahead = ahead
    for call in (lambda: store.put_if_absent("one", b"x"), lambda: store.stat("one")):
        with pytest.raises(NotAuthorized) as caught:
            call()
        found = re.search(rf"clock is (\d+) seconds {word} the server's; set it", str(caught.value))
        assert found is not None
        assert abs(int(found[1]) - abs(ahead)) < 60


def test_a_missing_bucket_is_named(server: AnyServer) -> None:
    store = server.open("nosuchbucket")
    for call in (
        lambda: store.put_if_absent("one", b"x"),
        lambda: store.get("one", limit=1),
        lambda: list(store.list("")),
        lambda: store.delete("one"),
        lambda: store.versioning(),
    ):
        with pytest.raises(NotFound, match=r"bucket nosuchbucket.* does not exist"):
            call()


# integrity


def test_a_body_that_changed_on_the_way_is_not_stored(server: AnyServer, bucket: str, store: SdkStore) -> None:
    with pytest.raises(StorageUnavailable, match="Digest"), store._failing("one"):
        store._client.put("root/one", b"other bytes", {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="})
    assert list(store.list("")) == []


def test_a_netrc_does_not_replace_the_signature(
    store: SdkStore, server: AnyServer, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = f"{tmp_path}/netrc"
    with open(netrc, "w") as file:
        file.write("default login somebody password else\n")
    monkeypatch.setenv("NETRC", netrc)
    store.put_if_absent("one", b"x")
    assert store.stat("one").size == 1


# signed requests


def test_a_signed_get_lets_in_without_credentials_until_it_expires(server: AnyServer, store: SdkStore) -> None:
    store.put_if_absent("d/one", bytes(range(100)))
    request = store.presign_get("d/one", 600)
    assert sent(request) == (200, bytes(range(100)))
    assert sent(request, Range="bytes=10-19") == (206, bytes(range(10, 20)))
    assert "ignature" not in repr(request)
    assert sent(replace(request, url=request.url.replace("one", "two")))[0] == 403
    server.state.ahead = 601
    assert sent(request)[0] == 403


def test_a_signed_put_creates_once(server: AnyServer, store: SdkStore) -> None:
    request = store.presign_put("d/one", 600)
    without = replace(request, headers=tuple(pair for pair in request.headers if "overwrite" not in pair[0]))
    assert sent(without, b"not without the condition")[0] == 403
    assert sent(request, b"hello")[0] == 200
    assert sent(request, b"again")[0] == 409
    assert store.get("d/one", limit=5) == b"hello"


def test_a_signed_request_of_temporary_keys_ends_with_them(server: AnyServer, bucket: str) -> None:
    server.state.accounts["TMP.1"] = Account("secret-1", "token-1", time.time() + 60)
    store = opened(server, bucket, Keys("TMP.1", "secret-1", "token-1"))
    store.put_if_absent("one", b"x")
    request = store.presign_get("one", 600)
    assert sent(request) == (200, b"x")
    server.state.ahead = 61
    assert sent(request)[0] == 403


# many at once


def test_many_objects_go_with_few_requests(server: AnyServer, store: SdkStore, bucket: str) -> None:
    objects = state_of(server, bucket)
    names = [f"p/{number:05}" for number in range(1_005)]
    for name in names:
        objects.add(f"root/{name}", b"x", time.time())
    before = len(server.state.requests)
    store.delete_many([*names, "p/never-there"])
    assert len(server.state.requests) == before + 2
    assert list(store.list("")) == []
    store.delete_many([])


def test_an_object_that_can_not_go_is_named_after_the_others_went(
    server: AnyServer, store: SdkStore, bucket: str
) -> None:
    for name in ("a", "b", "c"):
        store.put_if_absent(name, b"x")
    there = state_of(server, bucket)
    there.retention_days = 1
    there.objects["root/a"] = [there.objects["root/a"][0]._replace(modified=time.time() - 2 * DAY)]
    with pytest.raises(NotAuthorized, match=r"root.*: b( was not removed|: )"):
        store.delete_many(["a", "b", "c"])
    assert [item.name for item in store.list("")] == ["b", "c"]


# versions


@pytest.mark.parametrize("versioning", ["Enabled", "Suspended"])
def test_versions_switch_put_if_absent_off_and_the_probe_notices(
    server: AnyServer, store: SdkStore, bucket: str, versioning: str
) -> None:
    assert store.versioning() == "off"
    assert honours_put_if_absent(store)
    assert store.notes() == ()
    state_of(server, bucket).versioning = versioning
    assert store.versioning() == versioning.lower()
    assert not honours_put_if_absent(store)
    (note,) = store.notes()
    assert "forbid-overwrite has no effect" in note


def test_versions_are_listed_newest_first_and_removed_one_by_one(
    server: AnyServer, store: SdkStore, bucket: str
) -> None:
    state_of(server, bucket).versioning = "Enabled"
    store.put_if_absent("d/one", b"1")
    store.put_if_absent("d/one", b"22")
    store.delete("d/one")
    store.put_if_absent("d/two", b"333")
    found = list(store.list_versions("d/"))
    assert [(item.name, item.newest, item.deleted, item.size) for item in found] == [
        ("d/one", True, True, 0), ("d/one", False, False, 2), ("d/one", False, False, 1), ("d/two", True, False, 3),
    ]  # fmt: skip
    with pytest.raises(NotFound):
        store.get("d/one", limit=9)
    store.delete_version("d/one", found[0].version)
    assert store.get("d/one", limit=9) == b"22"
    for item in found[1:3]:
        store.delete_version("d/one", item.version)
    assert [item.name for item in store.list_versions("")] == ["d/two"]


def test_more_than_a_page_of_versions(server: AnyServer, store: SdkStore, bucket: str) -> None:
    there = state_of(server, bucket)
    there.versioning = "Enabled"
    for number in range(350):
        for _ in range(3):
            there.add(f"root/v/{number:04}", b"x", time.time())
    found = list(store.list_versions("v/"))
    assert len(found) == 1_050
    assert len({(item.name, item.version) for item in found}) == 1_050


# retention and storage classes


def test_a_bucket_that_keeps_says_for_how_long_and_keeps(server: AnyServer, store: SdkStore, bucket: str) -> None:
    store.put_if_absent("one", b"x")
    assert store.retention_days() is None
    state_of(server, bucket).retention_days = 30
    assert store.retention_days() == 30
    assert "keeps every object for 30 days" in " ".join(store.notes())
    with pytest.raises(NotAuthorized):
        store.delete("one")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("one", b"y")
    with pytest.raises(UsageError, match="whole buckets"):
        store.retain_until("one", time.time() + DAY)


def test_a_storage_class_goes_with_every_put(server: AnyServer, store: SdkStore, bucket: str) -> None:
    spelled = "STANDARD_IA" if isinstance(server, CosServer) else "IA"
    cold = store.with_storage_class(spelled.lower())
    cold.put_if_absent("cold", b"x")
    store.put_if_absent("warm", b"x")
    objects = state_of(server, bucket).objects
    assert objects["root/cold"][0].storage_class == spelled
    assert objects["root/warm"][0].storage_class == ""
    assert "fee for each byte read" in store.fees_of(spelled)
    assert "fee for each byte read" in " ".join(cold.notes())
    assert store.fees_of("Standard") == ""
    for name in ("Archive", "Diamond"):
        with pytest.raises(UsageError, match="must be restored before it can be read"):
            store.with_storage_class(name)


def test_the_url_can_name_the_storage_class(server: AnyServer, bucket: str) -> None:
    spelled = "STANDARD_IA" if isinstance(server, CosServer) else "IA"
    store = _open_with(server, parse_url(f"{server.url(bucket)}&storage_class={spelled}"), [server.keys])
    store.put_if_absent("cold", b"x")
    assert state_of(server, bucket).objects["cold"][0].storage_class == spelled


# the wire


def test_what_only_s3_clients_send_is_refused(server: AnyServer, store: SdkStore) -> None:
    for headers in (
        {"Content-Encoding": "aws-chunked"},
        {"x-amz-trailer": "x-amz-checksum-crc32"},
        {"Trailer": "x"},
        {"Authorization": "AWS4-HMAC-SHA256 Credential=x", "x-amz-content-sha256": "UNSIGNED-PAYLOAD"},
    ):
        request = store.presign_put("one", 600)
        assert sent(request, b"x", **headers)[0] in (400, 403, 501), headers
    assert list(store.list("")) == []


def test_a_server_that_never_answers_is_left(server: AnyServer) -> None:
    """Connected and then nothing: neither for a small body, nor a large one, nor an answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        url = server.url("black", "root").replace(str(server.port), str(listener.getsockname()[1]))
        from datasync.storage.cos import open_cos
        from datasync.storage.oss import open_oss

        make = open_cos if isinstance(server, CosServer) else open_oss
        store = make(parse_url(url), keys=lambda: server.keys, options=HttpOptions(0.2, 0.2))
        for call in (
            lambda: store.get("one", limit=1),
            lambda: store.put_if_absent("one", b"x"),
            lambda: store.put_if_absent("one", bytes(8_000_000)),
            lambda: list(store.list("")),
        ):
            with pytest.raises(StorageUnavailable):
                call()
