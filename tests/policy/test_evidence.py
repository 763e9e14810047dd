"""What a control side takes for proved about who asks: claims of a verified token as its issuer's table reads them, and
the connection's own address. Over sockets, with TLS, against a daemon with a site's policy.
"""

import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from datasync.config import Flags, load_config
from datasync.crypto.identity import Identity
from datasync.errors import UsageError
from datasync.service.daemon_settings import Issuer, Proof, read_settings
from datasync.service.issuers import proved_by
from datasync.service.principal import NOTHING, Proved
from tests.daemon.test_jwt import jwks, token
from tests.support.daemons import Certificates, Daemon, configure, daemon, make_certificates, mirror_table, wait_until
from tests.support.machine import Machine
from tests.support.servers import free_ports

SECURE = (
    Proof(claim=("swname",), values=("CONFIDENTIAL_SPACE",)),
    Proof(claim=("submods", "container", "image_digest"), values=("sha256:aa", "sha256:bb")),
)
TOLD = Issuer(
    issuer="i",
    audience="a",
    jwks="j",
    mfa=(Proof(claim=("amr",), values=("mfa", "hwk")), Proof(claim=("acr",), values=("phr",))),
    attested=SECURE,
    region=("submods", "gce", "region"),
    purpose=("https://example.org/purpose",),
)
GOOD = {"swname": "CONFIDENTIAL_SPACE", "submods": {"container": {"image_digest": "sha256:bb"}}}


def test_a_claim_that_is_true_is_neither_a_word_nor_a_number() -> None:
    secure = Issuer(issuer="i", audience="a", jwks="j", attested=(Proof(claim=("secboot",), values=(True,)),))
    assert proved_by(secure, {"secboot": True}).attested
    for other in ("true", "True", 1, 1.0, [1], {"secboot": True}, None, False, [[True]]):
        assert not proved_by(secure, {"secboot": other}).attested, other
    word = Issuer(issuer="i", audience="a", jwks="j", attested=(Proof(claim=("secboot",), values=("true",)),))
    assert not proved_by(word, {"secboot": True}).attested


@pytest.mark.parametrize(
    ("claims", "proved"),
    [
        ({}, NOTHING),
        ({"amr": ["pwd", "mfa"]}, Proved(mfa=True)),
        ({"amr": ["hwk"]}, Proved(mfa=True)),
        ({"acr": "phr"}, Proved(mfa=True)),
        ({"amr": ["pwd", "otp"]}, NOTHING),
        ({"amr": "no-mfa-here"}, NOTHING),
        ({"amr": ["mfa "]}, NOTHING),
        ({"amr": ["MFA"]}, NOTHING),
        ({"amr": [["mfa"]]}, NOTHING),
        ({"amr": {"mfa": True}}, NOTHING),
        ({"amr": True, "mfa": True, "attested": True}, NOTHING),
        ({"acr": ["x", "phr"]}, Proved(mfa=True)),
        ({"acr": "mfa"}, NOTHING),
        (GOOD, Proved(attested=True)),
        ({**GOOD, "swname": ["CONFIDENTIAL_SPACE"]}, Proved(attested=True)),
        ({**GOOD, "swname": "OTHER"}, NOTHING),
        ({"swname": "CONFIDENTIAL_SPACE"}, NOTHING),
        ({**GOOD, "submods": {"container": {"image_digest": "sha256:cc"}}}, NOTHING),
        ({**GOOD, "submods": {"container": "image_digest"}}, NOTHING),
        ({**GOOD, "submods": ["container"]}, NOTHING),
        ({**GOOD, "submods": None}, NOTHING),
        ({"submods": {"gce": {"region": "europe-west4"}}}, Proved(region="europe-west4")),
        ({"submods": {"gce": {"region": ["europe-west4"]}}}, NOTHING),
        ({"submods": {"gce": {"region": ""}}}, NOTHING),
        ({"https://example.org/purpose": "study"}, Proved(purpose="study")),
        ({"https://example": {"org/purpose": "study"}, "region": "eu", "purpose": "x"}, NOTHING),
    ],
)
def test_claims_prove_what_the_issuers_table_says_and_nothing_else(claims: dict[str, Any], proved: Proved) -> None:
    assert proved_by(TOLD, claims) == proved
    assert proved_by(Issuer(issuer="i", audience="a", jwks="j"), {**GOOD, **claims}) == NOTHING


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('issuer = "mtls"', "other than token, mtls, os-user"),
        ('issuer = "token"', "other than"),
        ('issuer = "os-user"', "other than"),
        ('issuer = ""', "without `#`"),
        ('issuer = "https://idp#x"', "without `#`"),
        ('issuer = "i"\nmfa = [{ claim = [], values = ["x"] }]', "a claim and values"),
        ('issuer = "i"\nattested = [{ claim = ["x"], values = [] }]', "a claim and values"),
        ('issuer = "i"\nattested = [{ claim = ["x"] }]', "values"),
        ('issuer = "i"\nmfa = true', "mfa"),
    ],
)
def test_an_issuer_that_could_be_taken_for_another_or_proves_by_nothing_is_refused(
    tmp_path: Path, table: str, words: str
) -> None:
    machine = Machine.make(tmp_path, "memory://x")
    configure(machine, f'[[issuer]]\naudience = "a"\njwks = "j"\n{table}\n')
    with pytest.raises(UsageError, match=words):
        read_settings(load_config(Flags(), machine.environment()))


