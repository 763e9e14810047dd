"""When a certificate ends, and whom it names."""

import time
from pathlib import Path

from datasync.crypto.certificates import not_after
from datasync.errors import UsageError


def ends_in(path: Path) -> float:
    """Return the seconds until the PEM certificate at *path* ends; negative afterwards."""
    try:
        return not_after(path.read_bytes(), str(path)) - time.time()
    except OSError as error:
        raise UsageError(f"{path}: expected a PEM certificate: {error.strerror}") from None
