"""Refusals that mean the same at every provider: busy, full, or failing for a while. Pure."""

import time
from collections.abc import Mapping

from datasync.errors import DatasyncError, NoSpace, SlowDown, StorageUnavailable
from datasync.storage.retry import retry_after


def trouble(
    what: str,
    said: str,
    status: int,
    headers: Mapping[str, str],
    *,
    full: bool = False,
    slow: bool = False,
    again: bool = False,
) -> DatasyncError | None:
    """Return the error for *status* (RFC 9110, section 15), or for a code of the provider's that the caller knows:
    *full*, *slow*, or to be tried *again*; None when it means something else. Header names are in lower case.
    """
    if full or status == 507:
        return NoSpace(f"{what}: {said}; the store is full: make room or raise the quota")
    if slow or status in (429, 503):
        return SlowDown(f"{what}: {said}; run the same line again", retry_after(headers, time.time()))
    if again or status == 408 or (status >= 500 and status != 501):
        return StorageUnavailable(f"{what}: {said}; run the same line again")
    return None
