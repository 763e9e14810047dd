"""A Unix socket at a path of any length: beyond the 107 bytes that bind and connect take (unix(7)), its directory is
opened and the kernel's own short name for it is used.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET_BYTES = 107


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield a name for *path* that bind and connect take; raise `OSError` when its directory is not there."""
    if len(os.fsencode(path)) <= SOCKET_BYTES:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