def test_an_issuer_is_told_once(tmp_path: Path) -> None:
    machine = Machine.make(tmp_path, "memory://x")
    one = '[[issuer]]\nissuer = "i"\naudience = "a"\njwks = "j"\n'
    configure(machine, one + one)
    with pytest.raises(UsageError, match="each issuer once"):
        read_settings(load_config(Flags(), machine.environment()))


# over sockets

ISSUER = "https://issuer.test"
POLICY = """
[users.owner]
identities = ["{owner}"]
[users.nora]
identities = ["https://issuer.test#node-1"]
[datasets.data]
{attributes}
[[grant]]
id = "owner"
to = ["owner"]
role = "owner"
[[grant]]
id = "nora"
to = ["nora"]
on = ["data"]
role = "reader"
{conditions}
{more}
"""


@dataclass(frozen=True)
class Control:
    """A control side with one dataset and a site's policy, which each test writes."""

    running: Daemon
    port: int
    files: Certificates
    policy: Path
    owner: str

    def write(self, conditions: str = "", attributes: str = "", more: str = "") -> None:
        text = POLICY.format(owner=self.owner, conditions=conditions, attributes=attributes, more=more)
        (self.policy / "policy.toml").write_text(text)

    def released(self, headers: dict[str, str] | None = None, /, **claims: Any) -> bool:
        """Ask for the key with a token of these claims; tell whether it was lent."""
        now = time.time()
        given = token(iss=ISSUER, sub="node-1", exp=now + 600, iat=now, nbf=now, **claims)
        body = json.dumps({"dataset": "data", "recipient": Identity.generate().recipient.text, "node": "n1"}).encode()
        context = ssl.create_default_context(cafile=str(self.files.ca))
        sent = {"Authorization": f"Bearer {given}", "Content-Type": "application/json", **(headers or {})}
        with closing(http.client.HTTPSConnection("localhost", self.port, timeout=30, context=context)) as connection:
            connection.request("POST", "/v1/keys", body, sent)
            response = connection.getresponse()
            answer = json.loads(response.read())
        assert response.status in (200, 403), answer
        return response.status == 200


