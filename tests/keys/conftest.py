"""A repository in memory, and people around it."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from datasync.repository.repository import Repository
from datasync.storage.memory import MemoryStore
from tests.keys.forge import DATASET, Cast
from tests.support.people import Person

URL = "memory://people"


@pytest.fixture
def store() -> MemoryStore:
    """The storage that everybody reaches."""
    return MemoryStore()


@pytest.fixture
def person(tmp_path: Path, store: MemoryStore) -> Callable[[str], Person]:
    """Make somebody with an identity of their own."""
    return lambda name: Person.make(tmp_path, name, URL, store)


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock by which grants are judged forward or back (seconds)."""
    made = Repository.__init__

    def shift(seconds: float) -> None:
        def init(self: Repository, *given: object, **named: object) -> None:
            made(self, *given, **(named | {"clock": lambda: time.time() + seconds}))  # type: ignore[arg-type]

        monkeypatch.setattr(Repository, "__init__", init)

    return shift


@pytest.fixture
def owner(person: Callable[[str], Person]) -> Person:
    """Who made the repository."""
    found = person("olga")
    found.must("init")
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small tree."""
    return fill(tmp_path / "source")


def fill(root: Path) -> Path:
    """Make a small tree."""
    (root / "sub").mkdir(parents=True)
    (root / "a").write_bytes(b"first" * 1000)
    (root / "sub" / "b").write_bytes(bytes(range(256)) * 2000)
    return root


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Cast:
    """An owner, a writer and a reader of one dataset, into which the owner and the writer pushed once each."""
    folder, store = tmp_path_factory.mktemp("cast"), MemoryStore()
    olga, will, rita = (Person.make(folder, name, URL, store) for name in ("olga", "will", "rita"))
    made = Cast(olga, will, rita, store, folder, fill(folder / "source"))
    olga.must("init")
    made.push(olga)
    olga.grant(DATASET, will, "writer")
    olga.grant(DATASET, rita, "reader")
    will.must("status")  # so that its push need not begin anew: no pack is left over
    made.push(will)
    shutil.copytree(made.source, folder / "pristine")
    return made


@pytest.fixture
def cast(played: Cast, tmp_path: Path) -> Cast:
    """The same people with homes and a store of their own."""
    return played.copied(tmp_path)
