"""People and machines with identities of their own, who share one repository by the real command line."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.storage.protocol import ObjectStore
from tests.support.machine import Machine, Ran


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with an own HOME and identity."""

    name: str
    machine: Machine
    store: ObjectStore | None

    @classmethod
    def make(cls, folder: Path, name: str, repository: str, store: ObjectStore | None = None, **extra: str) -> "Person":
        """Return a person whose identity was just made."""
        person = cls(name, Machine.make(folder / f"home-{name}", repository, extra), store)
        person.must("key", "init")
        return person

    def run(self, *arguments: str | Path) -> Ran:
        """Run a command."""
        return self.machine.run(*arguments, store=self.store)

    def must(self, *arguments: str | Path) -> dict[str, Any]:
        """Run a command that has to succeed; return its result."""
        return self.machine.must(*arguments, "--json", store=self.store).result

    def refused(self, code: int, *arguments: str | Path, words: str = "") -> None:
        """Run a command that has to be refused with *code*, in one line that holds *words*."""
        ran = self.run(*arguments)
        assert ran.code == code, ran
        assert words in ran.message, ran

    def public(self) -> Path:
        """Return the file that this person sends to an owner."""
        path = self.machine.home / f"{self.name}.pub"
        self.must("key", "show", "--output", path)
        return path

    def grant(self, dataset: str, other: "Person", role: str, *more: str) -> str:
        """Grant, and let the other run the printed line; return the trust root."""
        done = self.must("key", "grant", dataset, other.public(), "--role", role, "--name", other.name, *more)
        words = shlex.split(done["command"])
        assert words[:3] == ["datasync", "key", "accept"]
        other.must(*words[1:])
        return str(done["trust"])