@pytest.fixture(scope="module")
def control() -> Iterator[Control]:
    with tempfile.TemporaryDirectory(prefix="ds-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        policy, source = folder / "policy", folder / "source"
        machine = Machine.make(folder / "home", str(folder / "repository"), {"DATASYNC_POLICY_DIR": str(policy)})
        policy.mkdir()
        source.mkdir()
        (source / "a").write_text("a")
        machine.must("init")
        owner = machine.must("key", "show", "--json").result["signer"]
        files, (port,) = make_certificates(folder / "tls"), free_ports(1)
        (folder / "jwks.json").write_bytes(jwks())
        settings = f"""
            [daemon]
            socket = "{machine.home}/d.sock"
            listen = "tcp://127.0.0.1:{port}"
            certificate = "{files.certificate}"
            key = "{files.key}"
            hosts = ["localhost"]
            [[issuer]]
            issuer = "{ISSUER}"
            audience = "datasync"
            jwks = "{folder}/jwks.json"
            mfa = [{{ claim = ["amr"], values = ["mfa"] }}]
            attested = [{{ claim = ["swname"], values = ["CONFIDENTIAL_SPACE"] }}]
            region = ["region"]
            [[access]]
            issuer = "{ISSUER}"
            subject = "node-*"
            datasets = ["data"]
            {mirror_table(source)}
        """
        made = Control(Daemon(machine), port, files, policy, owner)
        made.write(more='[[grant]]\nid = "runs"\nto = ["owner"]\nrole = "operator"\n')
        with daemon(machine, settings) as running:
            wait_until("it is pushed", lambda: running.mirror()["seq"])
            yield Control(running, port, files, policy, owner)


def test_a_second_factor_is_the_tokens_word_as_the_issuers_table_reads_it(control: Control) -> None:
    control.write("mfa = true")
    assert control.released(amr=["pwd", "mfa"])
    assert not control.released()
    assert not control.released(amr=["pwd"])
    assert not control.released(mfa=True, acr="mfa")


def test_attestation_and_region_are_too(control: Control) -> None:
    control.write("attested = true", 'allowed_regions = ["eu"]')
    good = {"swname": "CONFIDENTIAL_SPACE", "region": "eu"}
    assert control.released(**good)
    for missing in good:
        assert not control.released(**{name: value for name, value in good.items() if name != missing})
    assert not control.released(**{**good, "region": "us"})


def test_the_address_is_the_connections_and_no_headers(control: Control) -> None:
    control.write('networks = ["127.0.0.0/8"]')
    assert control.released()
    control.write('networks = ["10.20.0.0/16"]')
    forged = ("X-Forwarded-For", "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "X-Datasync-Source")
    assert not control.released(dict.fromkeys(forged, "10.20.0.7"))
    assert not control.released({"Forwarded": "for=10.20.0.7"})
    guests = '[[deny]]\nid = "here"\nactions = ["Warm"]\nnetworks = ["127.0.0.0/8"]\n'
    control.write(more=guests)
    assert not control.released(dict.fromkeys(forged, "10.20.0.7"))


def test_a_policy_of_the_control_side_is_obeyed_at_once(control: Control) -> None:
    control.write()
    assert control.released()
    control.write("until = 2020-01-01")
    assert not control.released()
    (control.policy / "policy.toml").write_text("[[grant]")
    assert not control.released()  # the last one that parsed stays
    control.write()
    assert control.released()


# who manages the daemon

RUNS = '[[grant]]\nid = "runs"\nto = ["owner"]\nrole = "operator"\n'
LINES = (
    ("daemon", "reload"),
    ("daemon", "push", "data"),
    ("daemon", "confirm", "data"),
    ("daemon", "mirror", "remove", "data"),
    ("daemon", "stop"),
    ("token", "list"),
)


def test_who_may_not_manage_the_daemon_changes_nothing_of_it(control: Control) -> None:
    machine = control.running.machine
    control.write()
    for line in LINES:
        ran = machine.run(*line)
        assert (ran.code, "may not ManageDaemon" in ran.err) == (6, True), (line, ran)
    source = control.policy.parent / "source"
    ran = machine.run("daemon", "mirror", "add", str(source), "more")
    assert (ran.code, "may not ManageDaemon" in ran.err) == (6, True), ran
    assert machine.run("daemon", "status").code == 0
    control.write(more=RUNS)
    for line in (("daemon", "reload"), ("daemon", "push", "data"), ("token", "list")):
        assert machine.run(*line).code == 0, line
    assert machine.run("daemon", "confirm", "data").code == 11, "allowed, and nothing is held"
    control.write(more=RUNS + 'on = ["data"]\n')
    assert machine.run("daemon", "push", "data").code == 0
    assert machine.run("daemon", "reload").code == 6, "that is the whole daemon's"


def test_who_may_not_manage_keys_gives_no_tokens_and_takes_none(control: Control) -> None:
    machine, line = control.running.machine, ("token", "create", "--node", "n1", "--ttl", "1h", "--json", "--dataset")
    control.write(more=RUNS)
    made = machine.must(*line, "data").result["token"]
    reads = POLICY.format(owner=control.owner, conditions="", attributes="", more=RUNS).replace(
        '"owner"\n[[', '"reader"\n[['
    )
    (control.policy / "policy.toml").write_text(reads)
    for words in ((*line, "data"), (*line, "*"), ("token", "revoke", made.split("_")[1])):
        ran = machine.run(*words)
        assert (ran.code, "may not ManageKeys" in ran.err) == (6, True), (words, ran)
    control.write(more=RUNS)
    machine.must("token", "revoke", made.split("_")[1])


def test_who_may_not_manage_daemons_starts_none(tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "policy.toml").write_text("")
    machine = Machine.make(tmp_path / "home", str(tmp_path / "repository"), {"DATASYNC_POLICY_DIR": str(policy)})
    machine.must("init")
    configure(machine, f'[daemon]\nsocket = "{tmp_path}/d.sock"\n')
    ran = machine.spawn("daemon", "run")
    assert (ran.code, "may not ManageDaemon" in ran.err) == (6, True), ran
    found = [json.loads(line) for line in machine.run("audit", "query", "--json").out.splitlines()]
    assert not found or all(item.get("action") != "daemon.start" or item["outcome"] == "denied" for item in found)
