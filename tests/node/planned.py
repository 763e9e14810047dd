"""What the tests of plans share: a machine whose requests are counted, and the comparison with what is then done."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.storage.local import LocalStore
from datasync.storage.protocol import ObjectStore
from tests.node.datasets import fill
from tests.support.machine import Machine, Ran
from tests.support.requests import RecordingStore, Request
from tests.support.trees import KIB, MIB, content

Story = dict[str, tuple[Any, ...]]


class CountingStore(RecordingStore):
    """Counts the bytes that are asked for by ranges, by object."""

    def __init__(self, store: ObjectStore) -> None:
        self.requests: list[Request] = []
        super().__init__(store, self.requests)
        self.ranges: list[tuple[str, int]] = []

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        self.ranges.append((name, len(buffer)))
        super().get_range(name, offset, buffer)


@dataclass(frozen=True, slots=True)
class Site:
    """A machine whose store is counted: which objects hold file data is known from what pushes stored."""

    machine: Machine
    store: CountingStore
    scratch: Path
    source: Path

    @classmethod
    def make(cls, machine: Machine, scratch: Path) -> "Site":
        source = make_source(scratch / "data")
        machine.must("push", source, "--tag", "prod")
        return cls(machine, CountingStore(LocalStore(Path(machine.repository))), scratch, source)

    def run(self, *arguments: str | Path) -> Ran:
        self.store.ranges.clear()
        return self.machine.run(*arguments, "--json", store=self.store)

    def result(self, *arguments: str | Path) -> dict[str, Any]:
        ran = self.run(*arguments)
        assert ran.code == 0, ran
        return ran.result

    def plan(self, *arguments: str | Path) -> dict[str, Any]:
        """Plan one reference; nothing of the cache and nothing of the store changes, and no data is fetched."""
        before, kept = story(self.scratch / "cache"), story(self.scratch / "target")
        done = self.result(*arguments)
        assert (story(self.scratch / "cache"), story(self.scratch / "target")) == (before, kept)
        assert self.data_ranges() == []
        assert not [item for item in self.store.requests if item.kind in ("put", "delete")]
        (plan,) = done["plans"]
        assert {name: done[name] for name in ("wanted", "wanted_bytes", "ranges", "fetched_bytes")} == {
            name: plan[name] for name in ("wanted", "wanted_bytes", "ranges", "fetched_bytes")
        }
        found: dict[str, Any] = plan
        self.store.requests.clear()
        return found

    def data_ranges(self) -> list[tuple[str, int]]:
        """Return the ranges that were asked for, without those of the manifest."""
        asked, metadata = list(self.store.ranges), self._metadata()
        return [item for item in asked if item[0] not in metadata]

    def _metadata(self) -> set[str]:
        """Return the packs that a look at every entry of every snapshot reads."""
        self.store.ranges.clear()
        for seq in (1, 2):
            for name in ("data", "new", "first"):
                self.machine.run("ls", f"{name}@{seq}", "--recursive", store=self.store)
        found = {name for name, _ in self.store.ranges}
        self.store.ranges.clear()
        return found


def story(root: Path) -> Story:
    """Return everything that can be told of the tree at *root* without reading it."""
    found: Story = {}
    for path in sorted([root, *root.rglob("*")]) if root.exists() else ():
        status = path.lstat()
        fields = (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        found[str(path)] = (*fields, status.st_nlink, status.st_uid)
    return found


def make_source(root: Path) -> Path:
    """Make small and large files, links, an empty file and one with holes."""
    fill(root, 60, 20 * KIB)
    (root / "large.bin").write_bytes(content(9, 5 * MIB))
    (root / "empty").write_bytes(b"")
    os.symlink("large.bin", root / "link")
    os.link(root / "large.bin", root / "second-name")
    with (root / "holes").open("wb") as file:
        file.write(content(7, 300 * KIB))
        file.truncate(8 * MIB)
        file.seek(6 * MIB)
        file.write(content(8, 300 * KIB))
    return root


def change(source: Path, every: int = 10) -> None:
    """Change a part of the small files."""
    for path in sorted(source.glob("class-*/*"))[::every]:
        path.write_bytes(content(len(path.name) + every + path.stat().st_ino, 21 * KIB))


def compare(site: Site, planned: dict[str, Any], *arguments: str | Path) -> dict[str, Any]:
    """Do what was planned; the numbers are those of the plan."""
    done = site.result(*arguments)
    asked = site.data_ranges()
    assert done["path"] == planned["path"]
    assert (done["files"], done["kept"]) == (planned["wanted"], planned["kept"])
    assert done["fetched_bytes"] == planned["fetched_bytes"] == sum(count for _, count in asked)
    assert len(asked) == planned["ranges"]
    return done


def receipt_of(view: Path) -> Path:
    """Return the receipt of the view at *view*."""
    return view.with_name(f"{view.name}.READY.json")
