"""The six providers, each on a server that speaks for it, and what its good answer to a decryption looks like."""

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.session

from datasync.crypto.kms import KeyService, resolve
from datasync.crypto.kms.http import HttpLimits
from tests.support.kms import alibaba, azure, google, tencent
from tests.support.kms.bao import ROOT_TOKEN, Bao
from tests.support.kms.server import KeyServer, Reply, running
from tests.support.servers import ACCESS_KEY, REGION, SECRET_KEY, S3Server

NAMES = ("aws", "vault", "alibaba", "tencent", "google", "azure")
QUICK = HttpLimits(connect_seconds=2.0, total_seconds=5.0, pauses=(0.0, 0.0))
AWS_KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"
AWS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
ALIBABA = {
    "ALIBABA_CLOUD_ACCESS_KEY_ID": alibaba.ACCESS_KEY,
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET": alibaba.SECRET,
    "ALIBABA_CLOUD_SECURITY_TOKEN": alibaba.TOKEN,
}
TENCENT = {
    "TENCENTCLOUD_SECRET_ID": tencent.SECRET_ID,
    "TENCENTCLOUD_SECRET_KEY": tencent.SECRET_KEY,
    "TENCENTCLOUD_TOKEN": tencent.TOKEN,
}
AZURE = {"AZURE_TENANT_ID": azure.TENANT, "AZURE_CLIENT_ID": azure.CLIENT, "AZURE_CLIENT_SECRET": azure.SECRET}
SECRETS = (
    SECRET_KEY, ROOT_TOKEN, alibaba.SECRET, alibaba.TOKEN, tencent.SECRET_KEY, tencent.TOKEN, google.REFRESH,
    google.CLIENT_SECRET, google.ACCESS, azure.SECRET, azure.ACCESS, "canary", "PRIVATE KEY", "said at length",
)  # fmt: skip
"""Nothing of these may be in an error's text, a traceback or a repr."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A service ready to use; `server` is None where a real program answers."""

    name: str
    uri: str
    environment: Mapping[str, str] = field(repr=False)
    server: KeyServer | None = None

    def service(self, limits: HttpLimits = QUICK) -> KeyService:
        return resolve(self.uri, self.environment, limits)

    def faulty(self) -> KeyServer:
        assert self.server is not None
        return self.server


def good_decryption(name: str, key: bytes) -> Reply:
    """Return the answer that says: it decrypts to *key*."""
    text = base64.b64encode(key).decode()
    fields: dict[str, Callable[[], dict[str, Any]]] = {
        "aws": lambda: {"Plaintext": text, "KeyId": AWS_KEY},
        "vault": lambda: {"data": {"plaintext": text}},
        "alibaba": lambda: {"Plaintext": text, "KeyId": alibaba.KEY_ID},
        "tencent": lambda: {"Response": {"Plaintext": text, "KeyId": tencent.KEY_ID}},
        "google": lambda: {"plaintext": text},
        "azure": lambda: {
            "kid": f"https://{azure.HOST}/keys/{azure.KEY}",
            "value": base64.urlsafe_b64encode(key).decode().rstrip("="),
        },
    }
    return Reply.of(200, fields[name]())


def place_of(name: str) -> str:
    """Return the URI of the one key that *name*'s server has, without the endpoint."""
    return {
        "aws": f"aws-kms://{REGION}/{AWS_KEY}",
        "vault": "vault://transit/datasets",
        "alibaba": f"alibaba-kms://cn-hangzhou/{alibaba.KEY_ID}",
        "tencent": f"tencent-kms://ap-singapore/{tencent.KEY_ID}",
        "google": f"google-kms://{google.KEY_NAME}",
        "azure": f"azure-kv://{azure.HOST}/{azure.KEY}",
    }[name]


@contextmanager
def local(name: str, folder: Path) -> Iterator[Provider]:
    """Serve *name* from this process; for AWS and Vault only faults are answered."""
    made: dict[str, Callable[[], KeyServer]] = {
        "alibaba": alibaba.AlibabaServer,
        "tencent": tencent.TencentServer,
        "google": google.GoogleServer,
        "azure": azure.AzureServer,
    }
    with running(made.get(name, KeyServer)()) as server:
        uri = f"{place_of(name)}?endpoint={server.endpoint}"
        environment: dict[str, str] = {"HOME": str(folder)} | {
            "aws": AWS, "vault": {"VAULT_TOKEN": ROOT_TOKEN}, "alibaba": ALIBABA, "tencent": TENCENT, "google": {},
            "azure": AZURE | {"AZURE_AUTHORITY_HOST": server.endpoint},
        }[name]  # fmt: skip
        if isinstance(server, google.GoogleServer):
            path = folder / "account.json"
            path.write_text(json.dumps(server.service_account()))
            environment["GOOGLE_APPLICATION_CREDENTIALS"] = str(path)
        yield Provider(name, uri, environment, server)


def on_bao(bao: Bao, key: str = "datasets", token: str = ROOT_TOKEN) -> Provider:
    environment = {"VAULT_TOKEN": token, "VAULT_ADDR": bao.address, "HOME": "/nonexistent"}
    return Provider("vault", f"vault://transit/{key}", environment)


def on_moto(moto: S3Server) -> Provider:
    """Return a service on a fresh key of moto; the SDK's chain reads the process's own environment."""
    client: Any = botocore.session.get_session().create_client(
        "kms",
        region_name=REGION,
        endpoint_url=moto.endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
    key = client.create_key()["KeyMetadata"]["KeyId"]
    client.close()
    return Provider("aws", f"aws-kms://{REGION}/{key}?endpoint={moto.endpoint}", dict(os.environ))
