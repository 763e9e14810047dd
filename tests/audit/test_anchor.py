"""Others vouch for a checkpoint: time stamps of an authority (OpenSSL), and witnesses (a second implementation)."""

import base64
import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from datasync.audit.checkpoint import parse_note
from datasync.config import Config, Flags, load_config
from datasync.errors import (
    DatasyncError,
    IntegrityError,
    NotAuthorized,
    RollbackError,
    StorageUnavailable,
    UsageError,
)
from datasync.service import anchor
from datasync.service.audit_log import audit_root
from datasync.service.record import recorded
from tests.audit.second_tree import is_consistent
from tests.support.cli import Machine

Answers = Callable[[str, bytes], tuple[int, str, bytes]]

TSA = """\
[req]
distinguished_name = dn
[dn]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[signer]
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
[tsa]
default_tsa = one
[one]
serial = {folder}/serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha512
"""


@pytest.fixture
def serve() -> Iterator[Callable[[Answers], str]]:
    """Return what answers POSTs with a function, and its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answers) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, kind, data = answer(self.path, body)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    made = load_config(Flags(), {"HOME": str(tmp_path / "home")})
    act(made, 5)
    return made


def act(config: Config, count: int) -> None:
    for _ in range(count):
        with recorded(config, "push"):
            pass


def saved(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


# time stamps


class Authority:
    """A root, a certificate for time stamps beneath it, and `openssl ts` to answer with."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.roots = folder, folder / "root.pem"
        (folder / "conf").write_text(TSA.format(folder=folder))
        (folder / "serial").write_text("01\n")
        new = ("req", "-config", "conf", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self.run(*new, "-x509", "-subj", "/CN=root", "-extensions", "ca", "-keyout", "root.key", "-out", "root.pem")
        self.run(*new, "-subj", "/CN=stamps", "-keyout", "tsa.key", "-out", "tsa.csr")
        sign = ("x509", "-req", "-in", "tsa.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial")
        self.run(*sign, "-extfile", "conf", "-extensions", "signer", "-out", "tsa.pem")

    def run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def answer(self, _: str, body: bytes) -> tuple[int, str, bytes]:
        (self.folder / "query").write_bytes(body)
        made = ("ts", "-reply", "-config", "conf", "-queryfile", "query", "-signer", "tsa.pem", "-inkey", "tsa.key")
        self.run(*made, "-out", "reply")
        return 200, "application/timestamp-reply", (self.folder / "reply").read_bytes()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("a time stamping authority needs openssl")
    return Authority(tmp_path / "tsa")


def test_a_stamp_says_when_a_checkpoint_was_there(
    config: Config, tmp_path: Path, authority: Authority, serve: Callable[[Answers], str]
) -> None:
    made = anchor.anchor(config, (), serve(authority.answer))
    path = saved(tmp_path / "anchor.json", made)
    (told,) = anchor.check(path, authority.roots, ())
    assert told.startswith(f"{path}: it was there at 20")
    (told,) = anchor.check(path, None, ())
    assert told.endswith("not checked: give --tsa-roots")
    (authority.folder / "note").write_text(made["checkpoint"])
    (authority.folder / "stamp").write_bytes(base64.b64decode(made["timestamp"]["stamp"]))
    authority.run("ts", "-verify", "-data", "note", "-in", "stamp", "-CAfile", "root.pem", "-untrusted", "tsa.pem")


def test_a_stamp_of_another_authority_or_for_another_checkpoint_does_not_hold(
    config: Config, tmp_path: Path, authority: Authority, serve: Callable[[Answers], str]
) -> None:
    made = anchor.anchor(config, (), serve(authority.answer))
    stranger = Authority(tmp_path / "stranger")
    path = saved(tmp_path / "anchor.json", made)
    with pytest.raises(IntegrityError, match="does not hold"):
        anchor.check(path, stranger.roots, ())
    later = anchor.anchor(config, (), None)
    with pytest.raises(IntegrityError, match="does not hold"):
        anchor.check(saved(path, later | {"timestamp": made["timestamp"]}), authority.roots, ())
    with pytest.raises(IntegrityError, match="expected a time stamp, found none"):
        anchor.check(saved(path, later), authority.roots, ())
    garbage = {"timestamp": {"stamp": base64.b64encode(b"no stamp").decode()}}
    with pytest.raises(IntegrityError, match="RFC 3161"):
        anchor.check(saved(path, later | garbage), authority.roots, ())
    with pytest.raises(UsageError):
        anchor.check(saved(path, made), path, ())


def test_an_answer_to_another_request_is_refused(
    config: Config, authority: Authority, serve: Callable[[Answers], str]
) -> None:
    kept: list[tuple[int, str, bytes]] = []

    def replay(path: str, body: bytes) -> tuple[int, str, bytes]:
        kept.append(authority.answer(path, body) if not kept else kept[0])
        return kept[0]

    url = serve(replay)
    anchor.anchor(config, (), url)
    with pytest.raises(IntegrityError, match="another request"):
        anchor.anchor(config, (), url)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((500, "text/plain", b""), StorageUnavailable),
        ((200, "text/plain", b"hello"), IntegrityError),
        ((200, "text/plain", b"x" * 300_000), IntegrityError),
    ],
)
def test_what_is_no_stamp_is_refused(
    config: Config, serve: Callable[[Answers], str], answer: tuple[int, str, bytes], error: type[DatasyncError]
) -> None:
    with pytest.raises(error):
        anchor.anchor(config, (), serve(lambda _, __: answer))


