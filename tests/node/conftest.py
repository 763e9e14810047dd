"""Fixtures of the node's tests: a scratch directory, a machine with a repository and a cache, small disks."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datasync.cache.layout import Cache
from tests.support.machine import Machine

Disk = Callable[[str], Path]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory of which nothing stays, also when the test fails."""
    directory = Path(tempfile.mkdtemp(prefix="datasync-node-")).resolve()
    try:
        yield directory
    finally:
        if os.geteuid() != 0:
            subprocess.run(["chmod", "-Rf", "u+rwx", str(directory)], check=False)
        subprocess.run(["rm", "-rf", str(directory)], check=True)


@pytest.fixture
def machine(scratch: Path) -> Machine:
    """A machine with a repository in a local directory and an empty cache in `scratch / "cache"`."""
    made = Machine.make(scratch / "home", str(scratch / "repository"), {"DATASYNC_CACHE": str(scratch / "cache")})
    made.must("init")
    return made


@pytest.fixture
def cache(scratch: Path) -> Iterator[Cache]:
    """An empty cache for views that are made by hand."""
    with Cache.open(scratch / "cache") as cache:
        yield cache


@pytest.fixture
def disk(scratch: Path) -> Iterator[Disk]:
    """Return what mounts a small file system of a size (`96m`) and returns its directory."""
    made: list[Path] = []

    def mount(size: str) -> Path:
        if os.geteuid() != 0:
            pytest.skip("a small disk needs the right to mount one")
        path = scratch / f"disk{len(made)}"
        path.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={size},mode=0755", "none", str(path)]
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small disk needs the right to mount one: {done.stderr.strip()}")
        made.append(path)
        return path

    yield mount
    for path in made:
        subprocess.run(["umount", str(path)], check=True)
