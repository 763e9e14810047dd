"""What a push reads again, what it finds, and that a vanished source never becomes a deletion."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from datasync.errors import NotFound, UsageError
from datasync.push.chunk import FileReader
from datasync.push.detect import RACY_NS, Changes
from datasync.push.guard import check_loss
from datasync.push.record import SourceMark
from datasync.push.scan import Found, scan
from datasync.push.source import CHANGED, Skipped, SourceTree
from datasync.push.sync import Baseline
from datasync.repository.repository import OpenDataset
from tests.support.cli import Machine
from tests.support.trees import KIB, MIB, content, differences, survey

FILES = 30
FILE_BYTES = 10 * KIB
FROZEN_CTIME = 1_000_000_000_000_000_000


@pytest.fixture
def source(scratch: Path) -> Path:
    root = scratch / "data"
    root.mkdir()
    for number in range(FILES):
        (root / f"file-{number:02}").write_bytes(content(number, FILE_BYTES))
    return root


@pytest.fixture
def frozen_ctime(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that never moves a ctime, as some network and user-space ones are."""

    def frozen(*arguments: Any, **options: Any) -> Iterator[Found]:
        for found in scan(*arguments, **options):
            yield msgspec.structs.replace(found, ctime=FROZEN_CTIME)

    monkeypatch.setattr("datasync.push.pipeline.scan", frozen)
    read = FileReader.read

    def reading(*arguments: Any, **options: Any) -> Any:
        return [freeze(outcome) for outcome in read(*arguments, **options)]

    monkeypatch.setattr(FileReader, "read", reading)


def freeze(outcome: Any) -> Any:
    if isinstance(outcome, Skipped):
        return outcome
    return type(outcome)(**fields_of(outcome) | {"stat": msgspec.structs.replace(outcome.stat, ctime=FROZEN_CTIME)})


def fields_of(outcome: Any) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}


def age() -> None:
    """Wait until nothing that was written before is racy."""
    time.sleep(RACY_NS / 1e9 + 0.1)


def set_old(root: Path) -> None:
    for path in root.iterdir():
        os.utime(path, ns=(0, 1_500_000_000_000_000_000))


def is_restored(machine: Machine, source: Path, target: Path) -> None:
    machine.pull(target)
    assert differences(survey(source), survey(target)) == []


# when a file is read again


