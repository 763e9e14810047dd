"""Objects: shared, read-only, and not believed after a power loss."""

import errno
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from datasync.cache import dirty, objects
from datasync.cache.beneath import Tree
from datasync.cache.dirty import LOCK, MARKER, UNFINISHED
from datasync.cache.layout import Cache
from datasync.cache.objects import Objects, copy_extents, read_only
from datasync.errors import DatasyncError, IntegrityError, NoSpace
from datasync.model.ids import FileId

MTIME_NS = 1_234_567_890_123_456_789


def file_id(number: int) -> FileId:
    return FileId(number.to_bytes(2, "big") * 16)


@pytest.fixture
def view(cache: Cache) -> Tree:
    cache.tree.make_directory(b"views/v")
    return cache.tree.subtree(b"views/v")


def put(view: Tree, path: bytes, data: bytes = b"data", mode: int = 0o444) -> None:
    fd = view.create(path)
    os.write(fd, data)
    os.fchmod(fd, mode)
    os.utime(fd, ns=(MTIME_NS, MTIME_NS))
    os.close(fd)


def object_path(cache: Cache, number: int) -> Path:
    digits = file_id(number).hex()
    return cache.path / "objects" / digits[:2] / digits


def view_file(cache: Cache, name: str) -> Path:
    return cache.path / "views" / "v" / name


def markers(cache: Cache) -> list[str]:
    return sorted(name for name in os.listdir(cache.path / "objects") if name.startswith(MARKER))


def copying_clone(source: int, target: int) -> None:
    """Stand in for FICLONE: the same result, without sharing."""
    os.sendfile(target, source, 0, os.fstat(source).st_size)


def test_what_is_published_is_there_and_is_adopted(cache: Cache, view: Tree) -> None:
    with Objects.open(cache) as store:
        assert not store.has(file_id(1), 4)
        assert not store.adopt(file_id(1), view, b"new")
        put(view, b"one")
        assert store.publish(view, b"one", file_id(1))
        assert store.publish(view, b"one", file_id(1))
        assert store.has(file_id(1), 4)
        assert not store.has(file_id(1), 5)
        assert store.adopt(file_id(1), view, b"two")
        with pytest.raises(IntegrityError, match="two names are one"):
            store.adopt(file_id(1), view, b"two")
        store.remove(file_id(1))
        store.remove(file_id(1))
        assert not store.has(file_id(1), 4)
    assert view_file(cache, "one").read_bytes() == view_file(cache, "two").read_bytes() == b"data"
    assert view_file(cache, "two").stat().st_mtime_ns == MTIME_NS


def test_hard_links_share_one_inode(cache: Cache, view: Tree) -> None:
    with Objects.open(cache) as store:
        if store.reflinks:
            pytest.skip("this file system has reflinks")
        put(view, b"one")
        store.publish(view, b"one", file_id(1))
        store.adopt(file_id(1), view, b"two")
    assert view_file(cache, "one").stat().st_ino == view_file(cache, "two").stat().st_ino


@pytest.mark.parametrize("mode", [0o644, 0o777, 0o6755, 0o600, 0o444, 0o000])
def test_an_object_and_its_files_have_no_write_and_no_set_id_bits(cache: Cache, view: Tree, mode: int) -> None:
    with Objects.open(cache) as store:
        put(view, b"one", mode=mode)
        os.chmod(view_file(cache, "one"), mode)
        store.publish(view, b"one", file_id(1))
        assert store.adopt(file_id(1), view, b"two")
    expected = read_only(mode)
    assert expected & 0o7222 == 0
    for path in (object_path(cache, 1), view_file(cache, "one"), view_file(cache, "two")):
        assert stat.S_IMODE(path.stat().st_mode) == expected
        assert path.stat().st_mtime_ns == MTIME_NS


