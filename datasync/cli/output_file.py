"""Files that a command was asked to write: what keeps it from that is told as a wrong command line, or as no space."""

import errno
from pathlib import Path

from datasync.errors import NoSpace, UsageError


def write_file(path: Path, text: str, *, new: bool = False) -> None:
    """Write *text* to *path*; *new*: refuse when something is there."""
    try:
        with open(path, "x" if new else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _cannot(path, error) from None


def require_writable(path: Path) -> None:
    """Raise now what writing *path* later would, for an act that can not be done twice."""
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise _cannot(path, error) from None


def _cannot(path: Path, error: OSError) -> NoSpace | UsageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"{path}: no space left: make room, or name another file")
    if isinstance(error, FileExistsError):
        return UsageError(f"{path}: expected no file there, found one: it is not overwritten")
    return UsageError(f"{path}: can not be written: {error.strerror}")
