"""Fixtures of the audit log's tests: a log in a scratch directory, and what reads and writes it."""

from pathlib import Path

import pytest

from tests.audit.book import Book


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """An empty log, its persons, and a clock that moves by hand."""
    return Book.make(tmp_path / "audit")
