"""Azurite: Microsoft's own emulator of Azure Blob Storage, with keys checked.

It comes from npm: AZURITE names an installed `main.js`; without it the emulator is installed once, at a pinned version,
beneath the checkout's .cache directory.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from datasync.storage.azure import AzureOptions, AzureStore
from datasync.storage.azure.access import Access
from datasync.storage.http import Http, HttpOptions
from datasync.storage.location import parse_url
from tests.support.daemons import Certificates
from tests.support.servers import free_ports, serve

VERSION = "3.37.0"
INSTALL_SECONDS = 240
ACCOUNT = "devstoreaccount1"
KEY = "dGVzdC1hY2NvdW50LWtleS1vZi1uby12YWx1ZQ=="
PROJECT = Path(__file__).resolve().parents[2]
MAIN = Path("node_modules/azurite/dist/src/blob/main.js")


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A running emulator."""

    endpoint: str
    kind: str = "azure"
    key: str = field(default=KEY, repr=False)

    def url(self, bucket: str, prefix: str = "") -> str:
        path = f"{bucket}/{prefix}" if prefix else bucket
        return f"az://{path}?endpoint={quote(self.endpoint, safe=':/')}"

    def environment(self) -> dict[str, str]:
        return {"AZURE_STORAGE_KEY": self.key}

    def options(self) -> AzureOptions:
        return AzureOptions(key=self.key)

    def make_bucket(self, name: str) -> str:
        """Create the container *name* and return its URL."""
        access = Access(parse_url(self.url(name)), self.options())
        target, headers = access.signed("PUT", f"/{name}?restype=container", {"Content-Length": "0"})
        http = Http(self.endpoint, HttpOptions())
        answer = http.exchange("PUT", target, headers, what=name)
        http.close()
        if answer.status != 201:
            raise RuntimeError(f"container {name}: {answer.status} {answer.body!r}")
        return self.url(name)

    def open(self, bucket: str, prefix: str = "") -> AzureStore:
        return AzureStore(parse_url(self.url(bucket, prefix)), self.options())


def missing() -> str:
    """Return why the emulator can not run here, or nothing."""
    node = shutil.which("node")
    if node is None:
        return "node is not installed: azurite needs it"
    if not _installed() and shutil.which("npm") is None:
        return "npm is not installed: it brings azurite"
    return ""


@contextmanager
def azurite(certificates: Certificates | None = None) -> Iterator[AzureServer]:
    """Run one emulator; with *certificates*, whose CA SSL_CERT_FILE names, it speaks https and takes tokens too."""
    (port,) = free_ports(1)
    scheme, more = "http", list[str]()
    if certificates is not None:
        scheme, more = "https", ["--oauth", "basic", "--cert", str(certificates.certificate)]
        more += ["--key", str(certificates.key)]
    command = [
        shutil.which("node") or "node", str(_installed() or _install()), "--blobHost", "127.0.0.1",
        "--blobPort", str(port), "--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence",
        *more,
    ]  # fmt: skip
    with serve("azurite", command, port, extra={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}, scheme=scheme):
        yield AzureServer(f"{scheme}://127.0.0.1:{port}/{ACCOUNT}")


def identity_token(seconds: int = 3600) -> str:
    """Return a token as Entra ID would give it for the service; the emulator looks at all but its signature."""
    now = int(time.time())
    claims = {
        "aud": "https://storage.azure.com", "iss": "https://sts.windows.net/11111111-2222-3333-4444-555555555555/",
        "iat": now - 60, "nbf": now - 60, "exp": now + seconds,
        "oid": "66666666-7777-8888-9999-000000000000", "tid": "11111111-2222-3333-4444-555555555555",
    }  # fmt: skip
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    return ".".join([*(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), "c2lnbmF0dXJl"])


def _installed() -> Path | None:
    named = os.environ.get("AZURITE")
    found = Path(named) if named else PROJECT / ".cache" / "azurite" / MAIN
    return found if found.is_file() else None


def _install() -> Path:
    """Install it beside its place and move it there: several test processes may do so at the same time."""
    place = PROJECT / ".cache" / "azurite"
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="azurite-") as fresh:
        command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", fresh, f"azurite@{VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        if done.returncode or not (Path(fresh) / MAIN).is_file():
            raise RuntimeError(f"azurite could not be installed: {done.stderr[-500:]}")
        if not place.exists():
            with suppress(OSError):  # another process was faster
                (Path(fresh) / "node_modules").rename(_made(place) / "node_modules")
    return place / MAIN


def _made(place: Path) -> Path:
    place.mkdir()
    return place
