"""Fixtures of the doctor's tests: real file systems, mounted where the test may."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Mounter = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mounter]:
    """Return what mounts a file system (type, options) and returns its directory; skip where that is forbidden."""
    made: list[Path] = []

    def mounted(kind: str, options: str) -> Path:
        if os.geteuid() != 0:
            pytest.skip("mounting needs root")
        path = tmp_path / f"mount{len(made)}"
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", kind, "-o", options, kind, str(path)], check=False, capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"mount -t {kind}: {done.stderr.strip()}")
        made.append(path)
        return path

    yield mounted
    for path in reversed(made):
        subprocess.run(["umount", str(path)], check=True)
