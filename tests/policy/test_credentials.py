"""Scoped storage credentials, over sockets, against moto with authentication on.

What moto does not do is said where it matters: it takes a session policy and does not apply it. So the policy text is
also made the role's own, which moto does apply (resources and actions; of conditions, none that are used here).
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import botocore.session
import pytest
from botocore.exceptions import ClientError

from datasync.config import Flags, load_config
from datasync.crypto.identity import Identity
from datasync.errors import NotAuthorized, StorageUnavailable, UsageError
from datasync.repository.snapshots import History
from datasync.service import policy_force
from datasync.service import release as release_key
from datasync.service import session as sessions
from datasync.service.borrow import Answer
from datasync.service.credentials import release
from datasync.service.principal import Principal
from datasync.storage.brokers import LONGEST_SECONDS, Credential, Scope
from datasync.storage.location import parse_url
from datasync.storage.s3 import S3Credentials, S3Options
from datasync.storage.s3.broker import SHORTEST_SECONDS, S3StsBroker, session_policy, signed_urls
from tests.policy.site import READS, Site, signer, with_grant
from tests.support.people import Person
from tests.support.servers import S3Server, free_ports, serve

BUCKET, ROLE = "hospital", "reader"
MINE, OTHER = "d/aaaa/", "d/bbbb/"
REFUSALS = ("AccessDenied", "SignatureDoesNotMatch", "InvalidToken", "InvalidAccessKeyId", "403")
ANYONE = S3Options(S3Credentials("setup", "setup"))


def url(endpoint: str) -> str:
    return f"s3://{BUCKET}/repo?endpoint={endpoint}&region=us-east-1&addressing=path"


@contextmanager
def enforcing_moto() -> Iterator[tuple[str, S3Options]]:
    """Yield a moto that checks keys from now on, and the broker's own credential."""
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serve("moto", command, port, extra={"INITIAL_NO_AUTH_ACTION_COUNT": "1000000"}):
        yield endpoint, _set_up(endpoint)