def test_only_a_regular_file_can_be_published(cache: Cache, view: Tree) -> None:
    view.symlink(b"link", b"/etc/passwd")
    view.make_directory(b"dir")
    with Objects.open(cache) as store:
        for name in (b"link", b"dir"):
            with pytest.raises(IntegrityError, match="regular file"):
                store.publish(view, name, file_id(1))
        with pytest.raises(DatasyncError, match="not there"):
            store.publish(view, b"none", file_id(1))
        assert not store.has(file_id(1), 0)


def test_a_truncated_object_is_replaced_by_the_verified_file(cache: Cache, view: Tree) -> None:
    with Objects.open(cache) as store:
        put(view, b"one")
        put(view, b"two")
        store.publish(view, b"one", file_id(1))
        object_path(cache, 1).chmod(0o600)
        os.truncate(object_path(cache, 1), 1)
        assert not store.has(file_id(1), 4)
        assert store.publish(view, b"two", file_id(1))
        assert store.has(file_id(1), 4)


@pytest.mark.parametrize("number", [errno.EMLINK, errno.EXDEV, errno.EPERM])
def test_where_no_link_can_be_made_adopt_copies(
    cache: Cache, view: Tree, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Objects.open(cache) as store:
        put(view, b"one", bytes(5_000) + b"x" * 5_000, mode=0o555)
        store.publish(view, b"one", file_id(1))

        def refuse(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "link", refuse)
        assert store.adopt(file_id(1), view, b"two")
        put(view, b"three")
        assert not store.publish(view, b"three", file_id(3))
    one, two = view_file(cache, "one"), view_file(cache, "two")
    assert two.read_bytes() == one.read_bytes()
    assert two.stat().st_ino != one.stat().st_ino
    assert (two.stat().st_mode, two.stat().st_mtime_ns) == (one.stat().st_mode, one.stat().st_mtime_ns)


def test_a_file_system_that_runs_out_of_links_gets_copies(cache: Cache, view: Tree) -> None:
    most = os.pathconf(cache.path, "PC_LINK_MAX")
    with Objects.open(cache) as store:
        if store.reflinks or not 0 < most <= 70_000:
            pytest.skip(f"this file system's limit of links is {most}")
        put(view, b"one")
        store.publish(view, b"one", file_id(1))
        for number in range(most - 2):
            os.link(object_path(cache, 1), view_file(cache, str(number)))
        assert store.adopt(file_id(1), view, b"copy")
    assert view_file(cache, "copy").stat().st_nlink == 1
    assert view_file(cache, "copy").read_bytes() == b"data"


def test_with_reflinks_views_and_objects_have_inodes_of_their_own(
    cache: Cache, view: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "clone_file", copying_clone)
    with Objects.open(cache) as store:
        if not store.reflinks:
            pytest.skip("this file system has no unnamed files")
        put(view, b"one", mode=0o751)
        assert store.publish(view, b"one", file_id(1))
        assert store.publish(view, b"one", file_id(1))
        assert store.adopt(file_id(1), view, b"two")
        assert not store.adopt(file_id(2), view, b"none")
    paths = (object_path(cache, 1), view_file(cache, "one"), view_file(cache, "two"))
    assert len({path.stat().st_ino for path in paths}) == 3
    assert {path.read_bytes() for path in paths} == {b"data"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o551}
    assert {path.stat().st_mtime_ns for path in paths} == {MTIME_NS}


def test_a_file_that_can_not_be_cloned_is_copied(cache: Cache, view: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "clone_file", copying_clone)
    with Objects.open(cache) as store:
        if not store.reflinks:
            pytest.skip("this file system has no unnamed files")
        put(view, b"one")
        store.publish(view, b"one", file_id(1))

        def refuse(*_: object) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

        monkeypatch.setattr(objects, "clone_file", refuse)
        assert store.adopt(file_id(1), view, b"two")
    assert view_file(cache, "two").read_bytes() == b"data"


def test_a_copy_that_fails_leaves_no_part(cache: Cache, view: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with Objects.open(cache) as store:
        store.reflinks = False  # as where there are none
        put(view, b"one")
        store.publish(view, b"one", file_id(1))

        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.EMLINK, "Too many links")

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "link", fail)
        monkeypatch.setattr(os, "sendfile", full)
        with pytest.raises(NoSpace):
            store.adopt(file_id(1), view, b"two")
    assert not view_file(cache, "two").exists()