@pytest.mark.parametrize("url", ["ftp://x/", "nothing", "http://", "http://host:port/"])
def test_what_is_no_url_is_refused(config: Config, url: str) -> None:
    with pytest.raises(UsageError):
        anchor.anchor(config, (), url)


def test_nobody_there_is_told(config: Config) -> None:
    with pytest.raises(StorageUnavailable):
        anchor.anchor(config, (), "http://127.0.0.1:9/")


# witnesses


@dataclass
class Witness:
    """A witness of one log, by the words of the protocol alone."""

    name: str = "witness.example/w1"
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    size: int = 0
    root: bytes = b""
    requests: int = 0

    @property
    def public(self) -> bytes:
        return b"\4" + self.key.public_key().public_bytes_raw()

    @property
    def key_hash(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n" + self.public).digest()[:4]

    @property
    def text(self) -> str:
        return f"{self.name}+{self.key_hash.hex()}+{base64.b64encode(self.public).decode()}"

    def answer(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        assert path == "/w/add-checkpoint"
        self.requests += 1
        head, note = body.decode().split("\n\n", 1)
        old, *proof = head.split("\n")
        text = note.split("\n\n")[0] + "\n"
        size, root = int(text.split("\n")[1]), base64.b64decode(text.split("\n")[2])
        if int(old.removeprefix("old ")) != self.size:
            return 409, "text/x.tlog.size", f"{self.size}\n".encode()
        hashes = [base64.b64decode(item) for item in proof]
        if self.size and not is_consistent(self.size, size, hashes, self.root, root):
            return 422, "text/plain", b""
        self.size, self.root = size, root
        signed = self.key.sign(f"cosignature/v1\ntime 1790000000\n{text}".encode())
        blob = self.key_hash + (1790000000).to_bytes(8, "big") + signed
        return 200, "text/plain", f"— {self.name} {base64.b64encode(blob).decode()}\n".encode()


def test_a_witness_cosigns_a_log_that_grew(config: Config, tmp_path: Path, serve: Callable[[Answers], str]) -> None:
    one, other = Witness(), Witness("witness.example/w2")
    urls = tuple(f"{serve(item.answer)}/w#{item.text}" for item in (one, other))
    for _ in range(3):
        made = anchor.anchor(config, urls, None)
        act(config, 4)
    assert one.requests == 5  # the first at once; then told the size, and a proof from there
    told = anchor.check(saved(tmp_path / "anchor.json", made), None, (one.text, other.text))
    assert told == [f"{tmp_path}/anchor.json: witness {w.name} signed it at 2026-09-21T14:13:20Z" for w in (one, other)]
    checkpoint, signatures = parse_note(made["checkpoint"])
    assert len(signatures) == 3
    assert (checkpoint.size, checkpoint.root) == (one.size, one.root)
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(made["key"].split("+", 2)[2])[1:])
    key.verify(signatures[0][1][4:], checkpoint.text.encode())


def test_a_cosignature_that_does_not_hold_is_refused(
    config: Config, tmp_path: Path, serve: Callable[[Answers], str]
) -> None:
    real, false = Witness(), Witness()
    with pytest.raises(IntegrityError, match="without a cosignature that holds"):
        anchor.anchor(config, (f"{serve(false.answer)}/w#{real.text}",), None)
    made = anchor.anchor(config, (f"{serve(real.answer)}/w#{real.text}",), None)
    with pytest.raises(IntegrityError, match="no cosignature"):
        anchor.check(saved(tmp_path / "anchor.json", made), None, (false.text,))
    size = parse_note(made["checkpoint"])[0].size
    changed = made["checkpoint"].replace(f"\n{size}\n", f"\n{size + 1}\n")
    assert changed != made["checkpoint"]
    with pytest.raises(IntegrityError, match="does not hold"):
        anchor.check(saved(tmp_path / "anchor.json", made | {"checkpoint": changed}), None, (real.text,))


def test_a_witness_that_knows_more_or_other_events_tells_of_it(config: Config, serve: Callable[[Answers], str]) -> None:
    ahead, other = Witness(size=1000, root=bytes(32)), Witness(size=3, root=bytes(32))
    with pytest.raises(RollbackError, match="signed this log at 1000 events"):
        anchor.anchor(config, (f"{serve(ahead.answer)}/w#{ahead.text}",), None)
    with pytest.raises(IntegrityError, match="another history"):
        anchor.anchor(config, (f"{serve(other.answer)}/w#{other.text}",), None)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, "text/plain", b""), UsageError),
        ((403, "text/plain", b""), NotAuthorized),
        ((503, "text/plain", b""), StorageUnavailable),
        ((409, "text/plain", b"5\n"), IntegrityError),
        ((409, "text/x.tlog.size", b"many\n"), IntegrityError),
        ((409, "text/x.tlog.size", b"2\n"), StorageUnavailable),
        ((200, "text/plain", b"\xff\xfe"), IntegrityError),
    ],
)
def test_every_refusal_has_its_meaning(
    config: Config, serve: Callable[[Answers], str], answer: tuple[int, str, bytes], error: type[DatasyncError]
) -> None:
    with pytest.raises(error):
        anchor.anchor(config, (f"{serve(lambda _, __: answer)}/w#{Witness().text}",), None)


