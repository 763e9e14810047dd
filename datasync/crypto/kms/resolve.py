"""A KMS URI -> the provider that serves it, imported only when it is asked for."""

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from datasync.crypto.kms.protocol import KeyService, parse_key_uri
from datasync.errors import UsageError

if TYPE_CHECKING:  # HTTP and TLS, which nobody needs without a key service
    from datasync.crypto.kms.http import HttpLimits

_MODULES = {
    "aws-kms": "aws",
    "alibaba-kms": "alibaba",
    "tencent-kms": "tencent",
    "google-kms": "google",
    "azure-kv": "azure",
    "vault": "vault",
}


def resolve(uri: str, environment: Mapping[str, str] = os.environ, limits: "HttpLimits | None" = None) -> KeyService:
    """Return the key that *uri* names, with credentials from *environment*; no request is made. Raises `UsageError`."""
    from datasync.crypto.kms.http import HttpLimits  # 10 ms to load

    parsed = parse_key_uri(uri)
    try:
        module = importlib.import_module(f"datasync.crypto.kms.{_MODULES[parsed.scheme]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "botocore":
            raise
        raise UsageError(f"{parsed.scheme}: needs a package: run pip install 'gpu-datasync[aws-kms]'") from None
    service: KeyService = module.make(parsed, environment, limits or HttpLimits())
    return service
