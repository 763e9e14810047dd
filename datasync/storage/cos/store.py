"""CosStore: Tencent Cloud COS. Names are the vendor's: its pages "Error codes" and "Storage class overview".

Machines of the bucket's region reach the public name through the internal network by themselves (vendor's page
"Intranet and internet access"), so there is no second endpoint to try.
"""

import importlib.util
import re
from urllib.parse import urlsplit

from datasync.errors import UsageError
from datasync.storage.cos.credentials import WHAT_TO_SET, cos_keys
from datasync.storage.http import HttpOptions
from datasync.storage.location import StoreUrl
from datasync.storage.sdk.client import Dialect
from datasync.storage.sdk.credentials import Provider
from datasync.storage.sdk.store import SdkStore

_BUCKET = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?-\d{5,20}")
_OF_REGION = re.compile(r"cos(?:-internal)?\.([a-z0-9-]+)\.(?:myqcloud\.com|tencentcos\.cn|localhost)")
_RENEW = "the temporary credentials have expired or are not valid; renew them"
_IA = "costs a fee for each byte read, and at least 30 days and 64 KiB for each object"

COS = Dialect(
    name="COS",
    header="x-cos-",
    credentials=WHAT_TO_SET,
    where="bucket, region and endpoint of the URL",
    hints={
        "InvalidAccessKeyId": "the secret id is unknown or disabled; check COS_SECRET_ID",
        "SignatureDoesNotMatch": "the secret key does not belong to the secret id; check both",
        "ExpiredToken": _RENEW,
        "InvalidToken": _RENEW,
        "PathStyleDomainForbidden": "COS takes no path-style requests; leave endpoint= away",
    },
    try_again=frozenset({"RequestTimeout", "BadDigest", "InternalError"}),
    slow_down=frozenset({"SlowDown"}),
    classes={
        "STANDARD": "",
        "MAZ_STANDARD": "",
        "INTELLIGENT_TIERING": "storage class INTELLIGENT_TIERING costs a monthly fee for each object that is watched",
        "STANDARD_IA": f"storage class STANDARD_IA {_IA}",
        "MAZ_STANDARD_IA": f"storage class MAZ_STANDARD_IA {_IA}",
    },
)


def open_cos(where: StoreUrl, *, keys: Provider | None = None, options: HttpOptions | None = None) -> SdkStore:
    """Return the store; asks nothing."""
    if _BUCKET.fullmatch(where.place) is None:
        raise UsageError(
            f"{where}: a COS bucket's name is lower case and ends with the account's APPID, as in "
            f"cos://{where.place.lower()}-1250000000; the console shows it whole"
        )
    region = region_of(where)
    if importlib.util.find_spec("qcloud_cos") is None:
        raise UsageError("cos:// needs the vendor's SDK: pip install 'gpu-datasync[cos]'")
    from datasync.storage.cos.client import CosClient

    endpoint = where.endpoint or f"https://cos.{region}.myqcloud.com"
    return SdkStore(where, CosClient(where.place, region, endpoint, keys or cos_keys(), options or HttpOptions()), COS)


def region_of(where: StoreUrl) -> str:
    """Return the bucket's region, which is part of its host; `UsageError` when the URL tells none, or two."""
    host = (urlsplit(where.endpoint).hostname or "") if where.endpoint else ""
    found = _OF_REGION.fullmatch(host)
    region = where.region or (found[1] if found else "")
    if not region:
        raise UsageError(f"{where}: COS needs the bucket's region; add ?region=ap-beijing")
    if found and found[1] != region:
        raise UsageError(f"{where}: the endpoint is of region {found[1]}, but region={region}; correct one of them")
    return region
