"""How to reach an S3 server, and what is said with requests. Imports no SDK."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from datasync.errors import UsageError
from datasync.model.limits import KIB
from datasync.storage.body import Body
from datasync.storage.location import StoreUrl

DEFAULT_REGION = "us-east-1"
ONE_SEND_BYTES = 128 * KIB  # bodies up to this fit into socket buffers and go without asking first


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Keys given by the program; without them the SDK's own chain is used."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach the server."""

    credentials: S3Credentials | None = None
    connect_seconds: float = 10.0
    read_seconds: float = 60.0  # without a byte
    connections: int = 32  # kept open; more threads than this open short-lived ones
    sdk: bool = False  # through the SDK even where `plain` would do


HEADERS = {
    "StorageClass": "x-amz-storage-class",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "RequestPayer": "x-amz-request-payer",
}
"""The headers of the parameters that `extra_parameters` returns."""


def extra_parameters(where: StoreUrl) -> Mapping[str, str]:
    """Return what is said with each request that can say it: class of new objects, their key, who pays."""
    found = {"StorageClass": name} if (name := where.option("storage_class")) else {}
    if key := where.option("kms_key"):
        found |= {"ServerSideEncryption": "aws:kms"} | ({} if key == "default" else {"SSEKMSKeyId": key})
    return found | ({"RequestPayer": "requester"} if switch(where, "requester_pays") else {})


def switch(where: StoreUrl, name: str) -> bool:
    """Return the value of an option that is true or false."""
    value = where.option(name) or "false"
    if value not in ("true", "false"):
        raise UsageError(f"repository URL: {name} must be true or false")
    return value == "true"


def body_of(data: bytes | bytearray | memoryview) -> Body | bytearray:
    """Return what to send.

    The SDK asks the server before it sends a file-like body (Expect: 100-continue), so a refusal is read instead of a
    broken connection. For a small body that costs a round trip and saves nothing: it goes as plain bytes.
    """
    view = memoryview(data)
    return Body(view) if view.nbytes > ONE_SEND_BYTES else bytearray(view)
