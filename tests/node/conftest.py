"""Fixtures of the node's tests: a scratch directory, a machine with a repository and a cache, small disks."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datasync.cache.layout import Cache
from tests.support.machine import Machine

Disk = Callable[[str], Path]
LoopDisk = Callable[[str, int], Path]
UMOUNTS = 50  # tries


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
def loop_disk(scratch: Path) -> Iterator[LoopDisk]:
    """Return what mounts a file of some MiB as a disk with a file system (`ext4`, `xfs`, `btrfs`)."""
    made: list[Path] = []

    def mount(kind: str, mebibytes: int) -> Path:
        maker = shutil.which(f"mkfs.{kind}", path=os.environ["PATH"] + ":/sbin:/usr/sbin")
        if os.geteuid() != 0 or maker is None:
            pytest.skip(f"a {kind} disk needs mkfs.{kind} and the right to mount it")
        path, image = scratch / f"{kind}{len(made)}", scratch / f"{kind}{len(made)}.img"
        path.mkdir()
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        for command in ([maker, "-q", str(image)], ["mount", "-o", "loop", str(image), str(path)]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"a {kind} disk can not be made here: {done.stderr.strip()}")
        made.append(path)
        return path

    yield mount
    for path in made:
        for _ in range(UMOUNTS - 1):  # what a killed child held is given back a moment later
            if subprocess.run(["umount", str(path)], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", str(path)], check=True)


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