def test_a_copy_keeps_holes_and_bytes(tmp_path: Path) -> None:
    source = os.open(tmp_path / "source", os.O_RDWR | os.O_CREAT)
    target = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT)
    os.truncate(source, 1 << 40)
    os.pwrite(source, b"a" * 10_000, 1 << 30)
    os.pwrite(source, b"b" * 10_000, 1 << 35)
    copy_extents(source, target)
    status = os.fstat(target)
    assert status.st_size == 1 << 40
    assert status.st_blocks * 512 <= os.fstat(source).st_blocks * 512 + (1 << 20)
    assert os.pread(target, 10_000, 1 << 30) == b"a" * 10_000
    assert os.pread(target, 10_000, 1 << 35) == b"b" * 10_000
    assert os.pread(target, 10, 5) == bytes(10)
    os.close(source)
    os.close(target)


def test_eight_threads_publish_and_adopt_at_once(cache: Cache, view: Tree) -> None:
    with Objects.open(cache) as store:

        def work(worker: int) -> None:
            for number in range(60):
                name = b"%d-%d" % (worker, number)
                put(view, name, b"%d" % number)
                assert store.publish(view, name, file_id(number))  # all workers publish the same ids
                assert store.adopt(file_id(number), view, name + b"-again")
                if number % 20 == 0:
                    store.flush()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        store.flush()
        assert markers(cache) == []
        assert all(store.has(file_id(number), len(str(number))) for number in range(60))


def publish_one(cache: Cache, view: Tree, number: int, boot: str, *, flush: bool) -> None:
    with Objects.open(cache, boot_id=boot) as store:
        put(view, b"file%d" % number)
        store.publish(view, b"file%d" % number, file_id(number))
        if flush:
            store.flush()


