"""How S3Store talks to the SDK: one client without retries of its own.

Uses botocore, the engine of boto3, directly: the same credentials chain, 0.1 s less to import. What is switched off:
retries (RetryingStore has them), SHA-256 of payloads (everything here is authenticated by its own hash; a CRC-32
that S3Store sends guards the transport), validation of response checksums (some servers answer a ranged read with the
checksum of the whole object). The SDK follows a bucket to its right region by itself, once for each client.
"""

from collections.abc import Mapping
from typing import Any

import botocore.session
from botocore.config import Config

from datasync.storage.location import StoreUrl
from datasync.storage.s3.models import Models
from datasync.storage.s3.options import DEFAULT_REGION, S3Options, extra_parameters, switch


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
            "use_accelerate_endpoint": switch(where, "accelerate"),
        },
        use_dualstack_endpoint=switch(where, "dualstack") or None,  # None: as the user's own configuration says
    )
    client = session.create_client("s3", region_name=region, endpoint_url=where.endpoint, config=config)
    if extra := extra_parameters(where):
        _say_with_each(client, extra)
    return client
