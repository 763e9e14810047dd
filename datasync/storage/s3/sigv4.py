"""Signature Version 4 for S3 ("Authenticating Requests: Using the Authorization Header", Amazon S3 API Reference).

Pure: texts in, headers out. The payload is not signed: packs are authenticated by their own hash, and a CRC-32 guards
the transport. Keys leave this module in no message.
"""

import hashlib
import hmac
from collections.abc import Mapping
from time import gmtime, strftime
from urllib.parse import quote

from datasync.storage.s3.options import S3Credentials

UNSIGNED = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"


def target_of(path: str, query: Mapping[str, str]) -> str:
    """Return the request target of *path* and *query* in the one form that is signed."""
    text = "&".join(f"{quote(key, safe='-_.~')}={quote(value, safe='-_.~')}" for key, value in sorted(query.items()))
    return quote(path, safe="/-_.~") + (f"?{text}" if text else "")


def signed(
    method: str,
    target: str,
    headers: Mapping[str, str],
    *,
    keys: S3Credentials,
    region: str,
    payload: str,
    now: float,
) -> dict[str, str]:
    """Return *headers*, `Host` among them, with date, payload and signature.

    *target* is as `target_of` makes it; *now* is Unix time in seconds.
    """
    date = strftime("%Y%m%dT%H%M%SZ", gmtime(now))
    every = {**headers, "X-Amz-Content-SHA256": payload, "X-Amz-Date": date}
    if keys.token:
        every["X-Amz-Security-Token"] = keys.token
    values = {name.lower(): " ".join(value.split()) for name, value in every.items()}
    names = ";".join(sorted(values))
    path, _, query = target.partition("?")
    lines = [method, path, query, *(f"{name}:{values[name]}" for name in sorted(values)), "", names, payload]
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = f"{_ALGORITHM}\n{date}\n{scope}\n{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"
    signature = hmac.digest(_signing_key(keys.secret_key, date[:8], region), text.encode(), "sha256").hex()
    every["Authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return every


def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
