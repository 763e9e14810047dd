"""A repository in memory with one dataset, and people around it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from datasync.storage.memory import MemoryStore
from tests.policy.site import Site
from tests.support.people import Person

URL = "memory://people"


@pytest.fixture
def store() -> MemoryStore:
    """The storage that everybody reaches."""
    return MemoryStore()


@pytest.fixture
def person(tmp_path: Path, store: MemoryStore) -> Callable[..., Person]:
    """Make somebody with an identity of their own."""
    return lambda name, **extra: Person.make(tmp_path, name, URL, store, **extra)


@pytest.fixture
def site(tmp_path: Path, store: MemoryStore, person: Callable[..., Person]) -> Site:
    """Olga owns the dataset `scans`, Rita and a node read it by their keys."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "secret").write_bytes(b"one patient's picture " * 400)
    olga, rita = person("olga"), person("rita")
    olga.must("init")
    olga.must("push", tree, "--dataset", "scans")
    olga.grant("scans", rita, "reader")
    return Site(tmp_path, store, tree, olga, rita)
