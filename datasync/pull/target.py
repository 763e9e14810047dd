"""The directory that a pull restores into: made when its parent is there, or looked at. Raises `UsageError`."""

import os
from pathlib import Path

from datasync.errors import UsageError


def make_target(target: Path) -> bool:
    """Make *target*; return whether it is empty, so that all of it is this pull's."""
    try:
        target.mkdir(mode=0o700, parents=False)
    except FileExistsError:
        return _is_empty(target)
    except FileNotFoundError:
        raise _no_parent(target) from None
    except PermissionError:
        raise _not_allowed(target) from None
    return True


def look_at_target(target: Path) -> bool:
    """Return what `make_target` would, and make nothing."""
    if os.path.lexists(target):
        return _is_empty(target)
    if not target.parent.is_dir():
        raise _no_parent(target)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise _not_allowed(target)
    return True


def _is_empty(target: Path) -> bool:
    if not target.is_dir():
        raise UsageError(f"{target}: expected a directory to pull into, found a file")
    return not any(target.iterdir())


def _no_parent(target: Path) -> UsageError:
    return UsageError(f"{target}: its parent directory does not exist: make it first")


def _not_allowed(target: Path) -> UsageError:
    return UsageError(f"{target}: cannot be created here: permission denied")
