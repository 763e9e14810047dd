"""What the tests of the node share: sources, hand-made views, an independent look at a cache, a counted warm."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from datasync.cache.layout import Cache, View
from datasync.cache.objects import Objects
from datasync.cache.ready import Ready, publish_view, stage_view, write_object_list
from datasync.model.ids import DatasetId, FileId, SnapshotId
from tests.support.machine import REPOSITORY_ROOT, Machine
from tests.support.trees import KIB, Node, content, differences, survey

SNAPSHOT = SnapshotId(bytes(range(32)))
BLOCK_BYTES = 512


def fill(root: Path, files: int, size: int, seed: int = 0) -> Path:
    """Make *files* files of *size* bytes that do not compress, in ten directories."""
    for number in range(files):
        path = root / f"class-{number % 10}" / f"{number:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(seed * 1_000_003 + number, size))
    return root


def receipts(cache: Path) -> list[Path]:
    """Return every READY.json of the cache."""
    return sorted(cache.glob("views/*/*.READY.json"))


def place_of(receipt: Path) -> Path:
    """Return the directory that a READY.json speaks of."""
    return receipt.with_name(receipt.name.removesuffix(".READY.json"))


def broken(cache: Path, sources: Mapping[str, dict[bytes, Node]]) -> list[str]:
    """Compare every view that has a receipt with what was pushed, by name and seq (`data/1`); return what differs."""
    found: list[str] = []
    for receipt in receipts(cache):
        place = place_of(receipt)
        source = sources[f"{place.parent.name}/{place.name.partition('-')[0]}"]
        found += [f"{place}: {text}" for text in differences(source, survey(place), view=True)]
    return found


def used_bytes(root: Path) -> int:
    """Return the bytes on the disk of all files beneath *root*, each inode once."""
    inodes: dict[int, int] = {}
    for directory, _, names in os.walk(root):
        for name in names:
            try:
                status = os.lstat(os.path.join(directory, name))
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                inodes[status.st_ino] = status.st_blocks * BLOCK_BYTES
    return sum(inodes.values())


def make_view(cache: Cache, dataset: str = "d", seq: int = 1, files: int = 3, size: int = 8 * KIB) -> View:
    """Make a ready view by hand; files of different datasets or numbers share nothing."""
    view = cache.view(dataset, seq, SNAPSHOT)
    ids = bytearray()
    with Objects.open(cache) as objects, stage_view(cache, view) as tree:
        for number in range(files):
            name, body = b"%d" % number, f"{dataset} {seq} {number} ".encode()
            fd = tree.create(name)
            os.write(fd, (body * size)[:size])
            os.close(fd)
            digest = FileId(body.ljust(32, b"\0")[:32])
            ids += digest
            objects.publish(tree, name, digest)
        if objects.reflinks:
            write_object_list(cache, view, ids)
        publish_view(cache, view, _receipt(dataset, seq, files, size), objects.flush)
    return view


def _receipt(dataset: str, seq: int, files: int, size: int) -> Ready:
    return Ready(
        dataset=dataset,
        dataset_id=DatasetId(bytes(32)),
        repository=bytes(16),
        seq=seq,
        snapshot=SNAPSHOT,
        root=bytes(32),
        entries=files,
        files=files,
        bytes=files * size,
        completed=datetime.now(UTC).replace(microsecond=0),
        tool="test",
        subset=(),
        node="dss1test",
        signature=bytes(64),
    )


def is_whole(view: View, files: int = 3, size: int = 8 * KIB) -> bool:
    """Tell whether a hand-made view has its receipt and all its files."""
    return view.ready_path.exists() and [(view.path / str(n)).stat().st_size for n in range(files)] == [size] * files


COUNTED = """
import os, random, sys, time
from datasync.cli.main import main
from datasync.storage.local import LocalStore
get_range, log, delay = LocalStore.get_range, os.environ["TEST_LOG"], float(os.environ["TEST_DELAY"])
def counted(self, name, offset, buffer):
    get_range(self, name, offset, buffer)
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"%d %d\\n" % (os.getpid(), len(buffer)))
    os.close(fd)
    time.sleep(random.uniform(0.5, 1) * delay)
LocalStore.get_range = counted
main()
"""


def start_counted(
    machine: Machine, log: Path, delay: float, *arguments: str | Path, **extra: str
) -> "subprocess.Popen[str]":
    """Start a command that writes each range it fetched to *log* and takes its time (*delay* seconds) over it."""
    environment = machine.environment() | {"TEST_LOG": str(log), "TEST_DELAY": str(delay)} | extra
    return subprocess.Popen(
        [sys.executable, "-c", COUNTED, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment | {"PYTHONPATH": str(REPOSITORY_ROOT)},
        cwd=machine.home,
    )


def fetches(log: Path) -> list[tuple[int, int]]:
    """Return (pid, bytes) of each range that was fetched, in order; a line that is being written is left out."""
    text = log.read_text() if log.exists() else ""
    return [(int(pid), int(count)) for pid, count in (line.split() for line in text.split("\n")[:-1])]


def kill_all(children: Iterable["subprocess.Popen[str]"]) -> None:
    """End what a failed test left running."""
    for child in children:
        if child.poll() is None:
            child.kill()
            child.communicate()