def test_a_marker_stands_before_the_first_publish_and_goes_with_the_flush(
    cache: Cache, view: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    link = os.link

    def watching_link(*args: object, **kwargs: object) -> None:
        seen.append(markers(cache))
        link(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", watching_link)
    with Objects.open(cache) as store:
        assert markers(cache) == []
        put(view, b"one")
        store.publish(view, b"one", file_id(1))
        assert seen
        assert all(len(found) == 1 for found in seen)
        store.flush()
        assert markers(cache) == []
        put(view, b"two")
        store.publish(view, b"two", file_id(2))
        assert len(markers(cache)) == 1


def test_the_marker_outlives_a_flush_that_fails(cache: Cache, view: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Objects.open(cache, boot_id="one") as store:
        put(view, b"one")
        store.publish(view, b"one", file_id(1))
        monkeypatch.setattr(objects, "sync_filesystem", fail)
        with pytest.raises(DatasyncError, match="flush"):
            store.flush()
        assert len(markers(cache)) == 1
    monkeypatch.undo()
    with Objects.open(cache, boot_id="two") as store:
        assert store.distrusted == 1


def test_after_another_boot_only_unflushed_objects_go(cache: Cache, view: Tree) -> None:
    publish_one(cache, view, 1, "boot-1", flush=True)
    time.sleep(dirty.CTIME_SLACK_NS / 1e9 + 0.1)  # the slack would take it for one of the next run
    publish_one(cache, view, 2, "boot-1", flush=False)
    assert len(markers(cache)) == 1
    with Objects.open(cache, boot_id="boot-2") as store:
        assert store.distrusted == 1
        assert store.has(file_id(1), 4)
        assert not store.has(file_id(2), 4)
    assert markers(cache) == []
    assert view_file(cache, "file2").exists()


def test_in_the_same_boot_a_dead_runs_objects_stay_and_the_next_flush_clears_its_marker(
    cache: Cache, view: Tree
) -> None:
    publish_one(cache, view, 1, "boot-1", flush=False)
    with Objects.open(cache, boot_id="boot-1") as store:
        assert store.distrusted == 0
        assert store.has(file_id(1), 4)
        assert len(markers(cache)) == 1
        store.flush()
        assert markers(cache) == []


def test_a_living_runs_marker_is_nobody_elses_to_remove(cache: Cache, view: Tree) -> None:
    with Objects.open(cache, boot_id="boot-1") as living:
        put(view, b"one")
        living.publish(view, b"one", file_id(1))
        own = markers(cache)
        publish_one(cache, view, 2, "boot-1", flush=True)
        assert markers(cache) == own
        with Objects.open(cache, boot_id="another-host") as store:
            assert store.distrusted == 0
            store.flush()
        assert markers(cache) == own
        assert living.has(file_id(1), 4)
        living.flush()
    assert markers(cache) == []


def test_a_clock_that_is_set_back_hides_no_object(cache: Cache, view: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    with Objects.open(cache, boot_id="boot-1") as store:
        monkeypatch.setattr(time, "time_ns", lambda: now + 3_600 * 10**9)  # an hour fast, then corrected
        put(view, b"one")
        store.publish(view, b"one", file_id(1))
        monkeypatch.undo()
        put(view, b"two")
        store.publish(view, b"two", file_id(2))
        assert len(markers(cache)) == 2
    with Objects.open(cache, boot_id="boot-2") as store:
        assert store.distrusted == 2
    assert markers(cache) == []


@pytest.mark.parametrize("body", [b"", b"\0\0\0", b"[]", b"{}", b'{"boot":1,"start_ns":"x"}', b"[" * 4096])
def test_a_damaged_marker_distrusts_everything(cache: Cache, view: Tree, body: bytes) -> None:
    publish_one(cache, view, 1, "boot-1", flush=True)
    (cache.path / "objects" / (MARKER + "00")).write_bytes(body)
    with Objects.open(cache, boot_id="boot-1") as store:
        assert store.distrusted == 1
    assert markers(cache) == []


def test_an_unfinished_marker_costs_nothing(cache: Cache, view: Tree) -> None:
    publish_one(cache, view, 1, "boot-1", flush=True)
    (cache.path / "objects" / (UNFINISHED + "00")).write_bytes(b"{")
    with Objects.open(cache, boot_id="boot-2") as store:
        assert store.has(file_id(1), 4)
    assert sorted(os.listdir(cache.path / "objects")) == [LOCK, "00"]


def test_recovery_that_is_interrupted_starts_over(cache: Cache, view: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_one(cache, view, 1, "boot-1", flush=False)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(objects, "sync_filesystem", fail)
    with pytest.raises(DatasyncError):
        Objects.open(cache, boot_id="boot-2")
    assert len(markers(cache)) == 1
    monkeypatch.undo()
    with Objects.open(cache, boot_id="boot-2") as store:
        assert not store.has(file_id(1), 4)
    assert markers(cache) == []


PUBLISHER = """
import os, sys
from pathlib import Path
from datasync.cache.layout import Cache
from datasync.cache.objects import Objects
with Cache.open(Path(sys.argv[1])) as cache, Objects.open(cache, boot_id=sys.argv[2]) as store:
    view = cache.tree.subtree(b"views/v")
    os.close(view.create(b"killed"))
    store.publish(view, b"killed", bytes(32))
    print("published", flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_leaves_its_marker_to_the_next_flush(cache: Cache, view: Tree) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(cache.path), "boot-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"published\n"
        with Objects.open(cache, boot_id="boot-1") as store:
            store.flush()
            assert len(markers(cache)) == 1  # it lives
            child.kill()
            child.wait()
            assert store.has(FileId(bytes(32)), 0)
            store.flush()
            assert markers(cache) == []