def test_fresh_files_are_read_again_until_they_are_not_racy(
    machine: Machine, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is younger than ten minutes is racy here, and these pass at once: a slow machine makes no file old."""
    minutes, ahead = 600 * 10**9, 0
    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, time_ns=lambda: time.time_ns() + ahead)
    monkeypatch.setattr("datasync.push.pipeline.time", clock)
    monkeypatch.setattr("datasync.push.detect.RACY_NS", minutes)
    whole = FILES * FILE_BYTES
    assert machine.push(source).progress.read_bytes == whole
    again = machine.push(source)
    assert (again.progress.read_bytes, again.progress.sent_bytes, again.created) == (whole, 0, False)
    ahead = minutes
    settling = machine.push(source)
    assert (settling.progress.read_bytes, settling.created) == (whole, False)
    assert machine.push(source).progress.read_bytes == 0
    (source / "file-03").write_bytes(content(1000, FILE_BYTES))
    os.utime(source / "file-03", ns=(clock.time_ns(), clock.time_ns()))
    assert machine.push(source).progress.read_bytes == FILE_BYTES
    assert machine.push(source).progress.read_bytes == FILE_BYTES  # the one that is racy now


def test_a_write_in_the_same_moment_as_the_scan_is_found(machine: Machine, source: Path) -> None:
    """Size and mtime are those of the last push, and the ctime may be, where a clock ticks slowly."""
    path = source / "file-00"
    machine.push(source)
    for turn in range(5):
        before = path.stat()
        path.write_bytes(content(2000 + turn, FILE_BYTES))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert machine.push(source).created


def test_content_under_an_old_mtime_is_found_by_ctime(machine: Machine, source: Path, scratch: Path) -> None:
    set_old(source)
    age()
    machine.push(source)
    assert machine.push(source).progress.read_bytes == 0
    path = source / "file-07"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"changed")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    pushed = machine.push(source)
    assert (pushed.created, pushed.changes.changed, pushed.progress.read_bytes) == (True, 1, FILE_BYTES)
    is_restored(machine, source, scratch / "pulled")


@pytest.mark.usefixtures("frozen_ctime")
def test_content_that_no_time_tells_of_is_found_by_checksum(machine: Machine, source: Path, scratch: Path) -> None:
    set_old(source)
    machine.push(source)
    path = source / "file-07"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"changed")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    unseen = machine.push(source)
    assert (unseen.created, unseen.progress.read_bytes) == (False, 0)
    found = machine.push(source, checksum=True)
    assert found.created
    assert found.progress.new_bytes == FILE_BYTES
    is_restored(machine, source, scratch / "pulled")


@pytest.mark.usefixtures("frozen_ctime")
def test_a_replaced_file_is_found_by_its_inode(machine: Machine, source: Path, scratch: Path) -> None:
    set_old(source)
    machine.push(source)
    assert machine.push(source).progress.read_bytes == 0
    other = scratch / "other"
    other.write_bytes(content(3000, FILE_BYTES))
    os.utime(other, ns=(0, 1_500_000_000_000_000_000))
    other.chmod((source / "file-07").stat().st_mode & 0o7777)
    other.rename(source / "file-07")
    pushed = machine.push(source)
    assert (pushed.created, pushed.progress.read_bytes) == (True, FILE_BYTES)
    is_restored(machine, source, scratch / "pulled")


def test_checksum_reads_everything_and_sends_nothing_that_is_known(machine: Machine, source: Path) -> None:
    set_old(source)
    age()
    machine.push(source)
    same = machine.push(source, checksum=True)
    assert (same.progress.read_bytes, same.progress.sent_bytes, same.created) == (FILES * FILE_BYTES, 0, False)
    os.utime(source / "file-01", ns=(0, 1))
    touched = machine.push(source, checksum=True)
    assert touched.created
    assert touched.progress.new_bytes == 0


def test_metadata_alone_sends_no_content(machine: Machine, source: Path, scratch: Path) -> None:
    machine.push(source)
    (source / "file-05").chmod(0o711)
    os.utime(source / "file-06", ns=(0, 77))
    (source / "file-08").rename(source / "renamed")
    pushed = machine.push(source)
    assert pushed.created
    assert pushed.progress.new_bytes == 0
    is_restored(machine, source, scratch / "pulled")


def test_without_the_local_record_everything_is_read_and_nothing_is_sent(
    machine: Machine, source: Path, scratch: Path
) -> None:
    set_old(source)
    age()
    machine.push(source)
    before = machine.objects()
    shutil.rmtree(machine.state)
    again = machine.push(source)
    assert (again.progress.read_bytes, again.progress.sent_bytes, again.created) == (FILES * FILE_BYTES, 0, False)
    assert machine.objects() == before
    shutil.rmtree(machine.state)
    (source / "file-02").write_bytes(content(4000, FILE_BYTES))
    changed = machine.push(source)
    assert changed.created
    assert changed.progress.new_bytes == FILE_BYTES
    is_restored(machine, source, scratch / "pulled")


def test_a_damaged_local_record_is_only_a_slower_push(machine: Machine, source: Path) -> None:
    machine.push(source)
    for path in machine.state.rglob("*.db*"):
        path.write_bytes(b"no database " * 1000)
    again = machine.push(source)
    assert (again.progress.read_bytes, again.progress.sent_bytes, again.created) == (FILES * FILE_BYTES, 0, False)


# a file that changes while it is read


@pytest.mark.parametrize("size", [FILE_BYTES, 20 * MIB])
def test_a_file_that_grows_once_is_read_again(
    machine: Machine, source: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path = source / "growing"
    path.write_bytes(content(1, size))
    wait = disturb(monkeypatch, path, times=1)
    pushed = machine.push(source)
    assert wait == [path]
    assert pushed.skipped == []
    is_restored(machine, source, scratch / "pulled")


def test_a_file_that_keeps_growing_is_reported_and_left_out(
    machine: Machine, source: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source / "growing"
    path.write_bytes(content(1, FILE_BYTES))
    disturb(monkeypatch, path, times=1000)
    pushed = machine.push(source)
    assert pushed.skipped == [Skipped(b"growing", CHANGED)]
    assert pushed.totals.skipped == 1
    monkeypatch.undo()
    machine.pull(scratch / "pulled")
    assert not (scratch / "pulled" / "growing").exists()
    assert machine.push(source).skipped == []


def disturb(monkeypatch: pytest.MonkeyPatch, path: Path, times: int) -> list[Path]:
    """Append to *path* after each of its first reads; return what was done."""
    preadv, done, inode = os.preadv, list[Path](), path.stat().st_ino

    def reading(fd: int, buffers: Any, offset: int) -> int:
        count = preadv(fd, buffers, offset)
        if os.fstat(fd).st_ino == inode and len(done) < times:
            with path.open("ab") as file:
                file.write(b"more")
            done.append(path)
        return count

    monkeypatch.setattr(os, "preadv", reading)
    return done


def test_what_a_writer_leaves_behind_is_never_torn(machine: Machine, source: Path, scratch: Path) -> None:
    """A thread appends to one file and rewrites another from its start; a snapshot has one moment of each, or none."""
    appended, rewritten = source / "appended", source / "rewritten"
    appended.write_bytes(b"")
    rewritten.write_bytes(generation(0))
    with writing(lambda turn: append_and_rewrite(appended, rewritten, turn)):
        for turn in range(4):
            pushed = machine.push(source)
            assert {path for path, _ in pushed.skipped} <= {b"appended", b"rewritten"}
            machine.pull(scratch / f"pulled-{turn}")
            check_moment(scratch / f"pulled-{turn}")
    assert machine.push(source).skipped == []
    is_restored(machine, source, scratch / "pulled")


BLOCKS = 1024
BLOCK = 4 * KIB


def generation(number: int) -> bytes:
    return number.to_bytes(4, "little") * (BLOCK // 4) * BLOCKS


def append_and_rewrite(appended: Path, rewritten: Path, turn: int) -> None:
    with appended.open("ab") as file:
        file.write(turn.to_bytes(8, "little"))
    with rewritten.open("r+b", buffering=0) as file:
        for start in range(0, BLOCKS, 128):
            file.write(turn.to_bytes(4, "little") * (BLOCK // 4) * 128)
            time.sleep(0.0005 if start % 256 else 0.005)


def check_moment(root: Path) -> None:
    if (root / "appended").exists():
        data = (root / "appended").read_bytes()
        assert data == b"".join(turn.to_bytes(8, "little") for turn in range(1, len(data) // 8 + 1))
    if (root / "rewritten").exists():
        data = (root / "rewritten").read_bytes()
        turns = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), BLOCK)]
        assert len(turns) == BLOCKS
        assert turns == sorted(turns, reverse=True)
        assert turns[0] - turns[-1] <= 1


class writing:  # noqa: N801 (reads as a word in `with`)
    """Call *step* with 1, 2, 3 … in a thread until the block ends."""

    def __init__(self, step: Callable[[int], None]) -> None:
        self._step = step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            self._step(turn)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


# a source that is gone


def test_an_emptied_source_is_no_deletion(machine: Machine, source: Path, scratch: Path) -> None:
    machine.run("push", source)
    before = machine.objects()
    kept = scratch / "kept"
    source.rename(kept)
    gone = machine.run("push", source, expect=4)
    assert str(source) in gone.stderr
    source.mkdir()
    empty = machine.run("push", source, expect=2)
    assert f"{source}: it is empty now" in empty.stderr
    assert "--allow-empty" in empty.stderr
    assert machine.run("push", source, "--json", expect=2).result["error"] == "UsageError"
    assert machine.objects() == before
    is_restored(machine, kept, scratch / "pulled")
    meant = machine.run("push", source, "--allow-empty", "--json").result
    assert (meant["seq"], meant["entries"], meant["removed"]) == (2, 0, FILES)
    machine.pull(scratch / "old", "data@1")
    assert differences(survey(kept), survey(scratch / "old")) == []


def test_an_emptied_source_is_noticed_without_the_local_record(machine: Machine, source: Path) -> None:
    machine.push(source)
    shutil.rmtree(machine.state)
    for path in source.iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="it is empty now"):
        machine.push(source)
    with pytest.raises(UsageError, match="it is empty now"):
        machine.push(source, dry_run=True)


def test_a_large_partial_loss_stops_and_loses_nothing(machine: Machine, source: Path) -> None:
    machine.push(source)
    before = machine.objects()
    for number in range(FILES // 2 + 5):
        (source / f"file-{number:02}").unlink()
    stopped = machine.run("push", source, expect=2)
    assert f"20 of the {FILES} entries of its last push are gone" in stopped.stderr
    assert machine.objects() == before
    assert machine.run("push", source, "--allow-empty", "--json").result["removed"] == 20


def test_what_a_person_deletes_is_pushed(machine: Machine, source: Path, scratch: Path) -> None:
    machine.push(source)
    for number in range(10):
        (source / f"file-{number:02}").unlink()
    assert machine.push(source).changes.removed == 10
    is_restored(machine, source, scratch / "pulled")


def test_a_small_loss_on_another_device_stops(scratch: Path) -> None:
    """Another disk under the same path is likelier than so many deletions."""
    with SourceTree.open(scratch) as tree:
        here = tree.root_stat.st_dev
        lost = Changes(found=170, removed=30, known=200)
        check_loss(baseline(200), mark(here, 200), lost, tree, [])
        with pytest.raises(UsageError, match=r"30 of the 200 entries .* another device"):
            check_loss(baseline(200), mark(here + 1, 200), lost, tree, [])
        check_loss(baseline(200), mark(here + 1, 200), Changes(found=190, removed=10, known=200), tree, [])
        check_loss(baseline(0), None, Changes(), tree, [])
        with pytest.raises(UsageError, match="101 of the 200"):
            check_loss(baseline(200), None, Changes(found=99), tree, [])


def baseline(entries: int) -> Baseline:
    return Baseline(cast(OpenDataset, None), None, entries, 0, 0)


def mark(device: int, entries: int) -> SourceMark:
    return SourceMark(bytes(32), 1, device, 1, entries, 0, 0)


def test_a_missing_source_makes_no_dataset(machine: Machine, scratch: Path) -> None:
    with pytest.raises(NotFound):
        machine.push(scratch / "no such directory")
    assert machine.objects("d/") == {}
