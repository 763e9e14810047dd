"""Directories, trees and caches for the tests of datasync.cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from datasync.cache.beneath import Tree
from datasync.cache.layout import Cache


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    """A tree in an empty directory, once for each way to open directories."""
    root = tmp_path / "root"
    root.mkdir()
    with Tree.open(root, openat2=request.param) as tree:
        if request.param and not tree.uses_openat2:
            pytest.skip("this kernel or sandbox has no openat2")
        yield tree


@pytest.fixture
def root(tree: Tree, tmp_path: Path) -> Path:
    """The directory of `tree`."""
    return tmp_path / "root"


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    """An empty cache."""
    with Cache.open(tmp_path / "cache") as cache:
        yield cache
