"""A repository in memory whose days pass when a test says so, and people around it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from types import SimpleNamespace

import pytest

from datasync.repository.snapshots import History
from datasync.storage.memory import MemoryStore
from tests.support.people import Person

DAY = 86_400.0


@pytest.fixture(autouse=True)
def one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page ends at a path by chance: each dataset's key would choose other ones, and other packs to be kept."""
    monkeypatch.setattr("datasync.repository.manifest.ENTRIES_PER_PAGE", 2**63)


@dataclass
class Clock:
    """The time that stores, history and pushes tell: this machine's, so many seconds later."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time() + self.ahead

    def pass_days(self, days: float) -> None:
        self.ahead += days * DAY


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made, now = Clock(), History.now
    monkeypatch.setattr(History, "now", lambda history: now(history) + int(made.ahead * 1000))
    told = SimpleNamespace(time=made, time_ns=lambda: int(made() * 1e9), monotonic=monotonic)
    for module in ("pipeline", "store", "sync"):
        monkeypatch.setattr(f"datasync.push.{module}.time", told)
    monkeypatch.setattr("datasync.service.forget.time", told)
    return made


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    """The storage that everybody reaches."""
    return MemoryStore(clock=clock)


@pytest.fixture
def person(tmp_path: Path, store: MemoryStore) -> Callable[[str], Person]:
    """Make somebody with an identity of their own."""
    return lambda name: Person.make(tmp_path, name, "memory://people", store)


@pytest.fixture
def owner(person: Callable[[str], Person]) -> Person:
    """Who made the repository."""
    found = person("olga")
    found.must("init")
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small tree."""
    root = tmp_path / "source"
    (root / "sub").mkdir(parents=True)
    (root / "a").write_bytes(b"first" * 1000)
    (root / "sub" / "b").write_bytes(bytes(range(256)) * 2000)
    return root
