"""OssStore: Alibaba Cloud OSS. Which SDK sends is `client=v2|oss2` of the URL, else the newer one when it is installed.

Names are the vendor's: error codes from its page "Error codes", storage classes from "Overview of storage classes".
"""

import importlib.util
import re

from datasync.errors import UsageError
from datasync.storage.http import HttpOptions
from datasync.storage.location import StoreUrl
from datasync.storage.oss.credentials import WHAT_TO_SET, oss_keys
from datasync.storage.oss.endpoint import endpoint_of, region_of
from datasync.storage.sdk.client import Dialect, SdkClient
from datasync.storage.sdk.credentials import Provider
from datasync.storage.sdk.store import SdkStore

_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_RENEW = "the temporary credentials have expired or are not valid; renew them"
_KEY = "the access key is unknown or disabled; check OSS_ACCESS_KEY_ID"

TRY_AGAIN = ("RequestTimeout", "InvalidDigest", "BadDigest", "InternalError")
SLOW_DOWN = (
    "SlowDown", "QpsLimitExceeded", "TotalQpsLimitExceeded", "DownloadTrafficRateLimitExceeded",
    "UploadTrafficRateLimitExceeded",
)  # fmt: skip

OSS = Dialect(
    name="OSS",
    header="x-oss-",
    credentials=WHAT_TO_SET,
    where="bucket, region and endpoint of the URL",
    hints={
        "InvalidAccessKeyId": _KEY,
        "SignatureDoesNotMatch": "the secret does not belong to the access key, or the region is another; check both",
        "SecurityTokenExpired": _RENEW,
        "InvalidSecurityToken": _RENEW,
        "AccessKeyIdAndSecurityTokenNotMatch": "the token belongs to another access key; renew both together",
        "SecondLevelDomainForbidden": "OSS takes no path-style requests; leave endpoint= away or give the region's own",
        "UserDisable": "the account is disabled; check its payment and status with the provider",
        "InDebt": "the account owes money; check its payment with the provider",
    },
    try_again=frozenset(TRY_AGAIN),
    slow_down=frozenset(SLOW_DOWN),
    classes={
        "Standard": "",
        "IA": "storage class IA costs a fee for each byte read, and at least 30 days and 64 KiB for each object",
    },
)


def open_oss(where: StoreUrl, *, keys: Provider | None = None, options: HttpOptions | None = None) -> SdkStore:
    """Return the store; asks nothing but, without `endpoint=`, whether the internal endpoint answers."""
    if _BUCKET.fullmatch(where.place) is None:
        raise UsageError(f"{where}: an OSS bucket has 3 to 63 of a-z 0-9 -, no '-' at its ends")
    client = _make_client(where, keys or oss_keys(), options or HttpOptions())
    return SdkStore(where, client, OSS)


def _make_client(where: StoreUrl, keys: Provider, options: HttpOptions) -> SdkClient:
    region, kind = region_of(where), _choose(where)
    endpoint = endpoint_of(where)
    if kind == "v2":
        from datasync.storage.oss.v2_client import V2Client

        return V2Client(where.place, region, endpoint, keys, options)
    from datasync.storage.oss.oss2_client import Oss2Client

    return Oss2Client(where.place, region, endpoint, keys, options)


def _choose(where: StoreUrl) -> str:
    installed = {"v2": "alibabacloud_oss_v2", "oss2": "oss2"}
    asked = where.option("client")
    if asked is not None and asked not in installed:
        raise UsageError(f"{where}: client must be v2 or oss2")
    for kind, module in installed.items():
        if asked in (None, kind) and importlib.util.find_spec(module):
            return kind
    wanted = {"v2": "oss2v2", "oss2": "oss"}[asked or "v2"]
    raise UsageError(f"oss:// needs the vendor's SDK: pip install 'gpu-datasync[{wanted}]'")
