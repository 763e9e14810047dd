"""Whatever one byte of the store becomes, a command gives exactly what was pushed, or stops with exit 7 and names the
object.

Every object of a small repository with a tag is hit; each command runs on machines that know the dataset and on ones
that see it first.
"""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from datasync.service import audit_log
from datasync.storage.memory import MemoryStore
from tests.attacks.conftest import fill
from tests.support.machine import Machine, Ran, contents, tree

FLIPS = 520
SEED = 20260711
COMMANDS = ("pull", "pull@hash", "warm", "verify", "push")


@dataclass
class Scene:
    """A repository with two snapshots and a tag, machines, and what has to come back."""

    folder: Path
    objects: dict[str, bytes]
    owner: Machine
    fresh: Machine
    source: Path
    snapshot: str
    runs: int = 0

    def store(self, name: str = "", data: bytes | None = None) -> MemoryStore:
        """Return a store with the object *name* replaced, or gone when *data* is None."""
        made = MemoryStore()
        for key, value in self.objects.items():
            if key != name:
                made.put_if_absent(key, value)
            elif data is not None:
                made.put_if_absent(key, data)
        return made

    def superseded(self, name: str) -> bool:
        """Tell whether *name* is an older head: nothing reads those, and they may be deleted."""
        return kind_of(name) == "heads" and name != min(item for item in self.objects if kind_of(item) == "heads")

    def scratch(self) -> Path:
        self.runs += 1
        return self.folder / f"run{self.runs}"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("flips")
    owner = Machine.make(folder / "owner", "memory://flips")
    store = MemoryStore()
    owner.must("init", store=store)
    fresh = owner.sibling(folder / "fresh")
    source = fill(folder / "source")
    owner.must("push", source, "--dataset", "data", store=store)
    (source / "deep/second").write_bytes(random.Random(SEED).randbytes(300_000))
    owner.must("push", source, "--dataset", "data", "--tag", "prod", store=store)
    pushed = owner.must("push", source, "--dataset", "data", "--json", store=store).result
    names = [item.name for item in store.list("")]
    objects = {name: store.get(name, limit=1 << 26) for name in names}
    kinds = {kind_of(name) for name in names}
    assert kinds == {"datasync.json", "trust", "keyset", "packs", "snapshots", "heads", "tags"}
    return Scene(folder, objects, owner, fresh, source, pushed["snapshot"])


def kind_of(name: str) -> str:
    return name.split("/")[2] if "/" in name else name


def named(ran: Ran, name: str) -> bool:
    """Tell whether the message names the object: by its name, or a trust root and keyset by number and dataset."""
    if name in ran.err or name.rpartition("/")[2] in ran.err:
        return True
    if kind_of(name) in ("trust", "keyset"):
        return bool(re.search(rf"{kind_of(name)}( root)? \d+ of dataset {name.split('/')[1][:16]}", ran.err))
    return False


def check(scene: Scene, command: str, name: str, store: MemoryStore, machine: Machine) -> bool:
    """Run *command* on a copy of *machine*; return whether it noticed; fail unless it was right or refused by name."""
    folder = scene.scratch()
    user = machine.clone(folder / "home")
    target = folder / "target"
    if command == "verify":
        ran = user.run("verify", "--read-data", "-q", store=store)
    elif command == "push":
        changed = folder / "source"
        shutil.copytree(scene.source, changed, symlinks=True)
        (changed / "third").write_bytes(b"third")
        ran = user.run("push", changed, "--dataset", "data", "--source-change", "-q", store=store)
        if ran.code == 0:
            after = user.run("pull", "data", target, "-q", store=store)
            right = after.code == 0 and contents(target) == contents(changed)
            assert right or (after.code == 7 and named(after, name)), (command, name, after)
    elif command == "warm":
        ran = user.run("warm", "data:prod", "--cache", folder / "cache", store=store)
        if ran.code == 0:
            assert contents(Path(ran.out.strip())) == contents(scene.source), (command, name)
    else:
        ran = user.run("pull", "data" if command == "pull" else f"data@{scene.snapshot}", target, "-q", store=store)
        if ran.code == 0:
            assert tree(target) == tree(scene.source), (command, name)
    close_log(user)
    shutil.rmtree(folder)
    assert ran.code in (0, 7), (command, name, ran)
    if ran.code == 7:
        assert named(ran, name), (command, name, ran)
        assert "Traceback" not in ran.err, ran
    return ran.code == 7


