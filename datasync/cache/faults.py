"""What a failed system call means to the caller: one error of `datasync.errors` for each errno.

Pure. The message names the object, what was found and what to do.
"""

import errno

from datasync.errors import DatasyncError, IntegrityError, NoSpace, NotAuthorized, NotFound

SHOWN_BYTES = 160  # of a path in a message: paths may be 65,535 bytes long

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY})
_NOT_WHAT_IT_WAS = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EISDIR, errno.ENXIO})
_UNHOLDABLE = frozenset({errno.ENAMETOOLONG, errno.EILSEQ})


def shown(path: bytes) -> str:
    """Return *path* for a message: printable, without raw control bytes, cut in the middle when it is long."""
    if len(path) > SHOWN_BYTES:
        path = path[: SHOWN_BYTES // 2] + b"..." + path[-SHOWN_BYTES // 2 :]
    return repr(path)[1:]


def fault(error: OSError, what: str) -> DatasyncError:
    """Return the error to raise when *what* (for example "create 'a/b'") failed with *error*."""
    number = error.errno or 0
    if number in _FULL:
        return NoSpace(f"{what}: the disk or the quota is full; make room, or use a directory on another disk")
    if number in _DENIED:
        return NotAuthorized(f"{what}: {error.strerror}; look at owner and mode, and whether it is mounted read-only")
    if number in _TAKEN:
        return IntegrityError(
            f"{what}: expected a free name, found it taken; two names are one on this file system, "
            "or somebody else put something there: use an empty directory on a case-sensitive file system"
        )
    if number in _NOT_WHAT_IT_WAS:
        return IntegrityError(
            f"{what}: expected real directories and a plain file, found a symbolic link or something else "
            f"({error.strerror}); remove what was put there"
        )
    if number in _UNHOLDABLE:
        return IntegrityError(f"{what}: this file system can not hold the name ({error.strerror})")
    if number == errno.ENOENT:
        return NotFound(f"{what}: it is not there")
    return DatasyncError(f"{what}: {error.strerror or error}")
