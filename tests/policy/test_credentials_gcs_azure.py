"""Scoped storage credentials of Google Cloud and Azure, over sockets.

Google: our own server for tokens, impersonation, the exchange and what a downscoped token allows, in front of
fake-gcs-server (`tests/support/gcs_sts.py`). Azure: azurite, Microsoft's own emulator, which checks every signature,
also those of a user delegation key.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest

from datasync.errors import AlreadyExists, DatasyncError, NotAuthorized, StorageUnavailable, UsageError
from datasync.service.borrow import LENT_STORES
from datasync.service.credentials import BROKERS
from datasync.storage.azure import AzureOptions, AzureStore
from datasync.storage.azure import broker as azure_broker
from datasync.storage.azure.broker import AzureSasBroker
from datasync.storage.brokers import Credential, Scope, load
from datasync.storage.gcs import GcsOptions, GcsStore
from datasync.storage.gcs import broker as gcs_broker
from datasync.storage.gcs.broker import TOKEN_SCOPE, GcsBroker, access_boundary
from datasync.storage.gcs.credentials import TOKEN_VARIABLE
from datasync.storage.location import parse_url
from datasync.storage.protocol import ObjectStore
from tests.support.azurite import KEY, AzureServer, azurite, identity_token, missing
from tests.support.daemons import make_certificates
from tests.support.faulty_server import Answer, faulty_server
from tests.support.gcs import GcsServer
from tests.support.gcs_sts import ALL, Account, Google, google
from tests.support.google_conditions import Refused, parse_boundary
from tests.support.people import Person
from tests.support.stores import Running

MINE, OTHER = "d/aaaa/", "d/bbbb/"
READER, OWNER = "reader@site.iam.gserviceaccount.com", "owner@site.iam.gserviceaccount.com"
VARIABLES = (
    "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT",
    "STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", TOKEN_VARIABLE,
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credential of this machine's user is in the way."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def scope(seconds: float = 3600, **more: bool) -> Scope:
    return Scope((MINE,), int(time.time() + seconds), **more)


def refused(store: ObjectStore, what: str, name: str) -> bool:
    """Tell whether the store refuses to do *what* with *name* for want of a right."""
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get(name, limit=100),
        "list": lambda: list(store.list(name)),
        "put": lambda: store.put_if_absent(name, b"new"),
        "delete": lambda: store.delete(name),
    }
    with suppress(NotAuthorized):
        calls[what]()
        return False
    return True


# Google Cloud


@pytest.fixture(scope="module")
def cloud(running: Running) -> Iterator[Google]:
    objects = running.server("gcs")
    assert isinstance(objects, GcsServer)
    owner = Account(OWNER, ALL, frozenset({READER}))
    with google(objects, owner, Account(READER, ALL)) as made:
        yield made


@pytest.fixture
def bucket(cloud: Google, fresh_bucket: str) -> Iterator[str]:
    """A bucket with an object of each of two datasets, and the server as it was."""
    with closing(cloud.objects.open(fresh_bucket, "repo")) as store:
        cloud.objects.make_bucket(fresh_bucket)
        for name in (MINE, OTHER):
            store.put_if_absent(f"{name}packs/1", b"sealed")
    yield fresh_bucket
    cloud.ahead, cloud.broken = 0.0, None


def own_token(cloud: Google, email: str = OWNER) -> str:
    return cloud.issue(cloud.accounts[email], {"https://www.googleapis.com/auth/cloud-platform"}, 3600)


def broker(cloud: Google, bucket: str, **more: str) -> GcsBroker:
    token = f"Bearer {own_token(cloud)}"
    where = parse_url(cloud.url(bucket, "repo"))
    return GcsBroker(where, more.get("role", READER), endpoint=cloud.endpoint, token=lambda: token)


def opened(cloud: Google, bucket: str, credential: Credential) -> GcsStore:
    store = gcs_broker.open_lent(parse_url(cloud.url(bucket, "repo")), credential.variables)
    assert isinstance(store, GcsStore)
    return store


def test_a_downscoped_token_reads_its_dataset_and_nothing_else(cloud: Google, bucket: str) -> None:
    credential = broker(cloud, bucket).issue(scope())
    with closing(opened(cloud, bucket, credential)) as store:
        assert store.get(f"{MINE}packs/1", limit=100) == b"sealed"
        assert [item.name for item in store.list(f"{MINE}packs/")] == [f"{MINE}packs/1"]
        for what, name in (("get", f"{OTHER}packs/1"), ("list", OTHER), ("list", "d/"), ("list", "")):
            assert refused(store, what, name), (what, name)
        for what in ("put", "delete"):
            assert refused(store, what, f"{MINE}packs/1"), what
            assert refused(store, what, f"{MINE}packs/2"), what


def test_a_downscoped_token_that_adds_replaces_and_deletes_nothing(cloud: Google, bucket: str) -> None:
    credential = broker(cloud, bucket).issue(scope(create=True))
    with closing(opened(cloud, bucket, credential)) as store:
        store.put_if_absent(f"{MINE}packs/2", b"more")
        assert store.get(f"{MINE}packs/2", limit=100) == b"more"
        with pytest.raises(AlreadyExists):
            store.put_if_absent(f"{MINE}packs/1", b"other")
        assert refused(store, "put", f"{OTHER}packs/2")
        assert refused(store, "delete", f"{MINE}packs/1")
        assert _put_without_condition(cloud, bucket, credential, f"repo/{MINE}packs/1") == 403
        assert _put_without_condition(cloud, bucket, credential, f"repo/{MINE}packs/3") == 200
        assert store.get(f"{MINE}packs/1", limit=100) == b"sealed"


def _put_without_condition(cloud: Google, bucket: str, credential: Credential, key: str) -> int:
    """Do what only a hostile client does, and return the answer's status."""
    body = f'--x\r\nContent-Type: application/json\r\n\r\n{{"name": "{key}"}}\r\n--x\r\n\r\nmine\r\n--x--\r\n'.encode()
    headers = {
        "Authorization": f"Bearer {credential.variables[TOKEN_VARIABLE]}",
        "Content-Type": "multipart/related; boundary=x",
    }
    target = f"{cloud.endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=multipart"
    try:
        with urllib.request.urlopen(urllib.request.Request(target, body, headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_token_that_only_adds_lists_and_reads_nothing(cloud: Google, bucket: str) -> None:
    credential = broker(cloud, bucket).issue(scope(read=False, create=True))
    with closing(opened(cloud, bucket, credential)) as store:
        store.put_if_absent(f"{MINE}packs/2", b"more")
        assert [item.name for item in store.list(MINE)] == [f"{MINE}packs/1", f"{MINE}packs/2"]
        assert refused(store, "get", f"{MINE}packs/1")
        assert refused(store, "list", OTHER)


def test_a_downscoped_token_is_nothing_after_its_end_and_its_end_is_told(cloud: Google, bucket: str) -> None:
    now = time.time()
    credential = broker(cloud, bucket).issue(scope(600))
    assert now + 597 < credential.until <= now + 600
    assert broker(cloud, bucket).issue(scope(12 * 3600)).until <= time.time() + 3600  # an account's token is no longer
    with closing(opened(cloud, bucket, credential)) as store:
        assert store.get(f"{MINE}packs/1", limit=100) == b"sealed"
        cloud.ahead = 601
        with pytest.raises(NotAuthorized, match="expired") as caught:
            store.get(f"{MINE}packs/1", limit=100)
        assert credential.variables[TOKEN_VARIABLE] not in str(caught.value)


def test_a_downscoped_token_becomes_no_wider_one(cloud: Google, bucket: str) -> None:
    token = broker(cloud, bucket).issue(scope()).variables[TOKEN_VARIABLE]
    where, wider = parse_url(cloud.url(bucket, "repo")), Scope(("d/",), int(time.time()) + 600)
    again = GcsBroker(where, READER, endpoint=cloud.endpoint, token=lambda: f"Bearer {token}")
    with pytest.raises(NotAuthorized, match=r"may not impersonate it.*serviceAccountTokenCreator"):
        again.issue(wider)
    with pytest.raises(UsageError, match="the server answered 400"):
        again._exchanged(token, access_boundary(where, wider))
    cloud.objects.make_bucket(f"{bucket}b")
    for place, held in ((bucket, False), (f"{bucket}b", True)):
        with closing(opened(cloud, place, Credential({TOKEN_VARIABLE: token}, 0))) as store:
            assert refused(store, "list", MINE) is held


def test_the_brokers_own_troubles_are_told_without_a_token(cloud: Google, bucket: str) -> None:
    stranger = broker(cloud, bucket, role="nobody@site.iam.gserviceaccount.com")
    where = parse_url(cloud.url(bucket, "repo"))
    unknown = GcsBroker(where, READER, endpoint=cloud.endpoint, token=lambda: "Bearer SECRET")
    for one in (stranger, unknown):
        with pytest.raises(NotAuthorized, match="may not impersonate it") as caught:
            one.issue(scope())
        assert "SECRET" not in str(caught.value)
    troubles: list[tuple[str, Answer, type[DatasyncError]]] = [
        ("/v1/token", Answer(503, {}, b"SECRET"), StorageUnavailable),
        ("/v1/token", Answer(403, {}, b"SECRET"), NotAuthorized),
        ("/v1/token", Answer(400, {}, b"SECRET"), UsageError),
        ("/v1/token", Answer(200, {}, b"SECRET"), StorageUnavailable),
        ("/v1/token", Answer(200, {}, b'{"access_token": ""}'), StorageUnavailable),
        ("generateAccessToken", Answer(429, {}, b"SECRET"), StorageUnavailable),
        ("generateAccessToken", Answer(200, {}, b'{"accessToken": "SECRET"}'), StorageUnavailable),
    ]
    for path, answer, kind in troubles:
        cloud.broken = path, answer
        with pytest.raises(kind) as caught_here:
            broker(cloud, bucket).issue(scope())
        assert "SECRET" not in str(caught_here.value)


def test_an_exchange_that_cuts_nothing_off_is_refused(cloud: Google, bucket: str) -> None:
    cloud.broken = "/v1/token", Answer(200, {}, b'{"access_token": "same"}')
    with pytest.raises(StorageUnavailable, match="holds no token"):
        broker(cloud, bucket)._exchanged("same", "{}")


def test_what_can_not_be_a_google_broker_is_said_before_anything_is_asked() -> None:
    where = parse_url("gs://bucket/repo")
    for role in ("arn:aws:iam::1:role/x", "container", "a@b/../c", ""):
        with pytest.raises(UsageError, match="address of a service account"):
            GcsBroker(where, role)
    with pytest.raises(UsageError, match="https only"):
        GcsBroker(where, READER, endpoint="http://sts.example")
    with pytest.raises(UsageError, match="https only"):
        gcs_broker.open_lent(parse_url("gs://bucket?endpoint=http://far.example"), {TOKEN_VARIABLE: "x"})
    for text in ("", "two words", "line\r\nX-Other: 1"):
        with pytest.raises(UsageError, match="without blanks"):
            gcs_broker.open_lent(where, {TOKEN_VARIABLE: text})
    with pytest.raises(KeyError):
        gcs_broker.open_lent(where, {})


def boundary(**more: object) -> dict[str, object]:
    usual: dict[str, object] = {"prefixes": (MINE,), "until": 1}
    text = access_boundary(parse_url("gs://bucket/repo"), Scope(**{**usual, **more}))  # type: ignore[arg-type]
    (rule,) = json.loads(text)["accessBoundary"]["accessBoundaryRules"]
    return dict(rule)


def test_a_boundary_names_the_least_roles_and_every_prefix() -> None:
    roles = {
        (True, False): ["storage.objectViewer"],
        (True, True): ["storage.objectViewer", "storage.objectCreator"],
        (False, True): ["storage.legacyBucketReader", "storage.objectCreator"],
    }
    for (read, create), expected in roles.items():
        found = boundary(read=read, create=create, prefixes=(MINE, "datasync.json"))
        assert found["availablePermissions"] == [f"inRole:roles/{role}" for role in expected]
        assert found["availableResource"] == "//storage.googleapis.com/projects/_/buckets/bucket"
    assert boundary()["availabilityCondition"] == {
        "expression": f"resource.name.startsWith('projects/_/buckets/bucket/objects/repo/{MINE}') || "
        f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('repo/{MINE}')"
    }


def test_a_prefix_can_not_widen_a_boundary() -> None:
    for prefix in ("", "d/' || true || '", "d/\\", "d/*"):
        with pytest.raises(UsageError, match="can name letters"):
            access_boundary(parse_url("gs://bucket"), Scope((prefix,), 1))
    with pytest.raises(UsageError, match="ask for fewer"):
        boundary(prefixes=tuple(f"d/{'a' * 64}{n}/" for n in range(8)))


def test_the_exchange_of_the_tests_takes_documented_boundaries_only() -> None:
    good = access_boundary(parse_url("gs://bucket"), scope())
    parse_boundary(good)
    for old, new in (
        ("resource.name", "request.time"), ("||", "&&"), ("inRole:", ""), ("objectViewer", "admin"), ("_/b", "p/b"),
        ("availableResource", "resource"), ('"accessBoundary"', '"boundary"'), ("startsWith", "endsWith"),
    ):  # fmt: skip
        with pytest.raises(Refused):
            parse_boundary(good.replace(old, new))


def test_the_drivers_variable_is_a_token_that_goes_to_nobody_else(
    cloud: Google, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = cloud.issue(cloud.accounts[READER], {TOKEN_SCOPE}, 3600)
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with closing(GcsStore(parse_url(cloud.url(bucket, "repo")))) as store:
        assert store.get(f"{MINE}packs/1", limit=100) == b"sealed"
        cloud.ahead = 3601
        assert refused(store, "get", f"{MINE}packs/1")
    with closing(GcsStore(parse_url("gs://bucket?endpoint=http://far.example"))) as far:
        assert far._headers() == {}
    with closing(GcsStore(parse_url("gs://bucket"), GcsOptions(token=lambda: "Bearer other"))) as told:
        assert told._headers() == {"Authorization": "Bearer other"}


# Azure


@pytest.fixture
def azure(running: Running) -> AzureServer:
    found = running.server("azure")
    assert isinstance(found, AzureServer)
    return found


@pytest.fixture(scope="module")
def azure_of_logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """The emulator with https, which takes tokens."""
    if reason := missing():
        pytest.skip(f"azure: {reason}")
    with pytest.MonkeyPatch.context() as patch:
        made = make_certificates(tmp_path_factory.mktemp("tls"))
        patch.setenv("SSL_CERT_FILE", str(made.ca))
        with azurite(made) as server:
            yield server


@pytest.fixture(params=["account key", "user delegation key"])
def signing(request: pytest.FixtureRequest, fresh_bucket: str) -> tuple[AzureServer, str, AzureSasBroker]:
    """A container with an object of each of two datasets, and a broker that signs in one of the two ways."""
    by_key = request.param == "account key"
    server: AzureServer = request.getfixturevalue("azure" if by_key else "azure_of_logins")
    server.make_bucket(fresh_bucket)
    with closing(server.open(fresh_bucket, "repo")) as store:
        for name in (MINE, OTHER):
            store.put_if_absent(f"{name}packs/1", b"sealed")
    options = server.options() if by_key else AzureOptions(token=identity_token)
    return server, fresh_bucket, sas_broker(server, fresh_bucket, options)


def sas_broker(server: AzureServer, bucket: str, options: AzureOptions, ahead: float = 0.0) -> AzureSasBroker:
    where = parse_url(server.url(bucket, "repo"))
    return AzureSasBroker(where, "container", options, clock=lambda: time.time() + ahead)


def lent(server: AzureServer, bucket: str, variables: dict[str, str]) -> AzureStore:
    store = azure_broker.open_lent(parse_url(server.url(bucket, "repo")), variables)
    assert isinstance(store, AzureStore)
    return store


def test_a_signature_reads_its_container_and_changes_nothing(signing: tuple[AzureServer, str, AzureSasBroker]) -> None:
    server, bucket, made = signing
    credential = made.issue(scope())
    assert credential.until <= time.time() + 3600
    with closing(lent(server, bucket, dict(credential.variables))) as store:
        assert store.get(f"{MINE}packs/1", limit=100) == b"sealed"
        assert [item.name for item in store.list(MINE)] == [f"{MINE}packs/1"]
        for what in ("put", "delete"):
            assert refused(store, what, f"{MINE}packs/1"), what
            assert refused(store, what, f"{MINE}packs/2"), what
    server.make_bucket(f"{bucket}b")
    with closing(lent(server, f"{bucket}b", dict(credential.variables))) as other:
        assert refused(other, "list", MINE)


def test_a_signature_is_bound_to_the_container_and_not_to_the_dataset(
    signing: tuple[AzureServer, str, AzureSasBroker],
) -> None:
    """What docs/policy.md says plainly: who may read one dataset here gets the ciphertext of the others."""
    server, bucket, made = signing
    with closing(lent(server, bucket, dict(made.issue(scope()).variables))) as store:
        assert store.get(f"{OTHER}packs/1", limit=100) == b"sealed"
        assert [item.name for item in store.list("d/")] == [f"{MINE}packs/1", f"{OTHER}packs/1"]


def test_a_signature_that_adds_replaces_and_deletes_nothing(signing: tuple[AzureServer, str, AzureSasBroker]) -> None:
    server, bucket, made = signing
    credential = made.issue(scope(create=True))
    with closing(lent(server, bucket, dict(credential.variables))) as store:
        store.put_if_absent(f"{MINE}packs/2", b"more")
        assert store.get(f"{MINE}packs/2", limit=100) == b"more"
        # The service answers UnauthorizedBlobOverwrite ("Blob Storage error codes"), the emulator that a right lacks.
        with pytest.raises((AlreadyExists, NotAuthorized)):
            store.put_if_absent(f"{MINE}packs/1", b"other")
        assert refused(store, "delete", f"{MINE}packs/1")
        place = f"{server.endpoint}/{bucket}/repo/{MINE}packs/1?{credential.variables['AZURE_STORAGE_SAS_TOKEN']}"
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2021-12-02"}
        with pytest.raises(urllib.error.HTTPError, match="403") as caught:  # a hostile client sends no condition
            urllib.request.urlopen(urllib.request.Request(place, b"mine", headers, method="PUT"))
        caught.value.close()
        assert store.get(f"{MINE}packs/1", limit=100) == b"sealed"
    adds = made.issue(scope(read=False, create=True))
    with closing(lent(server, bucket, dict(adds.variables))) as store:
        assert refused(store, "get", f"{MINE}packs/1")
        assert not refused(store, "list", MINE)


def test_a_signature_is_nothing_after_its_end_or_with_a_field_changed(
    signing: tuple[AzureServer, str, AzureSasBroker],
) -> None:
    server, bucket, made = signing
    variables = dict(made.issue(scope()).variables)
    fields = dict(parse_qsl(variables["AZURE_STORAGE_SAS_TOKEN"]))
    changes = {"se": "2099-01-01T00:00:00Z", "sp": "racwdl", "sr": "b", "spr": "https,http,", "sv": "2022-11-02"}
    changes |= {"skoid": "other", "sktid": "other", "ske": "2099-01-01T00:00:00Z", "skt": "2020-01-01T00:00:00Z"}
    for name in changes.keys() & fields.keys():
        changed = variables | {"AZURE_STORAGE_SAS_TOKEN": urlencode(fields | {name: changes[name]})}
        with closing(lent(server, bucket, changed)) as store:
            assert refused(store, "get", f"{MINE}packs/1"), name
    earlier = sas_broker(server, bucket, made._access._options, ahead=-3600)
    over = earlier.issue(Scope((MINE,), int(time.time()) - 60))
    with closing(lent(server, bucket, dict(over.variables))) as store, pytest.raises(NotAuthorized, match="expired"):
        store.get(f"{MINE}packs/1", limit=100)


@pytest.mark.parametrize(
    ("end", "over"),
    [("2020-01-01", True), ("2020-01-01T00:00Z", True), ("2020-01-01T00:00:00Z", True), ("2099-01-01", False),
     ("2099-01-01T00:00:00Z", False), ("soon", False), ("", False)],
)  # fmt: skip
def test_a_signature_that_is_over_is_called_so_and_no_other(end: str, over: bool) -> None:
    access = AzureStore(
        parse_url("az://box?account=acme"), AzureOptions(sas=urlencode({"sig": "x", "se": end}))
    )._access
    assert access.ended() == (end if over else "")


def test_a_login_that_may_not_delegate_is_told_what_it_lacks(azure_of_logins: AzureServer) -> None:
    options = AzureOptions(token=lambda: identity_token(-10))
    with pytest.raises(NotAuthorized, match="Storage Blob Delegator") as caught:
        sas_broker(azure_of_logins, "any", options).issue(scope())
    assert identity_token(-10)[:40] not in str(caught.value)


def test_answers_that_hold_no_key_are_refused() -> None:
    answers = iter([Answer(200, {}, b"<no"), Answer(200, {}, b"<U><Value>eA==</Value></U>"), Answer(503), Answer(404)])
    with faulty_server(lambda _: next(answers)) as server:
        where = parse_url(f"az://box/repo?endpoint=http://127.0.0.1:{server.port}/acme")
        now = 1_800_000_000  # 2027-01-15T08:00:00Z
        made = AzureSasBroker(where, "container", AzureOptions(token=lambda: "SECRET"), clock=lambda: now)
        for kind in (StorageUnavailable, StorageUnavailable, StorageUnavailable, DatasyncError):
            with pytest.raises(kind) as caught:
                made.issue(Scope((MINE,), now + 3600))
            assert "SECRET" not in str(caught.value)
        body = server.requests[0].body.decode()
    assert body.startswith("<KeyInfo><Start>2027-01-15T07:")
    assert "<Expiry>2027-01-15T09:00:00Z</Expiry>" in body


def test_what_can_not_be_an_azure_broker_is_said_before_anything_is_asked() -> None:
    where = parse_url("az://box/repo?account=acme")
    with pytest.raises(UsageError, match="whole container, not to one dataset"):
        AzureSasBroker(where, "reader")
    with pytest.raises(UsageError, match=r"remove \[policy\] sts_endpoint"):
        AzureSasBroker(where, "container", endpoint="https://sts.example")
    with pytest.raises(UsageError, match="a signature makes no other"):
        AzureSasBroker(where, "container", AzureOptions(sas="sig=x")).issue(scope())
    with pytest.raises(KeyError):
        azure_broker.open_lent(where, {})


def test_the_account_goes_along_where_the_url_does_not_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acme")
    where = parse_url("az://box/repo")
    variables = dict(AzureSasBroker(where, "container", AzureOptions(key=KEY)).issue(scope()).variables)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT")
    with closing(azure_broker.open_lent(where, variables)) as store:
        assert isinstance(store, AzureStore)
        assert store._access.endpoint == "https://acme.blob.core.windows.net"


# Both, by the command line


@pytest.fixture(params=["gs", "az"])
def provider(request: pytest.FixtureRequest, fresh_bucket: str, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A repository's URL, and the variables of somebody who owns everything and may issue credentials."""
    if request.param == "az":
        server: AzureServer = request.getfixturevalue("azure")
        server.make_bucket(fresh_bucket)
        keys = {"AZURE_STORAGE_KEY": KEY, "DATASYNC_POLICY_ROLE": "container"}
        return server.url(fresh_bucket, "repo"), keys
    cloud: Google = request.getfixturevalue("cloud")
    cloud.objects.make_bucket(fresh_bucket)
    keys = {"GOOGLE_APPLICATION_CREDENTIALS": cloud.write_account(tmp_path / "account.json", OWNER)}
    settings = {"DATASYNC_POLICY_ROLE": READER, "DATASYNC_POLICY_STS_ENDPOINT": cloud.endpoint}
    return cloud.url(fresh_bucket, "repo"), keys | settings


def credential_of(olga: Person, action: str, target: Path) -> dict[str, str]:
    """Return the variables that the command writes."""
    made = olga.must("policy", "credential", "scans", "--action", action, "--output", target)
    assert made["until"] <= time.time() + 3600
    return dict(line.split("=", 1) for line in target.read_text().splitlines())


def holding(person: Person, variables: dict[str, str]) -> Person:
    """Return the same person on the same machine, with these variables and no others."""
    return replace(person, machine=replace(person.machine, extra=variables))


def test_a_node_with_the_credential_alone_does_what_it_is_for(
    provider: tuple[str, dict[str, str]], cloud: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = provider
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "picture").write_bytes(b"one patient's picture " * 400)
    olga, rita = Person.make(tmp_path, "olga", url, None, **keys), Person.make(tmp_path, "rita", url)
    olga.must("init")
    olga.must("push", tree, "--dataset", "scans")
    reads = holding(rita, credential_of(olga, "Warm", tmp_path / "reads"))
    olga.grant("scans", reads, "writer")
    reads.must("pull", "scans", tmp_path / "out")
    assert (tmp_path / "out" / "picture").read_bytes() == (tree / "picture").read_bytes()
    (tree / "more").write_bytes(b"more")
    reads.refused(6, "push", tree, "--dataset", "scans", "--source-change", words="answered 403")
    adds = holding(rita, credential_of(olga, "PushSnapshot", tmp_path / "adds"))
    assert adds.must("push", tree, "--dataset", "scans", "--source-change")["seq"] == 2
    if url.startswith("gs:"):
        monkeypatch.setattr(cloud, "ahead", 3601.0)
        adds.refused(6, "pull", "scans", tmp_path / "late", words="the credentials have expired")


def test_each_scheme_has_its_broker_and_its_lent_store() -> None:
    assert load(BROKERS["gs"], "gs") is GcsBroker
    assert load(BROKERS["az"], "az") is AzureSasBroker
    assert load(LENT_STORES["gs"], "gs") is gcs_broker.open_lent
    assert load(LENT_STORES["az"], "az") is azure_broker.open_lent
