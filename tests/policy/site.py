"""A site that writes policies: a dataset, its owner, a reader, and how they publish a policy for it."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasync.storage.memory import MemoryStore
from tests.support.people import Person

POLICY = """
[users.olga]
identities = ["{olga}"]
[users.rita]
identities = ["{rita}"]
[datasets.scans]
{attributes}
[[grant]]
id = "olga-owns"
to = ["olga"]
role = "owner"
{more}
"""
READS = """
[[grant]]
id = "rita-reads"
to = ["rita"]
on = ["scans"]
role = "reader"
"""


def signer(person: Person) -> str:
    """Return the signer of a person's identity."""
    return str(person.must("key", "show")["signer"])


def node_signer(person: Person) -> str:
    """Return the signer of the machine's own key."""
    return str(person.must("policy", "grants", "scans")["node"])


def with_setting(person: Person, **settings: str) -> Person:
    """Return the same person on the same machine, with *settings* in the environment."""
    return replace(person, machine=replace(person.machine, extra={**person.machine.extra, **settings}))


def with_grant(person: Person, *paths: Path) -> Person:
    """Return the same person on the same machine, holding offline grants."""
    return with_setting(person, DATASYNC_POLICY_GRANTS=":".join(map(str, paths)))


@dataclass(frozen=True, slots=True)
class Site:
    """The dataset `scans` and the people around it."""

    folder: Path
    store: MemoryStore
    tree: Path
    olga: Person
    rita: Person

    def write(self, more: str = "", attributes: str = "", name: str = "policy", **files: str) -> Path:
        """Write a policy directory; *more* are further tables, *attributes* those of the dataset."""
        directory = self.folder / name
        directory.mkdir(exist_ok=True)
        keys = {"olga": signer(self.olga), "rita": signer(self.rita)}
        (directory / "policy.toml").write_text(POLICY.format(**keys, attributes=attributes, more=more))
        for file, text in files.items():
            (directory / f"{file}.cedar").write_text(text)
        return directory

    def publish(self, more: str = "", attributes: str = "", **files: str) -> dict[str, Any]:
        """Publish such a policy as olga."""
        return self.olga.must("policy", "apply", "scans", self.write(more, attributes, **files))

    def target(self) -> Path:
        """Return a directory to pull into that is not there yet."""
        return self.folder / f"out{len(list(self.folder.iterdir()))}"

    def events(self, person: Person, action: str) -> list[dict[str, Any]]:
        """Return the events of *action* in a person's audit log."""
        ran = person.run("audit", "query", "--action", action, "--json")
        assert ran.code == 0, ran
        found = [json.loads(line) for line in ran.out.splitlines()]
        return [item for item in found if item["type"] == "event"]
