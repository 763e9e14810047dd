"""Daemons as processes, each with a HOME of its own, and what a test asks of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from datasync.errors import DatasyncError
from datasync.service.client import Api
from tests.support.machine import Machine

DEADLINE_SECONDS = 120.0


def wait_until(what: str, true: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until *true* holds; fail by name when it never does."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


@dataclass
class Daemon:
    """A daemon of one machine; it can be killed and started again."""

    machine: Machine
    prefix: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def socket(self) -> Path:
        return self.machine.home / "d.sock"

    @property
    def log(self) -> Path:
        return self.machine.home / "daemon.log"

    @property
    def api(self) -> Api:
        return Api("daemon", self.socket)

    def start(self, *, ready: bool = True) -> None:
        """Start it; its log goes to a file."""
        command = [*self.prefix, *self.machine_command()]
        environment = self.machine.environment() | {"PYTHONPATH": str(Path(__file__).parents[2])}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, env=environment, cwd=self.machine.home, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        if ready:
            wait_until("the daemon answers", self.answers)

    @staticmethod
    def machine_command() -> list[str]:
        return [sys.executable, "-m", "datasync.cli.main", "daemon", "run"]

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            return bool(self.api.call("GET", "/healthz"))
        except DatasyncError:
            return False

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.call("GET", "/v1/status")
        return found

    def mirror(self, number: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["mirrors"][number]
        return found

    def kill(self) -> None:
        """Kill it at once, as a power cut would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """End it as an administrator would; return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def events(self) -> list[dict[str, Any]]:
        """Return what it has logged."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@contextmanager
def daemon(machine: Machine, settings: str, *, prefix: tuple[str, ...] = (), start: bool = True) -> Iterator[Daemon]:
    """Run a daemon of *machine* with *settings* until the end."""
    made = Daemon(machine, prefix)
    configure(machine, settings + f'\n[daemon]\nsocket = "{made.socket}"\n' if "[daemon]" not in settings else settings)
    try:
        if start:
            made.start()
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.stop()


def configure(machine: Machine, settings: str) -> None:
    """Write the user's configuration file."""
    path = machine.home / ".config/datasync/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(settings)


def mirror_table(source: Path, dataset: str = "data", **more: object) -> str:
    """Return a [[mirror]] that is quick enough for a test."""
    fields: Mapping[str, object] = {
        "path": str(source), "dataset": dataset, "debounce": "200ms", "stable": "100ms", "rescan": "10s",
        "scan": "500ms", **more,
    }  # fmt: skip
    return "[[mirror]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())


@dataclass(frozen=True, slots=True)
class Certificates:
    """A CA, a server's certificate for localhost, and a client's with a SPIFFE name."""

    ca: Path
    certificate: Path
    key: Path
    client: Path
    client_key: Path


def make_certificates(directory: Path, client_uri: str = "spiffe://test/node") -> Certificates:
    """Make all of them in *directory*."""
    directory.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("CA", ca_key, None, ca_key, [])
    (directory / "ca.pem").write_bytes(ca.public_bytes(Encoding.PEM))
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    made: dict[str, list[x509.GeneralName]] = {"server": names, "client": [x509.UniformResourceIdentifier(client_uri)]}
    for name, alternatives in made.items():
        key = ec.generate_private_key(ec.SECP256R1())
        found = _certificate(name, key, ca, ca_key, alternatives)
        (directory / f"{name}.pem").write_bytes(found.public_bytes(Encoding.PEM))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (directory / f"{name}.key").write_bytes(private)
    return Certificates(
        directory / "ca.pem",
        directory / "server.pem",
        directory / "server.key",
        directory / "client.pem",
        directory / "client.key",
    )


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    public = key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if issuer is None:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, SHA256())


def may_unshare() -> bool:
    """Tell whether this user may make a user namespace."""
    return subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode == 0


def is_root() -> bool:
    return os.geteuid() == 0
