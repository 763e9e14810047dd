"""Signed URLs of Google Cloud Storage, version 4 ("V4 signing process with your own program"): texts in, texts out.

The XML interface answers them. A put that is signed here creates an object and never replaces one:
`x-goog-if-generation-match: 0` is signed too.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from datasync.storage.extras import SignedRequest

ALGORITHM = "GOOG4-RSA-SHA256"
SECONDS = 7 * 24 * 3600  # what the service takes at most


def signed_request(
    method: str,
    place: str,
    headers: Mapping[str, str],
    *,
    email: str,
    sign: Callable[[bytes], bytes],
    now: datetime,
    seconds: int,
) -> SignedRequest:
    """Return the request for *place* (an URL without a query), signed by the account *email*."""
    parts, stamp = urlsplit(place), now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/auto/storage/goog4_request"
    signed = dict(sorted({"host": parts.netloc, **headers}.items()))
    names = ";".join(signed)
    query = {
        "X-Goog-Algorithm": ALGORITHM,
        "X-Goog-Credential": f"{email}/{scope}",
        "X-Goog-Date": stamp,
        "X-Goog-Expires": str(seconds),
        "X-Goog-SignedHeaders": names,
    }
    text = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())  # in order of the names
    lines = "".join(f"{key}:{value}\n" for key, value in signed.items())
    asked = f"{method}\n{parts.path}\n{text}\n{lines}\n{names}\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    signature = sign(f"{ALGORITHM}\n{stamp}\n{scope}\n{digest}".encode()).hex()
    return SignedRequest(
        method, f"{place}?{text}&X-Goog-Signature={signature}", tuple(headers.items()), now.timestamp() + seconds
    )