def close_log(user: Machine) -> None:
    """A process keeps its log open: one for each home that it has had here."""
    data = user.home / ".local" / "share" / "datasync"
    if (data / "audit").is_dir():
        audit_log._log(data).close()


def noticed(scene: Scene, name: str, data: bytes, commands: tuple[str, ...] = COMMANDS) -> set[str]:
    """Return which commands on a machine without memory refuse *data* in place of the object *name*."""
    return {item for item in commands if check(scene, item, name, scene.store(name, data), scene.fresh)}


def flips(scene: Scene, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield *count* objects with one byte changed, all kinds alike, small fields at their start more often."""
    choose = random.Random(SEED)
    names = sorted(scene.objects, key=lambda name: (kind_of(name), name))
    kinds = sorted({kind_of(name) for name in names})
    for number in range(count):
        kind = kinds[number % len(kinds)]
        name = choose.choice([item for item in names if kind_of(item) == kind])
        data = bytearray(scene.objects[name])
        limit = len(data) if choose.random() < 0.6 else min(len(data), 200)
        at = choose.randrange(limit)
        data[at] ^= choose.randrange(1, 256)
        yield name, bytes(data)


def test_any_flipped_byte_is_harmless_or_refused_by_name(scene: Scene) -> None:
    for number, (name, data) in enumerate(flips(scene, FLIPS)):
        verified = check(scene, "verify", name, scene.store(name, data), scene.fresh)
        assert verified or scene.superseded(name), f"verify --read-data did not see a changed byte of {name}"
        command = ("pull", "warm", "push", "pull@hash")[number % 4]
        check(scene, command, name, scene.store(name, data), (scene.fresh, scene.owner)[number // 4 % 2])


@pytest.mark.long
def test_every_flip_meets_every_command(scene: Scene) -> None:
    for name, data in flips(scene, 2_000):
        assert "verify" in noticed(scene, name, data) or scene.superseded(name)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "last byte gone": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "twice": lambda data: data + data,
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_cut_or_extended_object_is_harmless_or_refused_by_name(scene: Scene, damage: str) -> None:
    for name, data in scene.objects.items():
        found = noticed(scene, name, DAMAGES[damage](data), ("verify", "pull", "push"))
        assert "verify" in found or scene.superseded(name), (damage, name)


def test_packs_with_each_others_content_are_refused_by_name(scene: Scene) -> None:
    names = [name for name in scene.objects if kind_of(name) == "packs"]
    for one, other in zip(names, names[1:] + names[:1], strict=True):
        assert "verify" in noticed(scene, one, scene.objects[other])


def test_a_missing_object_is_harmless_or_refused(scene: Scene) -> None:
    for name in scene.objects:
        if kind_of(name) not in ("packs", "snapshots"):
            continue  # what nothing names may not have been there: test_rollback has those
        store = scene.store(name)
        assert check(scene, "verify", name, store, scene.fresh)
        check(scene, "pull", name, store, scene.fresh)
        check(scene, "push", name, store, scene.fresh)


def test_damage_that_was_repaired_leaves_no_trace(scene: Scene) -> None:
    for name, data in scene.objects.items():
        user = scene.fresh.clone(scene.scratch())
        broken = bytearray(data)
        broken[20] ^= 1
        user.run("verify", store=scene.store(name, bytes(broken)))
        user.must("verify", "--read-data", store=scene.store())


def test_a_damaged_local_copy_is_fetched_anew(scene: Scene) -> None:
    user = scene.owner.clone(scene.scratch())
    copies = [
        path for path in user.state.rglob("*") if path.is_file() and path.suffix != ".db" and "objects" in str(path)
    ]
    copies += list((user.state / "markers").rglob("*"))
    damaged = [path for path in copies if path.is_file()]
    assert len(damaged) >= 3
    for path in damaged:
        path.write_bytes(b"damaged" + path.read_bytes()[7:])
    user.must("verify", store=scene.store())
