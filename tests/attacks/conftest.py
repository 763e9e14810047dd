"""A small directory, and a machine with an identity and a fresh repository of its own."""

import os
from pathlib import Path

import pytest

from datasync.storage.memory import MemoryStore
from tests.support.machine import Machine


def fill(root: Path, seed: bytes = b"one") -> Path:
    """Make a small directory of every kind of entry."""
    (root / "deep/er").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "text").write_bytes(b"some words, many times over\n" * 200 + seed)
    (root / "noise").write_bytes(os.urandom(40_000))
    (root / "nothing").write_bytes(b"")
    (root / "deep/er/leaf").write_bytes(seed * 100)
    (root / "link").symlink_to("deep/er/leaf")
    return root


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return fill(tmp_path / "source")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a repository in a local directory."""
    made = Machine.make(tmp_path / "home", str(tmp_path / "repository"))
    made.must("init")
    return made


@pytest.fixture
def store(machine: Machine) -> MemoryStore:
    """A repository in memory for commands that run in this process: `machine.run(…, store=store)`."""
    made = MemoryStore()
    machine.must("init", store=made)
    return made
