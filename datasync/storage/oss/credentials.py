"""Keys for OSS: OSS_ACCESS_KEY_ID…, ALIBABA_CLOUD_ACCESS_KEY_ID…, else the vendor's own chain when it is installed.

The chain (alibabacloud-credentials) knows OIDC roles of pods, ~/.aliyun/config.json, the ECS instance's RAM role and
ALIBABA_CLOUD_CREDENTIALS_URI, and renews what expires; it costs half a second to import, so only who needs it pays.
"""

import os
from typing import Any

from datasync.errors import NotAuthorized
from datasync.storage.sdk.credentials import Keys, Provider, Variables

VARIABLES = (
    Variables("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"),
    Variables("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN"),
)
WHAT_TO_SET = "set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET (and OSS_SESSION_TOKEN for temporary keys)"


def oss_keys() -> Provider:
    """Return the provider; nothing is looked up before its first call."""
    chain: list[Any] = []

    def keys() -> Keys:
        for variables in VARIABLES:
            if found := variables.read(dict(os.environ)):
                return found
        return _from_chain(chain)

    return keys


def _chain_class() -> Any:
    try:
        from alibabacloud_credentials.client import Client
    except ImportError:
        raise NotAuthorized(
            f"no credentials for OSS: {WHAT_TO_SET}, or install alibabacloud-credentials for roles and profiles"
        ) from None
    return Client


def _from_chain(held: list[Any]) -> Keys:
    """Return the keys of the chain in *held*, which is made first where there is none."""
    make = _chain_class()
    from alibabacloud_credentials.exceptions import CredentialException
    from Tea.exceptions import TeaException

    try:
        held[:] = held or [make()]
        found = held[0].get_credential()
    except (CredentialException, TeaException, OSError, ValueError) as error:
        raise NotAuthorized(f"no usable credentials for OSS ({type(error).__name__}): {WHAT_TO_SET}") from error
    return Keys(found.access_key_id or "", found.access_key_secret or "", found.security_token or "")
