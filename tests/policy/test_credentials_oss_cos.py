"""Scoped credentials of OSS and COS, over sockets, against token services that check the request's signature and the
policy's grammar, and object servers that hold each session to its policy: prefix, action, time, forbid-overwrite.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from unittest import mock
from urllib.parse import quote

import pytest
from tencentcloud.common.common_client import CommonClient
from tencentcloud.common.credential import Credential as CloudKeys
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile

from datasync.config import Flags, load_config
from datasync.errors import AlreadyExists, NotAuthorized, SlowDown, StorageUnavailable, UsageError
from datasync.service.session import Session
from datasync.storage.brokers import Credential, Scope, load, sign_requests
from datasync.storage.cos import broker as cos
from datasync.storage.location import parse_url
from datasync.storage.oss import broker as oss
from datasync.storage.protocol import ObjectStore
from datasync.storage.sdk.credentials import Keys
from datasync.storage.sts import Codes, TokenService
from tests.policy.clouds import BROKER, HOUR, MINE, OTHER, Cloud, cloud_of
from tests.support.cos_server import APPID, cos_server
from tests.support.cos_server.sts import cos_sts
from tests.support.object_server import Account
from tests.support.policies import Role
from tests.support.stores import Running

READS = {
    "oss": {"Effect": "Allow", "Action": "oss:Get*", "Resource": "acs:oss:*:*:*"},
    "cos": {"effect": "allow", "action": "name/cos:Get*", "resource": f"qcs::cos:ap-beijing:uid/{APPID}:*"},
}


@pytest.fixture(params=["oss-oss2", "oss-v2", "cos"])
def cloud(request: pytest.FixtureRequest, running: Running, fresh_bucket: str) -> Iterator[Cloud]:
    """A bucket of two datasets, and a role that the broker alone may assume."""
    with cloud_of(running, request.param, fresh_bucket) as found:
        with closing(found.server.open(fresh_bucket, "repo")) as store:
            for name in (MINE, OTHER):
                store.put_if_absent(f"{name}packs/1", b"sealed")
        found.state.accounts[BROKER.access_key] = Account(BROKER.secret_key)
        found.roles[found.role] = Role(frozenset({BROKER.access_key}), longest=12 * HOUR)
        yield found


def refused(call: Callable[..., object], *arguments: object, **more: object) -> bool:
    """Tell whether the server said no for lack of rights."""
    try:
        call(*arguments, **more)
    except NotAuthorized as error:
        return "AccessDenied" in str(error) or "403" in str(error)
    return False


def test_a_session_reads_its_dataset_and_nothing_else(cloud: Cloud) -> None:
    credential = cloud.issue()
    with closing(cloud.open(credential)) as store:
        assert store.get(f"{MINE}packs/1", limit=10) == b"sealed"
        assert store.stat(f"{MINE}packs/1").size == 6
        assert [item.name for item in store.list(MINE)] == [f"{MINE}packs/1"]
        assert list(store.list_directories(MINE)) == ["packs"]
        assert refused(store.get, f"{OTHER}packs/1", limit=10)
        assert refused(store.stat, f"{OTHER}packs/1")
        for prefix in (OTHER, "d/", "", "d/aaa"):
            assert refused(lambda prefix=prefix: list(store.list(prefix))), prefix
        assert refused(store.put_if_absent, f"{MINE}packs/2", b"")
        assert refused(store.delete, f"{MINE}packs/1")
        assert refused(store.delete_many, [f"{MINE}packs/1"])
        assert refused(store.versioning)
    assert not cloud.bare_put(credential, f"{MINE}packs/1")


def test_a_session_that_creates_adds_and_neither_reads_nor_deletes(cloud: Cloud) -> None:
    with closing(cloud.open(cloud.issue(read=False, create=True))) as store:
        store.put_if_absent(f"{MINE}packs/2", b"new")
        with pytest.raises(AlreadyExists):
            store.put_if_absent(f"{MINE}packs/1", b"another")
        assert refused(store.put_if_absent, f"{OTHER}packs/2", b"")
        assert refused(store.get, f"{MINE}packs/1", limit=10)
        assert refused(store.delete, f"{MINE}packs/1")
        assert refused(store.delete_many, [f"{MINE}packs/1"])


def test_what_keeps_a_session_that_creates_from_overwriting(cloud: Cloud) -> None:
    """COS: the policy's condition. OSS has none, so a client that obeys nothing is stopped by the bucket's own rule."""
    credential, name = cloud.issue(create=True), f"{MINE}packs/1"
    if cloud.scheme == "cos":
        assert not cloud.bare_put(credential, name)
        assert not cloud.bare_put(credential, f"{MINE}packs/new")
    else:
        assert cloud.bare_put(credential, name), "docs/policy.md says that OSS can not keep this by a policy"
        cloud.state.buckets[cloud.place].protected = ("repo/",)
        assert not cloud.bare_put(credential, name)
        assert cloud.bare_put(credential, f"{MINE}packs/new")
    with closing(cloud.server.open(cloud.bucket, "repo")) as store:
        assert store.get(name, limit=10) == (b"sealed" if cloud.scheme == "cos" else b"another")


def test_a_session_ends_with_its_scope_and_before_its_keys_do(cloud: Cloud) -> None:
    until = int(time.time()) + 600
    credential = cloud.issue(until=until)
    assert credential.until == until
    expires = cloud.state.accounts[next(iter(credential.variables.values()))].expires
    assert expires is not None
    assert expires > until + 200, "keys last 15 minutes or more"
    with closing(cloud.open(credential)) as store:
        cloud.state.ahead = 590
        assert store.get(f"{MINE}packs/1", limit=10) == b"sealed"
        cloud.state.ahead = 602
        assert refused(store.get, f"{MINE}packs/1", limit=10)
        assert refused(lambda: list(store.list(MINE)))
    cloud.state.ahead = 0
    key = next(iter(credential.variables.values()))
    cloud.state.accounts[key] = replace(cloud.state.accounts[key], expires=time.time() - 1)
    with closing(cloud.open(credential)) as store, pytest.raises(NotAuthorized, match="have expired"):
        store.get(f"{MINE}packs/1", limit=10)


def test_a_session_can_do_no_more_than_its_role(cloud: Cloud) -> None:
    statement, oss_words = READS[cloud.scheme], cloud.scheme == "oss"
    names = ("Version", "Statement", "1") if oss_words else ("version", "statement", "2.0")
    text = json.dumps({names[0]: names[2], names[1]: [statement]})
    cloud.roles[cloud.role] = replace(cloud.roles[cloud.role], policy=text)
    with closing(cloud.open(cloud.issue(create=True))) as store:
        assert store.get(f"{MINE}packs/1", limit=10) == b"sealed"
        assert refused(store.put_if_absent, f"{MINE}packs/2", b"")


def test_a_session_without_its_token_or_with_another_secret_is_nothing(cloud: Cloud) -> None:
    variables = dict(cloud.issue().variables)
    for name in list(variables)[1:]:
        with (
            closing(cloud.open(Credential(variables | {name: "another"}, 0))) as store,
            pytest.raises(NotAuthorized),
        ):
            store.get(f"{MINE}packs/1", limit=10)


def test_the_variables_are_those_that_the_driver_reads(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cloud.issue().variables.items():
        monkeypatch.setenv(name, value)
    with closing(Session(load_config(Flags(repository=cloud.server.url(cloud.bucket, "repo")))).store) as store:
        assert store.get(f"{MINE}packs/1", limit=10) == b"sealed"
        assert refused(store.get, f"{OTHER}packs/1", limit=10)


def test_temporary_keys_of_the_broker_may_assume_the_role(cloud: Cloud) -> None:
    cloud.state.accounts[BROKER.access_key] = Account(BROKER.secret_key, "token", time.time() + HOUR)
    scope = Scope((MINE,), int(time.time()) + HOUR)
    assert cloud.broker(replace(BROKER, token="token")).issue(scope).until > time.time() + HOUR - 30
    with pytest.raises(NotAuthorized, match="own credential is not valid"):
        cloud.broker(replace(BROKER, token="other")).issue(scope)


def test_a_role_with_shorter_sessions_gives_shorter_credentials(cloud: Cloud) -> None:
    shortest = {"oss": HOUR, "cos": 2 * HOUR}[cloud.scheme]
    cloud.roles[cloud.role] = replace(cloud.roles[cloud.role], longest=shortest)
    now = time.time()
    credential = cloud.issue(until=int(now) + 12 * HOUR)
    assert now + shortest - 2 <= credential.until <= now + shortest + 30
    cloud.roles[cloud.role] = replace(cloud.roles[cloud.role], longest=600)
    with pytest.raises(UsageError, match="longest session"):
        cloud.issue()


def test_a_broker_is_told_what_is_wrong(cloud: Cloud) -> None:
    scope = Scope((MINE,), int(time.time()) + HOUR)
    for keys in (replace(BROKER, secret_key="another"), replace(BROKER, access_key="LTAI-unknown")):
        with pytest.raises(NotAuthorized, match=r"own credential is not valid") as caught:
            cloud.broker(keys).issue(scope)
        assert "another" not in str(caught.value)
    with pytest.raises(StorageUnavailable):
        cloud.broker(endpoint="http://127.0.0.1:9").issue(scope)
    with pytest.raises(StorageUnavailable):
        cloud.broker(endpoint=f"http://127.0.0.1:{cloud.server.port}").issue(scope)  # no token service at all
    cloud.roles[cloud.role] = Role(frozenset({"somebody else"}))
    with pytest.raises(NotAuthorized, match="trust policy does not name it"):
        cloud.issue()
    cloud.roles.clear()
    with pytest.raises(UsageError, match=r"check \[policy\] role"):
        cloud.issue()


def test_a_signed_request_needs_no_credential_and_fits_one_object(cloud: Cloud) -> None:
    credential = cloud.issue(create=True)
    with closing(cloud.open(credential)) as store:
        get = sign_requests(store, [f"{MINE}packs/1"], 60)[f"{MINE}packs/1"]
        put = sign_requests(store, [f"{MINE}packs/3"], 60, create=True)[f"{MINE}packs/3"]
        for seconds in (0, 8 * 24 * HOUR):
            with pytest.raises(UsageError, match="expected 1 to"):
                sign_requests(store, [MINE], seconds)
    assert _send(cloud, get.url, "GET", get.headers) == (200, b"sealed")
    assert _send(cloud, get.url.replace("aaaa", "bbbb"), "GET", get.headers)[0] == 403
    assert _send(cloud, put.url, "PUT", put.headers, b"one")[0] == 200
    assert _send(cloud, put.url, "PUT", put.headers, b"two")[0] == 409
    assert _send(cloud, put.url, "PUT", (("Content-Type", "application/octet-stream"),), b"two")[0] == 403
    with closing(cloud.server.open(cloud.bucket, "repo")) as store:
        assert store.get(f"{MINE}packs/3", limit=10) == b"one"
    memory = mock.Mock(spec=ObjectStore, url="memory://x")
    with pytest.raises(UsageError, match="signs no URLs"):
        sign_requests(memory, ["a"], 60)


def _send(
    cloud: Cloud, url: str, method: str, headers: tuple[tuple[str, str], ...], body: bytes | None = None
) -> tuple[int, bytes]:
    """Send to this machine, whatever the name in the URL."""
    host, _, rest = url.removeprefix("http://").partition("/")
    request = urllib.request.Request(f"http://127.0.0.1:{cloud.server.port}/{rest}", body, dict(headers))
    request.add_header("Host", host)
    request.method = method
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


# the policy's text


def test_a_prefix_can_not_widen_the_policy() -> None:
    urls = ("oss://b1a/repo?region=cn-beijing", "cos://b-1250000000/repo?region=ap-beijing")
    for url, module in zip(map(parse_url, urls), (oss, cos), strict=True):
        for prefix in ("*", "d/?", "${acs:SourceIp}/"):
            with pytest.raises(UsageError, match="can not name"):
                module.session_policy(url, Scope((prefix,), 1))
        with pytest.raises(UsageError, match="ask for fewer"):
            module.session_policy(url, Scope(tuple(f"d/{'a' * 64}{n}/" for n in range(20)), 1))


def test_the_policies_name_what_the_vendors_name() -> None:
    scope = Scope(("datasync.json", MINE), 1_800_000_000, create=True)
    found = json.loads(oss.session_policy(parse_url("oss://b1a/ds?region=cn-beijing"), scope))["Statement"]
    assert [item["Action"] for item in found] == [["oss:ListObjects"], ["oss:GetObject"], ["oss:PutObject"]]
    assert found[1]["Resource"] == ["acs:oss:*:*:b1a/ds/datasync.json*", "acs:oss:*:*:b1a/ds/d/aaaa/*"]
    assert {item["Condition"]["DateLessThan"]["acs:CurrentTime"] for item in found} == {"2027-01-15T08:00:00Z"}
    found = json.loads(cos.session_policy(parse_url("cos://b-1250000000/ds?region=ap-beijing"), scope))["statement"]
    assert [item["action"][0] for item in found] == ["name/cos:GetBucket", "name/cos:GetObject", "name/cos:PutObject"]
    assert found[0]["condition"]["string_like"] == {"cos:prefix": ["ds%2Fdatasync.json*", "ds%2Fd%2Faaaa%2F*"]}
    assert found[1]["resource"][1] == "qcs::cos:ap-beijing:uid/1250000000:b-1250000000/ds/d/aaaa/*"
    assert {item["condition"]["date_less_than"]["qcs:current_time"] for item in found} == {"2027-01-15T08:00:00Z"}


# the service


@pytest.mark.parametrize("endpoint", ["http://sts.example.com", "ftp://x", "https://", "https://a@b", "https://a/b"])
def test_a_token_service_is_asked_over_https_or_on_this_machine(endpoint: str) -> None:
    with pytest.raises(UsageError, match="sts_endpoint"):
        TokenService("r", endpoint, Codes((), (), ""))


def test_codes_tell_what_to_do_and_hold_no_secret() -> None:
    service = TokenService("r", "https://sts.example.com", Codes(("No.",), ("Busy",), "Long"))
    kinds = {"No.Way": NotAuthorized, "Busy": SlowDown, "Odd": UsageError, "": StorageUnavailable}
    for code, kind in kinds.items():
        assert type(service.refusal(code, 502 if not code else 400)) is kind
    assert isinstance(service.refusal("Anything", 500), StorageUnavailable)
    assert "<" not in str(service.refusal("<b>line\nbreak", 400))
    service.close()


def test_the_signature_is_that_of_the_vendors_example() -> None:
    """The fixed example of the page "V3 request structure and signature"."""
    headers = {
        "host": "ecs.cn-shanghai.aliyuncs.com",
        "x-acs-action": "RunInstances",
        "x-acs-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x-acs-date": "2023-10-26T10:22:32Z",
        "x-acs-signature-nonce": "3156853299f313e23d1673dc12e1703d",
        "x-acs-version": "2014-05-26",
    }
    query = "ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd&RegionId=cn-shanghai"
    found = oss.authorization(Keys("YourAccessKeyId", "YourAccessKeySecret"), query, headers)
    assert found.endswith("Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0")


def test_the_vendors_own_client_gets_a_session_from_the_same_server() -> None:
    """So the server checks TC3-HMAC-SHA256 as the vendor signs it, and takes the policy that we write."""
    policy = cos.session_policy(parse_url("cos://b-1250000000/ds?region=ap-beijing"), Scope((MINE,), 1_900_000_000))
    asked = {"RoleArn": "r", "RoleSessionName": "node", "DurationSeconds": 900, "Policy": quote(policy, safe="")}
    with cos_server() as server, cos_sts(server.state, {"r": Role(frozenset({BROKER.access_key}))}) as endpoint:
        server.state.accounts[BROKER.access_key] = Account(BROKER.secret_key)
        profile = ClientProfile(httpProfile=HttpProfile(protocol="http", endpoint=endpoint.removeprefix("http://")))
        keys = CloudKeys(BROKER.access_key, BROKER.secret_key)
        client = CommonClient("sts", "2018-08-13", keys, "ap-beijing", profile)
        found = client.call_json("AssumeRole", asked)["Response"]
        assert found["Credentials"]["TmpSecretId"] in server.state.accounts


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    with pytest.raises(UsageError, match=r"no_such_package: pip install 'gpu-datasync\[cos\]'"):
        load("no_such_package.broker:Broker", "cos")
