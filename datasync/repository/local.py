"""Local copies of immutable objects, which save requests and may be deleted at any time.

What they hold is verified after reading exactly as if the store had sent it, so they need no trust; only what was
verified is kept.
"""

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from datasync.errors import IntegrityError

Value = TypeVar("Value")


def replace_file(path: Path, data: bytes) -> None:
    """Put *data* at *path*, all or nothing, in a directory that only this user enters; other processes and threads may
    do the same at the same time.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:16]}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class LocalCopies:
    """A directory of copies, by object name; None keeps nothing."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def get(self, name: str, fetch: Callable[[], bytes], verify: Callable[[bytes], Value]) -> Value:
        """Return what *verify* makes of the copy of *name*, or of what *fetch* returns, which is kept then."""
        if self._directory is None:
            return verify(fetch())
        path = self._directory / name.replace("/", "_")
        try:
            return verify(path.read_bytes())
        except (FileNotFoundError, IntegrityError):
            data = fetch()  # a damaged copy says nothing about the object
        value = verify(data)
        replace_file(path, data)
        return value

    def drop(self, name: str) -> None:
        """Forget the copy of *name*."""
        if self._directory is not None:
            (self._directory / name.replace("/", "_")).unlink(missing_ok=True)
