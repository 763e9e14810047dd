"""A slot may carry the metadata key alone: names, manifests and history, and no file's content."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.people import Person


@pytest.fixture
def auditor(owner: Person, person: Callable[[str], Person], source: Path) -> Person:
    """Who may look at a dataset and not into it."""
    owner.must("push", source, "--dataset", "data")
    found = person("audrey")
    owner.grant("data", found, "auditor")
    return found


def test_an_auditor_reads_names_and_history_and_no_file(auditor: Person, tmp_path: Path) -> None:
    listed = auditor.run("ls", "-R", "data")
    assert (listed.code, "sub/b" in listed.out) == (0, True)
    assert auditor.run("log", "data").code == 0
    assert auditor.run("status").code == 0
    for line in (("pull", "data", tmp_path / "out"), ("warm", "data", "--cache", tmp_path / "cache")):
        auditor.refused(12, *line, words="names and history, not data")
    assert not (tmp_path / "out").exists()


def test_an_auditor_grants_and_writes_nothing(auditor: Person, owner: Person, source: Path) -> None:
    auditor.refused(6, "key", "grant", "data", owner.public(), words="does not own it")
    auditor.refused(12, "push", source, "--dataset", "data", words="names and history, not data")


def test_an_auditor_follows_a_rotation(auditor: Person, owner: Person, source: Path) -> None:
    owner.must("key", "rotate", "data")
    (source / "later").write_bytes(b"later")
    owner.must("push", source, "--dataset", "data")
    assert "later" in auditor.run("ls", "-R", "data").out


def test_the_list_says_what_an_auditor_holds(auditor: Person, owner: Person) -> None:
    held = {item["name"]: item["roles"] for item in owner.must("key", "list", "data")["holders"]}
    assert held["audrey"] == ["metadata reader", "auditor"]
