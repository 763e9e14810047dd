"""Where a bucket is: `endpoint=` as given, else the region's internal endpoint if it answers, else the public one.

Alibaba Cloud charges nothing for traffic through `-internal`, which only machines of the same region reach (vendor's
page "Regions and endpoints"). Whether it answers is one TCP connection, tried once for a process.
"""

import functools
import re
import socket
from urllib.parse import urlsplit

from datasync.errors import UsageError
from datasync.storage.location import StoreUrl

PROBE_SECONDS = 0.4  # the internal network answers within milliseconds
_OF_REGION = re.compile(r"oss-([a-z0-9-]+?)(?:-internal)?\.(?:aliyuncs\.com|localhost)")


def region_of(where: StoreUrl) -> str:
    """Return the region that requests are signed for; `UsageError` when the URL tells none."""
    host = (urlsplit(where.endpoint).hostname or "") if where.endpoint else ""
    found = _OF_REGION.fullmatch(host)
    region = where.region or (found[1] if found else "")
    if not region:
        raise UsageError(f"{where}: OSS needs the bucket's region; add ?region=cn-beijing (without oss-)")
    if region.startswith("oss-"):
        raise UsageError(f"{where}: the region is written without oss-: region={region.removeprefix('oss-')}")
    if found and found[1] != region:
        raise UsageError(f"{where}: the endpoint is of region {found[1]}, but region={region}; correct one of them")
    return region


def endpoint_of(where: StoreUrl) -> str:
    """Return the endpoint with its scheme."""
    region = region_of(where)
    if where.endpoint:
        return where.endpoint
    internal = f"oss-{region}-internal.aliyuncs.com"
    return f"https://{internal}" if reachable(internal) else f"https://oss-{region}.aliyuncs.com"


@functools.cache
def reachable(host: str, port: int = 443) -> bool:
    """Tell whether *host* accepts a connection."""
    try:
        with socket.create_connection((host, port), PROBE_SECONDS):
            return True
    except OSError:
        return False
