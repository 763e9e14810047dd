"""Local copies of immutable objects, which save requests and may be deleted at any time.

What they hold is verified after reading exactly as if the store had sent it, so they need no trust.
"""

import os
from collections.abc import Callable
from pathlib import Path


class LocalCopies:
    """A directory of copies, by object name; None keeps nothing."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def get(self, name: str, fetch: Callable[[], bytes]) -> bytes:
        """Return the copy of *name*, or what *fetch* returns, which is kept."""
        if self._directory is None:
            return fetch()
        path = self._directory / name.replace("/", "_")
        try:
            return path.read_bytes()
        except FileNotFoundError:
            data = fetch()
        self._keep(path, data)
        return data

    def drop(self, name: str) -> None:
        """Forget the copy of *name*."""
        if self._directory is not None:
            (self._directory / name.replace("/", "_")).unlink(missing_ok=True)

    def _keep(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(data)
        os.replace(temporary, path)
