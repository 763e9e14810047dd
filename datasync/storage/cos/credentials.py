"""Keys for COS, asked for before every request: variables, a pod's role, the profile file, the machine's role.

    COS_SECRET_ID, COS_SECRET_KEY, COS_SESSION_TOKEN
    TENCENTCLOUD_SECRET_ID, TENCENTCLOUD_SECRET_KEY, TENCENTCLOUD_TOKEN
    TKE_WEB_IDENTITY_TOKEN_FILE (a TKE pod's role; needs tencentcloud-sdk-python-common)
    ~/.tencentcloud/credentials, [default] secret_id and secret_key
    the role of the CVM instance, from its metadata service (vendor's page "Instance roles"); renewed before it expires

Every wait is bounded, which the vendor's own chain does not do.
"""

import configparser
import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from datasync.errors import NotAuthorized, StorageUnavailable
from datasync.storage.sdk.credentials import Keys, Provider, Variables

VARIABLES = (
    Variables("COS_SECRET_ID", "COS_SECRET_KEY", "COS_SESSION_TOKEN"),
    Variables("TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY", "TENCENTCLOUD_TOKEN"),
)
WHAT_TO_SET = "set COS_SECRET_ID and COS_SECRET_KEY (and COS_SESSION_TOKEN for temporary keys)"
METADATA_URL = "http://metadata.tencentyun.com/latest/meta-data/cam/security-credentials/"
METADATA_SECONDS = 2.0
METADATA_BYTES = 64 * 1024
RENEW_SECONDS = 300.0  # before the end


def cos_keys() -> Provider:
    """Return the provider; nothing is looked up before its first call."""
    machine, pod = MachineRole(), list[Provider]()

    def keys() -> Keys:
        for variables in VARIABLES:
            if found := variables.read(dict(os.environ)):
                return found
        if "TKE_WEB_IDENTITY_TOKEN_FILE" in os.environ:
            pod[:] = pod or [_pod_role()]
            return pod[0]()
        return _profile() or machine.keys()

    return keys


def _pod_role() -> Provider:
    try:
        from tencentcloud.common.credential import DefaultTkeOIDCRoleArnProvider
        from tencentcloud.common.exception import TencentCloudSDKException
    except ImportError:
        raise NotAuthorized("no credentials for COS: a pod's role needs tencentcloud-sdk-python-common") from None

    held: list[Any] = []

    def keys() -> Keys:
        try:
            held[:] = held or [DefaultTkeOIDCRoleArnProvider().get_credential()]
            return Keys(*held[0].get_credential_info())  # asks again when they are about to end
        except (TencentCloudSDKException, OSError, LookupError) as error:
            kind = type(error).__name__
            raise NotAuthorized(f"no usable credentials for COS from the pod's role ({kind})") from error

    return keys


def _profile() -> Keys | None:
    parser = configparser.ConfigParser(interpolation=None)  # a secret may hold a %
    try:
        parser.read(Path("~/.tencentcloud/credentials").expanduser())
        found = parser["default"]
        keys = Keys(found.get("secret_id", "").strip(), found.get("secret_key", "").strip())
    except (configparser.Error, KeyError, OSError, UnicodeDecodeError):
        return None
    return keys if keys.access_key and keys.secret_key else None


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # keys do not pass a proxy


def _fetch(url: str) -> bytes:
    with _DIRECT.open(url, timeout=METADATA_SECONDS) as answer:
        return bytes(answer.read(METADATA_BYTES))


@dataclass
class MachineRole:
    """The temporary keys of this machine's role."""

    fetch: Callable[[str], bytes] = _fetch
    clock: Callable[[], float] = time.time
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _keys: Keys | None = None
    _expires: float = 0.0

    def keys(self) -> Keys:
        """Return keys that last a while; the old ones while the service does not answer and they still hold."""
        with self._lock:
            if self._keys is None or self.clock() > self._expires - RENEW_SECONDS:
                try:
                    self._renew()
                except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                    if self._keys is None:
                        raise NotAuthorized(f"no credentials for COS: {WHAT_TO_SET}") from error
                    if self.clock() > self._expires:
                        raise StorageUnavailable("the machine's metadata service gives no keys; try again") from error
            return self._keys  # type: ignore[return-value]

    def _renew(self) -> None:
        role = self.fetch(METADATA_URL).decode("ascii").strip()
        found = json.loads(self.fetch(METADATA_URL + role))
        keys, expires = Keys(found["TmpSecretId"], found["TmpSecretKey"], found["Token"]), float(found["ExpiredTime"])
        self._keys, self._expires = keys, expires
