"""A test server that speaks COS: its signature, virtual hosts, the vendor's errors. For the tests' process only.

    with cos_server() as server:
        url = server.make_bucket("b1")

A bucket answers at `http://<bucket>-<appid>.cos.<region>.localhost:<port>` alone, as buckets made since 2024 do. Not
built: multipart uploads, copies, ACLs, lifecycle, bucket policies. `server.state` lets a test change accounts, buckets
and the clock while it runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from datasync.storage.cos.store import open_cos
from datasync.storage.location import parse_url
from datasync.storage.sdk.credentials import Keys
from datasync.storage.sdk.store import SdkStore
from tests.support.cos_server.answers import answer
from tests.support.object_server import Account, Bucket, State, serving

SECRET_ID = "AKIDTestId0000000000000000000000"
SECRET_KEY = "test-secret-of-no-value-0000000000"
REGION = "ap-beijing"
APPID = "1250000000"


@dataclass(frozen=True, slots=True)
class CosServer:
    """A running server."""

    kind: str
    port: int
    state: State
    keys: Keys

    @property
    def endpoint(self) -> str:
        return f"http://cos.{REGION}.localhost:{self.port}"

    def url(self, bucket: str, prefix: str = "") -> str:
        whole = f"{bucket}-{APPID}"
        path = f"{whole}/{prefix}" if prefix else whole
        return f"cos://{path}?endpoint={self.endpoint}&region={REGION}"

    def environment(self) -> dict[str, str]:
        token = {"COS_SESSION_TOKEN": self.keys.token} if self.keys.token else {}
        return {"COS_SECRET_ID": self.keys.access_key, "COS_SECRET_KEY": self.keys.secret_key} | token

    def make_bucket(self, name: str) -> str:
        self.state.buckets[f"{name}-{APPID}"] = Bucket()
        return self.url(name)

    def open(self, bucket: str, prefix: str = "") -> SdkStore:
        return open_cos(parse_url(self.url(bucket, prefix)), keys=lambda: self.keys)

    def with_keys(self, keys: Keys) -> "CosServer":
        return replace(self, keys=keys)


@contextmanager
def cos_server() -> Iterator[CosServer]:
    """Serve COS on a free loopback port."""
    state = State(REGION, {SECRET_ID: Account(SECRET_KEY)})
    with serving(state, answer(state)) as port:
        yield CosServer("cos", port, state, Keys(SECRET_ID, SECRET_KEY))
