"""The API as strangers find it: every attack gets its status, the daemon stays, and the log has the sum."""

import http.client
import json
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from datasync.crypto.identity import Identity
from datasync.errors import NotFound, UsageError
from datasync.service.client import Api
from tests.daemon.test_jwt import hmac_token, jwks, none_token, token
from tests.support.daemons import Certificates, Daemon, daemon, is_root, make_certificates, mirror_table, wait_until
from tests.support.machine import Machine
from tests.support.servers import free_ports

ISSUER = "https://issuer.test"
WRONG_TOKENS = (300, pytest.param(100_000, marks=pytest.mark.long))


@dataclass(frozen=True)
class Scene:
    """A control side with one dataset, and one good token."""

    running: Daemon
    port: int
    files: Certificates
    token: str

    def context(self, *, client: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.files.ca))
        if client:
            context.load_cert_chain(self.files.client, self.files.client_key)
        return context

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        **headers: str,
    ) -> tuple[int, dict[str, Any]]:
        """Return the status of a raw request, and its JSON answer."""
        return self.ask_as(method, path, body, headers, client=False)

    def ask_as(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, client: bool
    ) -> tuple[int, dict[str, Any]]:
        """The same, with the client's certificate when asked."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        context = self.context(client=client)
        with closing(http.client.HTTPSConnection("localhost", self.port, timeout=20, context=context)) as connection:
            connection.request(method, path, body, given)
            response = connection.getresponse()
            data = response.read()
        assert b"Traceback" not in data
        try:
            found = json.loads(data)
        except ValueError:
            found = {}
        return response.status, found if isinstance(found, dict) else {}

    def bearer(self) -> str:
        return f"Bearer {self.token}"


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="ds-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        machine = Machine.make(folder / "home", str(folder / "repository"))
        machine.must("init")
        (folder / "source").mkdir()
        (folder / "source" / "a").write_text("a")
        files, (port,) = make_certificates(folder / "tls"), free_ports(1)
        (folder / "jwks.json").write_bytes(jwks())
        settings = f"""
            [daemon]
            socket = "{machine.home}/d.sock"
            listen = "tcp://127.0.0.1:{port}"
            certificate = "{files.certificate}"
            key = "{files.key}"
            client_ca = "{files.ca}"
            hosts = ["localhost"]
            [[issuer]]
            issuer = "{ISSUER}"
            audience = "datasync"
            jwks = "{folder}/jwks.json"
            algorithms = ["RS256"]
            [[access]]
            issuer = "{ISSUER}"
            subject = "node-*"
            datasets = ["data"]
            [[access]]
            issuer = "mtls"
            subject = "spiffe://test/*"
            datasets = ["data"]
            {mirror_table(folder / "source")}
        """
        with daemon(machine, settings) as running:
            wait_until("it is pushed", lambda: running.mirror()["seq"])
            made = machine.must(
                "token", "create", "--node", "n1", "--dataset", "data", "--actions", "warm,status", "--json"
            )
            yield Scene(running, port, files, made.result["token"])


def key_request(**more: object) -> bytes:
    recipient = Identity.generate().recipient.text
    return json.dumps({"dataset": "data", "recipient": recipient, "node": "n1", **more}).encode()


def test_health_is_for_all_and_everything_else_for_nobody_unknown(scene: Scene) -> None:
    assert scene.ask("GET", "/healthz") == (200, {"status": "ok"})
    for path in ("/metrics", "/v1/status", "/v1/mirrors", "/v1/warm", "/v1/events"):
        assert scene.ask("GET", path)[0] == 401, path
    for path in ("/v1/keys", "/v1/stop", "/v1/reload", "/v1/warm", "/v1/mirrors"):
        assert scene.ask("POST", path, b"{}", Content_Type="application/json")[0] == 401, path


def test_a_token_does_what_it_names_and_no_more(scene: Scene) -> None:
    good = {"Authorization": scene.bearer(), "Content_Type": "application/json"}
    status, found = scene.ask("POST", "/v1/keys", key_request(), **good)
    assert (status, found["dataset"], found["seq"]) == (200, "data", 1)
    assert scene.ask("GET", "/v1/status", Authorization=scene.bearer())[0] == 200
    assert scene.ask("POST", "/v1/keys", key_request(dataset="other"), **good)[0] == 403
    for method, path in (("POST", "/v1/stop"), ("POST", "/v1/reload"), ("POST", "/v1/mirrors/data/confirm")):
        assert scene.ask(method, path, None, **good)[0] == 403, path
    body = json.dumps({"path": "/etc", "dataset": "etc"}).encode()
    assert scene.ask("POST", "/v1/mirrors", body, **good)[0] == 403


def test_jwt_and_client_certificates_are_let_in(scene: Scene) -> None:
    now = time.time()
    good = token("RS256", exp=now + 60, iat=now, nbf=now)
    kind = {"Content_Type": "application/json"}
    assert scene.ask("POST", "/v1/keys", key_request(), Authorization=f"Bearer {good}", **kind)[0] == 200
    assert scene.ask_as("POST", "/v1/keys", key_request(), kind, client=True)[0] == 200
    assert scene.ask("POST", "/v1/keys", key_request(), **kind)[0] == 401


WRONG: dict[str, Callable[[], str]] = {
    "none": none_token,
    "HS256 with the RSA public key": hmac_token,
    "expired": lambda: token("RS256", exp=1.0),
    "another audience": lambda: token("RS256", aud="x"),
    "jku": lambda: token("RS256", header={"jku": "http://169.254.169.254/latest/meta-data"}),
    "kid with a path": lambda: token("RS256", header={"kid": "../../../../etc/passwd"}),
    "an algorithm of another issuer": lambda: token("EdDSA"),
    "no token": lambda: "",
    "a token of nobody": lambda: "dst1_0123456789abcdef_" + "A" * 43,
    "a token that is a path": lambda: "dst1_../../../../etc/passwd",
    "an issuer that is the cloud's own address": lambda: token("RS256", iss="http://169.254.169.254/latest/meta-data"),
    "x5u": lambda: token("RS256", header={"x5u": "https://10.0.0.1/certificate.pem"}),
    "not before": lambda: token("RS256", nbf=time.time() + 3600, exp=time.time() + 7200),
}


@pytest.mark.parametrize("attack", WRONG)
def test_a_wrong_token_is_401(scene: Scene, attack: str) -> None:
    header = f"Bearer {WRONG[attack]()}"
    status, found = scene.ask("POST", "/v1/keys", key_request(), Authorization=header, Content_Type="application/json")
    assert status == 401
    assert header.split(" ")[1][-20:] not in json.dumps(found) or header == "Bearer "


def test_another_sites_page_and_a_rebound_name_are_refused(scene: Scene) -> None:
    for host in ("evil.test", f"evil.test:{scene.port}", "127.0.0.1.evil.test", ""):
        assert scene.ask("GET", "/healthz", Host=host)[0] in (400, 421), host
    assert scene.ask("GET", "/healthz", Origin="https://evil.test")[0] == 403
    assert scene.ask("GET", "/healthz", Origin=f"https://localhost:{scene.port}")[0] == 200
    assert scene.ask("GET", "/healthz", Origin="null")[0] == 403


def test_bodies_are_bounded_typed_and_flat(scene: Scene) -> None:
    good = {"Authorization": scene.bearer(), "Content_Type": "application/json"}
    assert scene.ask("POST", "/v1/keys", b"x", Authorization=scene.bearer(), Content_Type="text/plain")[0] == 415
    for body in (b"", b"[]", b"{", b"\xff\xfe", b"[" * 60_000, key_request(admin=True), key_request(node="")):
        assert scene.ask("POST", "/v1/keys", body, **good)[0] == 400, body[:20]
    with pytest.raises((ConnectionError, ssl.SSLError, http.client.HTTPException, AssertionError)):
        assert scene.ask("POST", "/v1/keys", b"[" * 10_000_000, **good)[0] != 413  # told, or cut off while sending


def test_large_bodies_are_told_before_they_are_sent(scene: Scene) -> None:
    with closing(raw(scene)) as peer:
        peer.sendall(
            f"POST /v1/keys HTTP/1.1\r\nHost: localhost\r\nAuthorization: {scene.bearer()}\r\n"
            "Content-Type: application/json\r\nContent-Length: 10000000\r\n\r\n".encode()
        )
        assert b" 413 " in peer.recv(4096).splitlines()[0]


TRAVERSALS = (
    "../../etc/passwd",
    "%2e%2e%2fetc%2fpasswd",
    "..%2f..%2fetc",
    "a%00b",
    "%ff",
    "a" * 5000,
    "data%2f..%2f",
    "-x",
)


@pytest.mark.parametrize("name", TRAVERSALS)
def test_no_parameter_leads_out(scene: Scene, name: str) -> None:
    api = scene.running
    paths = (
        ("POST", f"/v1/mirrors/{name}/push"),
        ("POST", f"/v1/mirrors/{name}/confirm"),
        ("DELETE", f"/v1/mirrors/{name}"),
    )
    for method, path in paths:
        status = _local(api, method, path)
        assert 400 <= status < 500, (path, status)
    plain = unquote(name, errors="surrogateescape")
    bodies: list[tuple[str, dict[str, object]]] = [("/v1/commands", {"arguments": [name]})]
    bodies += [("/v1/commands", {"arguments": ["ls", name]}), ("/v1/warm", {"reference": name})]
    bodies += [("/v1/mirrors", {"path": name, "dataset": "x"})]
    if plain != name or "/" in name or len(name) > 255:  # else it is a name like any other
        bodies += [("/v1/mirrors", {"path": str(api.machine.home), "dataset": plain})]
    for path, body in bodies:
        with pytest.raises((UsageError, NotFound)):
            list(api.api.stream("POST", path, body))
    assert len(api.status()["mirrors"]) == 1
    good = {"Authorization": scene.bearer(), "Content_Type": "application/json"}
    status, _ = scene.ask("POST", "/v1/keys", key_request(dataset=name), **good)
    assert status in (400, 403)


def _local(running: Daemon, method: str, path: str) -> int:
    with closing(socket.socket(socket.AF_UNIX)) as peer:
        peer.settimeout(20)
        peer.connect(str(running.socket))
        peer.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return int(peer.recv(65536).split(b" ")[1])


NOT_HTTP = (
    b"\x00" * 100,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/keys HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"A: " + b"b" * 200_000,
)


def test_requests_that_are_no_http_break_nothing(scene: Scene) -> None:
    for text in NOT_HTTP:
        with closing(raw(scene)) as peer, suppress(ssl.SSLEOFError, ConnectionError):  # cut off before it was all sent
            peer.sendall(text)
            answer = peer.recv(4096)
            assert not answer or answer.split(b" ")[1][:1] == b"4"
    assert scene.ask("GET", "/healthz")[0] == 200


def raw(scene: Scene) -> ssl.SSLSocket:
    connection = socket.create_connection(("127.0.0.1", scene.port), timeout=30)
    return scene.context().wrap_socket(connection, server_hostname="localhost")


def test_plain_http_and_old_tls_are_not_spoken(scene: Scene) -> None:
    with closing(socket.create_connection(("127.0.0.1", scene.port), timeout=10)) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in peer.recv(4096)
    context = scene.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with closing(socket.create_connection(("127.0.0.1", scene.port), timeout=10)) as peer, pytest.raises(ssl.SSLError):
        context.wrap_socket(peer, server_hostname="localhost")


def test_slow_clients_are_cut_off_and_hold_nobody_up(scene: Scene) -> None:
    slow = [raw(scene) for _ in range(20)]
    try:
        for peer in slow:
            peer.sendall(b"POST /v1/keys HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        assert scene.ask("GET", "/healthz")[0] == 200
        for peer in slow:
            assert peer.recv(4096) == b"", "cut off, without an answer"
    finally:
        for peer in slow:
            peer.close()


@pytest.mark.skipif(not is_root(), reason="acting as another user needs root")
def test_another_user_of_this_machine_is_refused_by_the_kernels_word(scene: Scene) -> None:
    """Even where the socket's mode would let them in."""
    program = (
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
        "s.sendall(b'GET /v1/status HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "print(s.recv(4096).split(b' ')[1].decode())"
    )
    path = scene.running.socket
    assert path.stat().st_mode & 0o777 == 0o600
    opened = [path, *list(path.parents)[:2]]
    before = [item.stat().st_mode & 0o7777 for item in opened]
    try:
        for item in opened:
            item.chmod(0o777)
        done = subprocess.run(
            [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "/usr/bin/python3",
                "-c",
                program,
                str(path),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for item, mode in zip(opened, before, strict=True):
            item.chmod(mode)
    assert done.stdout.strip() == "401", done.stderr


def test_metrics_are_prometheus_text(scene: Scene) -> None:
    with closing(
        http.client.HTTPSConnection("localhost", scene.port, timeout=20, context=scene.context())
    ) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": scene.bearer()})
        text = connection.getresponse().read().decode()
    names = [line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert 'datasync_push_total{dataset="data",outcome="created"} 1' in text
    assert all(name.startswith("datasync_") for name in names)
    assert {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")} == set(names)


def test_events_stream_while_a_mirror_works(scene: Scene) -> None:
    found: list[dict[str, Any]] = []

    def follow() -> None:
        for event in Api("daemon", scene.running.socket).stream("GET", "/v1/events"):
            found.append(event)
            if event["type"] == "pushed":
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    wait_until("an event", lambda: scene.running.api.call("POST", "/v1/mirrors/data/push") and found)
    thread.join(30)
    assert found[-1]["type"] == "pushed"
    assert [event["number"] for event in found] == sorted(event["number"] for event in found)


@pytest.mark.parametrize("count", WRONG_TOKENS)
def test_wrong_tokens_are_slowed_down_and_told_as_a_sum(scene: Scene, count: int) -> None:
    """The last test here: it spends this address's patience."""
    context, statuses, started = scene.context(), [], time.monotonic()
    with closing(http.client.HTTPSConnection("localhost", scene.port, timeout=20, context=context)) as connection:
        for _ in range(count):
            connection.request("GET", "/v1/status", headers={"Authorization": "Bearer dst1_0_wrong"})
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
    assert set(statuses) == {401, 429}
    assert scene.running.process is not None
    assert scene.running.process.poll() is None
    assert scene.running.stop() == 0
    tail = [json.loads(line) for line in scene.running.machine.must("audit", "query", "--json").out.splitlines()]
    sums = [item for item in tail if item.get("action") == "auth.refused"]
    halves = (time.monotonic() - started) / 30
    assert 1 <= len(sums) <= 3 + halves, "a sum each half minute, not an event each"
    assert sum(int(item["detail"]["refused"]) for item in sums) >= statuses.count(401)
    assert "dst1_" not in json.dumps(tail)
    assert scene.token.split("_", 2)[2] not in scene.running.log.read_text()
