"""A test server that speaks OSS: signatures V1 and V4, virtual hosts, the vendor's errors. For the tests' process only.

    with oss_server() as server:
        url = server.make_bucket("b1")

A bucket answers at `http://<bucket>.oss-<region>.localhost:<port>` alone. Not built: multipart uploads, copies, ACLs,
lifecycle, bucket policies. `server.state` lets a test change accounts, buckets and the clock while it runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from datasync.storage.location import parse_url
from datasync.storage.oss.store import open_oss
from datasync.storage.sdk.credentials import Keys
from datasync.storage.sdk.store import SdkStore
from tests.support.object_server import Account, Bucket, State, serving
from tests.support.oss_server.answers import answer

ACCESS_KEY = "LTAI5tTestKey00000000000"
SECRET_KEY = "test-secret-of-no-value-0000000000"
REGION = "cn-beijing"


@dataclass(frozen=True, slots=True)
class OssServer:
    """A running server, reached through one of the two SDKs: *client* is `oss2` or `v2`."""

    kind: str
    port: int
    state: State
    client: str
    keys: Keys

    @property
    def endpoint(self) -> str:
        return f"http://oss-{REGION}.localhost:{self.port}"

    def url(self, bucket: str, prefix: str = "") -> str:
        path = f"{bucket}/{prefix}" if prefix else bucket
        return f"oss://{path}?endpoint={self.endpoint}&region={REGION}&client={self.client}"

    def environment(self) -> dict[str, str]:
        token = {"OSS_SESSION_TOKEN": self.keys.token} if self.keys.token else {}
        return {"OSS_ACCESS_KEY_ID": self.keys.access_key, "OSS_ACCESS_KEY_SECRET": self.keys.secret_key} | token

    def make_bucket(self, name: str) -> str:
        self.state.buckets[name] = Bucket()
        return self.url(name)

    def open(self, bucket: str, prefix: str = "") -> SdkStore:
        return open_oss(parse_url(self.url(bucket, prefix)), keys=lambda: self.keys)

    def with_keys(self, keys: Keys) -> "OssServer":
        return replace(self, keys=keys)


@contextmanager
def oss_server(client: str = "oss2") -> Iterator[OssServer]:
    """Serve OSS on a free loopback port."""
    state = State(REGION, {ACCESS_KEY: Account(SECRET_KEY)})
    with serving(state, answer(state)) as port:
        yield OssServer(f"oss-{client}", port, state, client, Keys(ACCESS_KEY, SECRET_KEY))