@pytest.mark.parametrize(
    "text", ["https://host", "https://host#", "https://host#a+b+c", "https://host#name+00000000+BA=="]
)
def test_a_witness_without_its_key_is_refused_before_anything_is_sent(config: Config, text: str) -> None:
    with pytest.raises(UsageError):
        anchor.anchor(config, (text,), None)


def test_the_commands_anchor_and_verify_with_both(
    tmp_path: Path, authority: Authority, serve: Callable[[Answers], str]
) -> None:
    (tmp_path / "home").mkdir()
    machine, witness = Machine(tmp_path / "home", str(tmp_path / "repository")), Witness()
    machine.run("init")
    anchored = tmp_path / "anchor.json"
    asked = ("--witness", f"{serve(witness.answer)}/w#{witness.text}", "--tsa", serve(authority.answer))
    machine.run("audit", "anchor", *asked, "--output", anchored)
    checked = ("--checkpoint", anchored, "--witness-key", witness.text, "--tsa-roots", authority.roots)
    told = machine.run("audit", "verify", *checked).stdout
    assert "signed it at 2026-09-21" in told
    assert "it was there at 20" in told
    machine.run("audit", "verify", "--witness-key", witness.text, expect=2)
    root = audit_root(load_config(Flags(), {"HOME": str(tmp_path / "home")}))
    assert any(root.rglob("*.ndjson"))
