"""A machine whose repository has one small dataset."""

from pathlib import Path

import pytest

from tests.deploy.machines import put_datasync_on_path
from tests.support.cli import DATASET, Machine

NOTE = "what the job reads\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    made = Machine(home, str(tmp_path / "repository"))
    with made.session() as session:
        session.initialise()
    source = tmp_path / DATASET
    source.mkdir()
    (source / "note").write_text(NOTE)
    made.push(source)
    return made


@pytest.fixture
def environment(machine: Machine, tmp_path: Path) -> dict[str, str]:
    """What a shell of that machine has."""
    return put_datasync_on_path(tmp_path / "bin", machine)