def client(kind: str, endpoint: str, keys: dict[str, str] | None = None) -> Any:
    session = botocore.session.Session()
    given = keys or {"AWS_ACCESS_KEY_ID": "setup", "AWS_SECRET_ACCESS_KEY": "setup"}
    session.set_credentials(given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"], given.get("AWS_SESSION_TOKEN"))
    return session.create_client(kind, region_name="us-east-1", endpoint_url=endpoint)


def _set_up(endpoint: str) -> S3Options:
    store, iam = client("s3", endpoint), client("iam", endpoint)
    store.create_bucket(Bucket=BUCKET)
    for name in (MINE, OTHER):
        store.put_object(Bucket=BUCKET, Key=f"repo/{name}packs/1", Body=b"sealed")
    user = iam.create_user(UserName="broker")["User"]["Arn"]
    trusted = {"Effect": "Allow", "Principal": {"AWS": user}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [trusted]})
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=trust)
    key = iam.create_access_key(UserName="broker")["AccessKey"]
    may = {"Effect": "Allow", "Action": ["sts:AssumeRole", "iam:PutRolePolicy", "s3:*"], "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [may]})
    iam.put_user_policy(UserName="broker", PolicyName="may", PolicyDocument=document)
    request = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
    urllib.request.urlopen(request).read()
    return S3Options(S3Credentials(key["AccessKeyId"], key["SecretAccessKey"]))


@pytest.fixture(scope="module")
def moto_that_checks() -> Iterator[tuple[str, S3Options]]:
    with enforcing_moto() as made:
        yield made


def issue(made: tuple[str, S3Options], scope: Scope) -> Credential:
    """Issue for *scope*, with the session policy as the role's own, too."""
    endpoint, keys = made
    where = parse_url(url(endpoint))
    assert keys.credentials is not None
    own = {"AWS_ACCESS_KEY_ID": keys.credentials.access_key, "AWS_SECRET_ACCESS_KEY": keys.credentials.secret_key}
    client("iam", endpoint, own).put_role_policy(
        RoleName=ROLE, PolicyName="scope", PolicyDocument=session_policy(where, scope)
    )
    broker = S3StsBroker(where, f"arn:aws:iam::123456789012:role/{ROLE}", keys, endpoint=endpoint)
    return broker.issue(scope)


def refused(call: Any, **arguments: Any) -> bool:
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"] in REFUSALS
    return False


def test_a_session_reads_its_dataset_and_nothing_else(moto_that_checks: tuple[str, S3Options]) -> None:
    until = int(time.time()) + 3600
    credential = issue(moto_that_checks, Scope((MINE,), until))
    assert credential.until <= until
    store = client("s3", moto_that_checks[0], dict(credential.variables))
    assert store.get_object(Bucket=BUCKET, Key=f"repo/{MINE}packs/1")["Body"].read() == b"sealed"
    assert refused(store.get_object, Bucket=BUCKET, Key=f"repo/{OTHER}packs/1")
    assert refused(store.put_object, Bucket=BUCKET, Key=f"repo/{MINE}packs/2", Body=b"")
    assert refused(store.delete_object, Bucket=BUCKET, Key=f"repo/{MINE}packs/1")
    assert refused(client("iam", moto_that_checks[0], dict(credential.variables)).list_users)


def test_a_session_that_adds_does_not_delete(moto_that_checks: tuple[str, S3Options]) -> None:
    credential = issue(moto_that_checks, Scope((MINE,), int(time.time()) + 3600, read=False, create=True))
    store = client("s3", moto_that_checks[0], dict(credential.variables))
    assert refused(store.get_object, Bucket=BUCKET, Key=f"repo/{MINE}packs/1")
    assert refused(store.delete_object, Bucket=BUCKET, Key=f"repo/{MINE}packs/1")
    assert refused(store.put_object, Bucket=BUCKET, Key=f"repo/{OTHER}packs/2", Body=b"")


def test_a_session_without_its_token_or_with_another_secret_is_nothing(
    moto_that_checks: tuple[str, S3Options],
) -> None:
    variables = dict(issue(moto_that_checks, Scope((MINE,), int(time.time()) + 3600)).variables)
    key = f"repo/{MINE}packs/1"
    for change in ({"AWS_SESSION_TOKEN": "another"}, {"AWS_SECRET_ACCESS_KEY": "another"}):
        store = client("s3", moto_that_checks[0], variables | change)
        assert refused(store.get_object, Bucket=BUCKET, Key=key)


def test_a_broker_whose_own_key_is_wrong_is_told_so(moto_that_checks: tuple[str, S3Options]) -> None:
    where = parse_url(url(moto_that_checks[0]))
    broker = S3StsBroker(where, f"arn:aws:iam::123456789012:role/{ROLE}", ANYONE, endpoint=moto_that_checks[0])
    with pytest.raises(NotAuthorized, match="may not assume it"):
        broker.issue(Scope((MINE,), int(time.time()) + 3600))
    gone = S3StsBroker(where, "arn:aws:iam::123456789012:role/x", ANYONE, endpoint="http://127.0.0.1:9")
    with pytest.raises(StorageUnavailable):
        gone.issue(Scope((MINE,), int(time.time()) + 3600))


def test_a_signed_url_reads_one_object_without_a_credential(seaweedfs: S3Server, fresh_bucket: str) -> None:
    where, name = parse_url(seaweedfs.make_bucket(fresh_bucket)), f"{MINE}packs/1"
    with closing(seaweedfs.open(fresh_bucket)) as store:
        store.put_if_absent(name, b"sealed")
        store.put_if_absent(f"{OTHER}packs/1", b"other")
    signed = signed_urls(where, [name], 60, seaweedfs.options())[name]
    assert urllib.request.urlopen(signed).read() == b"sealed"
    assert "X-Amz-Expires=60" in signed
    for changed in (signed.replace(MINE, OTHER), signed.replace("Expires=60", "Expires=600"), signed.partition("?")[0]):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(changed)
    for seconds in (0, 8 * 24 * 3600):
        with pytest.raises(UsageError, match="expected 1 to"):
            signed_urls(where, [name], seconds, seaweedfs.options())


# the policy's text


def statements(**scope: Any) -> list[dict[str, Any]]:
    usual: dict[str, Any] = {"prefixes": (MINE,), "until": 1_800_000_000}
    found = json.loads(session_policy(parse_url(url("http://127.0.0.1:1")), Scope(**{**usual, **scope})))
    return list(found["Statement"])


def test_every_statement_ends_with_the_scope_and_is_about_its_prefixes() -> None:
    for statement in statements(create=True):
        assert statement["Condition"]["DateLessThan"] == {"aws:CurrentTime": "2027-01-15T08:00:00Z"}
        about = statement["Condition"].get("StringLike", {}).get("s3:prefix", statement["Resource"])
        assert all(item.removeprefix(f"arn:aws:s3:::{BUCKET}/") == f"repo/{MINE}*" for item in about)


def test_creating_needs_if_none_match_and_nothing_ever_deletes() -> None:
    puts = [item for item in statements(create=True) if "s3:PutObject" in item["Action"]]
    assert [item["Condition"]["Null"] for item in puts] == [{"s3:if-none-match": "false"}]
    actions = {action for item in statements(create=True) for action in item["Action"]}
    assert actions == {"s3:ListBucket", "s3:GetObject", "s3:PutObject"}
    assert {action for item in statements() for action in item["Action"]} == {"s3:ListBucket", "s3:GetObject"}


def test_a_prefix_can_not_widen_the_policy() -> None:
    for prefix in ("*", "d/?", "${aws:username}/"):
        with pytest.raises(UsageError, match="can not name"):
            statements(prefixes=(prefix,))
    with pytest.raises(UsageError, match="ask for fewer"):
        statements(prefixes=tuple(f"d/{'a' * 64}{n}/" for n in range(20)))


def test_a_scope_lasts_until_its_end_and_never_longer_than_a_session_may() -> None:
    assert Scope((MINE,), 1_000).seconds(900) == 100
    assert Scope((MINE,), 10**9).seconds(0) == LONGEST_SECONDS
    assert SHORTEST_SECONDS == 900
    for over in (Scope((MINE,), 1_000), Scope((), 2_000), Scope((MINE,), 2_000, read=False)):
        with pytest.raises(UsageError, match="expected a time to come"):
            over.seconds(1_000)
    assert "secret" not in repr(Credential({"AWS_SECRET_ACCESS_KEY": "secret"}, 1))


# released by a decision


class Pretending:
    """A broker that notes what it is asked for."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    def issue(self, scope: Scope) -> Credential:
        self.scopes.append(scope)
        return Credential({"AWS_ACCESS_KEY_ID": "key"}, scope.until)


def _release(site: Site, who: Person, action: str, broker: Pretending) -> Credential:
    with (
        mock.patch.dict("os.environ", who.machine.environment(), clear=True),
        mock.patch.object(sessions, "open_store", return_value=site.store),
    ):
        return release(sessions.Session(load_config(Flags())), "scans", action, 7200, broker)


def test_a_decision_releases_a_credential_for_no_longer_than_it_allows(site: Site) -> None:
    broker, now = Pretending(), time.time()
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 600))
    site.publish(READS.replace('role = "reader"', f'role = "reader"\nuntil = {ends}'))
    assert now + 597 < _release(site, site.rita, "Warm", broker).until <= now + 600
    assert now + 7190 < _release(site, site.olga, "PushSnapshot", broker).until
    trust = site.olga.must("status")["datasets"][0]["trust"]
    assert [scope.prefixes for scope in broker.scopes] == [("datasync.json", f"d/{trust}/")] * 2
    assert [scope.create for scope in broker.scopes] == [False, True]
    for who, action in ((site.rita, "PushSnapshot"), (site.rita, "Prune")):
        with pytest.raises((NotAuthorized, UsageError)):
            _release(site, who, action, broker)
    assert len(broker.scopes) == 2
    assert [item["outcome"] for item in site.events(site.rita, "policy.credential")] == ["intent", "success"]


def test_a_signed_time_that_is_ahead_makes_nothing_last_longer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody pushed with a clock that is an hour ahead, and that is "now" for whoever has seen it."""
    right, hour, decided = History.now, 3_600_000, policy_force.decision_time
    monkeypatch.setattr(History, "now", lambda history: right(history) + hour)
    monkeypatch.setattr("datasync.service.release.decision_time", lambda *known: decided(*known) + hour)
    assert _release(site, site.olga, "Warm", Pretending()).until <= time.time() + 7200
    asked = release_key.Asked("scans", Identity.generate().recipient.text, "n1")
    admin = Principal("root", "local", "socket", admin=True)
    with (
        mock.patch.dict("os.environ", site.olga.machine.environment(), clear=True),
        mock.patch.object(sessions, "open_store", return_value=site.store),
    ):
        made = sessions.Session(load_config(Flags()))
        lent = release_key.release(made, admin, asked, lambda *_: None, lambda *_: None)
    assert lent.until <= time.time() * 1000 + release_key.LONGEST_MS


def test_an_answer_with_a_credential_shows_none_of_it() -> None:
    answer = Answer(
        "s3://b/p", "data", "00" * 32, 1, "ab" * 32, 1, 0, 5, "c2xvdA==", {"AWS_SECRET_ACCESS_KEY": "secret"}
    )
    assert "secret" not in repr(answer)
    assert "c2xvdA" not in repr(answer)


def test_a_grants_end_bounds_the_credential(site: Site, tmp_path: Path) -> None:
    site.publish()
    grant, broker = tmp_path / "grant", Pretending()
    line = ("policy", "grant", "scans", signer(site.rita), "--action", "Warm", "--until", "5m", "--output", grant)
    site.olga.must(*line)
    assert _release(site, with_grant(site.rita, grant), "Warm", broker).until <= time.time() + 300


def test_without_a_role_or_another_provider_the_command_says_so(site: Site) -> None:
    site.olga.refused(2, "policy", "credential", "scans", words="expected an s3:// repository")
