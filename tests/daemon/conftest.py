"""Fixtures of the daemon's tests: a machine with a repository in a local directory, and a folder to mirror."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine import Machine


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A short directory: a socket's path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ds-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


@pytest.fixture
def machine(scratch: Path) -> Machine:
    made = Machine.make(scratch / "home", str(scratch / "repository"))
    made.must("init")
    return made


@pytest.fixture
def source(scratch: Path) -> Path:
    """Twenty small files in two folders."""
    root = scratch / "source"
    for number in range(20):
        path = root / f"d{number % 2}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {number}\n")
    return root
