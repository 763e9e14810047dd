"""Extended attributes of a file or directory, read through an open fd (docs/format.md, sections 10 and 14).

Only the `user.` namespace: the others describe this machine (owners, labels, capabilities) and need its privileges.
Raises `OSError`, which the walk turns into a skipped entry, and `TooLarge`.
"""

import errno
import os

from datasync.errors import PartialFailure
from datasync.model.limits import XATTRS, XATTRS_BYTES

Xattrs = tuple[tuple[bytes, bytes], ...]


class TooLarge(PartialFailure):
    """The attributes of one entry pass the format's limit."""


def read_xattrs(fd: int) -> Xattrs:
    """Return the attributes sorted by name; none where the file system has none."""
    try:
        names = sorted(os.fsencode(name) for name in os.listxattr(fd) if name.startswith("user."))
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return ()
        raise
    if len(names) > XATTRS:
        raise TooLarge(f"its extended attributes are left out: {len(names)} of them, at most {XATTRS} fit")
    found = tuple((name, os.getxattr(fd, name)) for name in names)
    length = sum(len(name) + len(value) for name, value in found)
    if length > XATTRS_BYTES:
        raise TooLarge(f"its extended attributes are left out: {length} bytes, at most {XATTRS_BYTES} fit")
    return found
