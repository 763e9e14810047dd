"""OSS or COS as an issuer of credentials meets it: an object server, the token service beside it, and one role."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from datasync.storage.brokers import Credential, CredentialBroker, Scope
from datasync.storage.cos import broker as cos
from datasync.storage.cos.client import CosClient
from datasync.storage.http import HttpOptions
from datasync.storage.location import parse_url
from datasync.storage.oss import broker as oss
from datasync.storage.oss.oss2_client import Oss2Client
from datasync.storage.oss.v2_client import V2Client
from datasync.storage.sdk.client import SdkClient
from datasync.storage.sdk.credentials import Keys
from datasync.storage.sdk.store import SdkStore
from tests.support.cos_server import APPID, CosServer
from tests.support.cos_server.sts import cos_sts
from tests.support.object_server import State
from tests.support.oss_server import REGION, OssServer
from tests.support.oss_server.sts import oss_sts
from tests.support.policies import Role
from tests.support.stores import Running

BROKER = Keys("LTAI-broker", "secret-of-the-broker")
HOUR = 3_600
MINE, OTHER = "d/aaaa/", "d/bbbb/"
ROLES = {"oss": "acs:ram::1234567890:role/nodes", "cos": "qcs::cam::uin/100000000001:roleName/nodes"}


@dataclass
class Cloud:
    """An object server with a bucket of two datasets, and the token service beside it."""

    server: OssServer | CosServer
    bucket: str
    roles: dict[str, Role]
    endpoint: str = ""

    @property
    def scheme(self) -> str:
        return self.server.kind.partition("-")[0]

    @property
    def role(self) -> str:
        return ROLES[self.scheme]

    @property
    def state(self) -> State:
        return self.server.state

    @property
    def place(self) -> str:
        """The bucket's whole name."""
        return self.bucket if self.scheme == "oss" else f"{self.bucket}-{APPID}"

    @property
    def settings(self) -> dict[str, str]:
        """What a control side has in its environment."""
        policy = {"DATASYNC_POLICY_ROLE": self.role, "DATASYNC_POLICY_STS_ENDPOINT": self.endpoint}
        return self.server.environment() | policy

    def broker(self, keys: Keys = BROKER, endpoint: str = "") -> CredentialBroker:
        url = parse_url(self.server.url(self.bucket, "repo"))
        if self.scheme == "oss":
            return oss.OssStsBroker(url, self.role, lambda: keys, endpoint=endpoint or self.endpoint)
        return cos.CosStsBroker(url, self.role, lambda: keys, endpoint=endpoint or self.endpoint)

    def issue(self, **scope: Any) -> Credential:
        usual: dict[str, Any] = {"prefixes": (MINE,), "until": int(time.time()) + HOUR}
        return self.broker().issue(Scope(**{**usual, **scope}))

    def open(self, credential: Credential) -> SdkStore:
        """Open the repository as a node does."""
        opened = {"oss": oss.open_lent, "cos": cos.open_lent}[self.scheme]
        store = opened(parse_url(self.server.url(self.bucket, "repo")), credential.variables)
        assert isinstance(store, SdkStore)
        return store

    def bare_put(self, credential: Credential, name: str) -> bool:
        """Put without the header that forbids to overwrite; tell whether it was stored."""
        with closing(self._client(Keys(*credential.variables.values()))) as client:
            try:
                client.put(f"repo/{name}", b"another", {})
            except client.failures:
                return False
        return True

    def _client(self, keys: Keys) -> SdkClient:
        options, endpoint = HttpOptions(), self.server.endpoint
        if isinstance(self.server, CosServer):
            return CosClient(self.place, self.state.region, endpoint, lambda: keys, options)
        if self.server.client == "oss2":
            return Oss2Client(self.place, REGION, endpoint, lambda: keys, options)
        return V2Client(self.place, REGION, endpoint, lambda: keys, options)


@contextmanager
def cloud_of(running: Running, kind: str, bucket: str) -> Iterator[Cloud]:
    """Yield the server *kind* with an empty bucket and a role that the server's own user may assume, for 12 hours."""
    server = running.server(kind)
    assert isinstance(server, OssServer | CosServer)
    accounts, found = dict(server.state.accounts), Cloud(server, bucket, {})
    found.roles[found.role] = Role(frozenset({server.keys.access_key}), longest=12 * HOUR)
    server.make_bucket(bucket)
    try:
        with (oss_sts if found.scheme == "oss" else cos_sts)(server.state, found.roles) as found.endpoint:
            yield found
    finally:
        server.state.accounts, server.state.ahead = accounts, 0.0
