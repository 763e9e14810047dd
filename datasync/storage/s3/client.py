"""How S3Store talks to the SDK: one client without retries of its own, and bodies that are sent without a copy.

Uses botocore, the engine of boto3, directly: the same credentials chain, 0.1 s less to import. What is switched off:
retries (RetryingStore has them), SHA-256 of payloads (everything here is authenticated by its own hash; a CRC-32
that S3Store sends guards the transport), validation of response checksums (some servers answer a ranged read with the
checksum of the whole object). The SDK follows a bucket to its right region by itself, once for each client.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import botocore.session
from botocore.config import Config

from datasync.errors import UsageError
from datasync.model.limits import KIB
from datasync.storage.body import Body
from datasync.storage.location import StoreUrl
from datasync.storage.s3.models import Models

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


def body_of(data: bytes | bytearray | memoryview) -> Body | bytearray:
    """Return what to send.

    The SDK asks the server before it sends a file-like body (Expect: 100-continue), so a refusal is read instead of a
    broken connection. For a small body that costs a round trip and saves nothing: it goes as plain bytes.
    """
    view = memoryview(data)
    return Body(view) if view.nbytes > ONE_SEND_BYTES else bytearray(view)


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
    return found | ({"RequestPayer": "requester"} if _switch(where, "requester_pays") else {})


def _switch(where: StoreUrl, name: str) -> bool:
    value = where.option(name) or "false"
    if value not in ("true", "false"):
        raise UsageError(f"repository URL: {name} must be true or false")
    return value == "true"


def _say_with_each(client: Any, extra: Mapping[str, str]) -> None:
    def add(params: dict[str, Any], model: Any, **_: Any) -> None:
        takes = model.input_shape.members if model.input_shape else {}
        params.update({name: value for name, value in extra.items() if name in takes and _meant(name, model.name)})

    client.meta.events.register("before-parameter-build.s3", add)


def _meant(parameter: str, operation: str) -> bool:
    return parameter == "RequestPayer" or operation == "PutObject"


def make_client(where: StoreUrl, options: S3Options) -> Any:
    """Return a thread-safe client; raises the SDK's errors for unusable profiles and settings."""
    session = botocore.session.Session()
    session.register_component("data_loader", Models(session.get_config_variable("data_path")))
    if options.credentials is not None:
        keys = options.credentials
        session.set_credentials(keys.access_key, keys.secret_key, keys.token)
    region = where.region or session.get_config_variable("region") or DEFAULT_REGION
    config = Config(
        connect_timeout=options.connect_seconds,
        read_timeout=options.read_seconds,
        max_pool_connections=options.connections,
        tcp_keepalive=True,
        retries={"total_max_attempts": 1, "mode": "standard"},
        signature_version="s3v4",
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={  # type: ignore[arg-type]
            "addressing_style": where.addressing,
            "payload_signing_enabled": False,
            "use_accelerate_endpoint": _switch(where, "accelerate"),
        },
        use_dualstack_endpoint=_switch(where, "dualstack") or None,  # None: as the user's own configuration says
    )
    client = session.create_client("s3", region_name=region, endpoint_url=where.endpoint, config=config)
    if extra := extra_parameters(where):
        _say_with_each(client, extra)
    return client
