"""Tree: names from outside stay inside, and each call does what it says, by openat2 and by the walk."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from datasync.cache.beneath import Tree
from datasync.cache.directories import DIRECTORY_FDS
from datasync.errors import DatasyncError, IntegrityError, NoSpace, NotAuthorized, NotFound

HOSTILE = [
    b"",
    b"/",
    b"/etc/passwd",
    b"..",
    b".",
    b"../x",
    b"a/../x",
    b"a/..",
    b"a/./x",
    b"a//x",
    b"a/",
    b"a\0b",
    b"a\0/x",
    b"n" * 256,
    b"n" * 256 + b"/x",
    b"/".join([b"n" * 255] * 257),
]


def put(tree: Tree, path: bytes, data: bytes = b"data") -> None:
    fd = tree.create(path)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def fill(tree: Tree, files: int) -> None:
    for number in range(files):
        put(tree, b"%d" % number)


def get(tree: Tree, path: bytes) -> bytes:
    fd = tree.open_file(path)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: repr(path[:12]))
def test_no_call_takes_a_hostile_path(tree: Tree, root: Path, path: bytes) -> None:
    tree.make_directory(b"a")
    put(tree, b"ok")
    (root.parent / "x").write_bytes(b"outside")
    calls: list[Callable[[], object]] = [
        lambda: tree.make_directory(path),
        lambda: tree.create(path),
        lambda: tree.open_file(path),
        lambda: tree.symlink(path, b"t"),
        lambda: tree.link_within(b"ok", path),
        lambda: tree.link_within(path, b"new"),
        lambda: tree.rename(b"ok", path),
        lambda: tree.rename(path, b"new"),
        lambda: tree.lstat(path),
        lambda: tree.remove(path),
    ]
    if path:  # the empty path is the root for these
        calls += [
            lambda: tree.set_mode(path, 0o777),
            lambda: tree.set_mtime(path, 0),
            lambda: tree.finish_directory(path, 0o777, 0),
            lambda: tree.set_xattrs(path, []),
            lambda: tree.remove_tree(path),
            lambda: tree.fsync_directory(path),
            lambda: tree.subtree(path),
        ]
    for call in calls:
        with pytest.raises(IntegrityError):
            call()
    assert sorted(os.listdir(root)) == ["a", "ok"]
    assert (root.parent / "x").read_bytes() == b"outside"


@pytest.mark.parametrize("target", ["outside", "a"], ids=["out of the tree", "within the tree"])
def test_a_symlink_planted_as_a_parent_is_never_followed(tree: Tree, root: Path, target: str) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "victim").write_bytes(b"keep")
    tree.make_directory(b"a")
    (root / "planted").symlink_to(outside if target == "outside" else target)
    (root / "a" / "deep").symlink_to(outside)
    for parent in (b"planted", b"a/deep"):
        calls: list[Callable[[bytes], object]] = [
            lambda p: tree.create(p + b"/new"),
            lambda p: tree.make_directory(p + b"/new"),
            lambda p: tree.open_file(p + b"/victim"),
            lambda p: tree.symlink(p + b"/new", b"t"),
            lambda p: tree.remove(p + b"/victim"),
            lambda p: tree.lstat(p + b"/victim"),
            lambda p: tree.make_directory(p),
            lambda p: tree.set_mode(p, 0o777),
            lambda p: tree.finish_directory(p, 0o777, 0),
            lambda p: tree.subtree(p),
        ]
        for call in calls:
            with pytest.raises(IntegrityError):
                call(parent)
    assert os.listdir(outside) == ["victim"]


def test_a_planted_final_name_is_never_followed_nor_opened(tree: Tree, root: Path) -> None:
    victim = root.parent / "victim"
    victim.write_bytes(b"keep")
    (root / "link").symlink_to(victim)
    (root / "dangling").symlink_to(root.parent / "made")
    os.mkfifo(root / "fifo")
    before = victim.stat()
    for name in (b"link", b"dangling", b"fifo"):
        with pytest.raises(IntegrityError, match="expected"):
            tree.create(name)
        with pytest.raises(IntegrityError):
            tree.open_file(name)
        with pytest.raises(IntegrityError):
            tree.set_mode(name, 0o777)
        with pytest.raises(IntegrityError):
            tree.finish_directory(name, 0o777, 0)
    with pytest.raises(IntegrityError):
        tree.open_file(b"link", os.O_WRONLY | os.O_TRUNC)
    tree.set_mtime(b"link", 5_000_000_000)
    tree.remove_tree(b"link")
    assert victim.read_bytes() == b"keep"
    assert victim.stat().st_mtime_ns == before.st_mtime_ns
    assert victim.stat().st_mode == before.st_mode
    assert not (root.parent / "made").exists()
    assert not (root / "link").is_symlink()


def test_a_parent_replaced_by_a_link_after_it_was_opened_leads_nowhere_else(tree: Tree, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    tree.make_directory(b"a")
    put(tree, b"a/first")
    (root / "a").rename(root / "moved")
    (root / "a").symlink_to(outside)
    put(tree, b"a/second")  # goes to the directory that was opened, wherever it is now
    assert sorted(os.listdir(root / "moved")) == ["first", "second"]
    assert os.listdir(outside) == []


def test_names_are_bytes(tree: Tree, root: Path) -> None:
    names = [
        b"\xff\xfe",
        b"new\nline",
        b"tab\t",
        b"-rf",
        b" ",
        b"e\xcc\x81",
        b"\xc3\xa9",
        b"a" * 255,
        b"*",
        b"...",
        b"~",
    ]
    for name in names:
        put(tree, name, name)
        tree.make_directory(b"d-" + name[:250])
        put(tree, b"d-" + name[:250] + b"/" + name, name)
    assert sorted(os.listdir(os.fsencode(root))) == sorted(names + [b"d-" + name[:250] for name in names])
    assert all(get(tree, b"d-" + name[:250] + b"/" + name) == name for name in names)


def test_three_hundred_components_and_64_kib_of_path(tree: Tree, root: Path) -> None:
    path = b""
    for level in range(300):
        path = path + b"/" + b"%03d" % level + b"n" * 214 if path else b"top"
        tree.make_directory(path)
    assert 65_000 < len(path) + 5 <= 65_535
    put(tree, path + b"/leaf", b"deep")
    tree.symlink(path + b"/ln", b"leaf")
    assert tree.link_within(path + b"/leaf", path + b"/two")
    tree.rename(path + b"/two", path + b"/2")
    tree.set_mtime(path + b"/ln", 1_000)
    tree.set_mode(path, 0o500)
    with tree.subtree(path) as deep:
        assert get(deep, b"leaf") == b"deep"
    fresh = Tree.open(root)  # nothing cached: the whole way in steps
    with fresh:
        assert get(fresh, path + b"/2") == b"deep"
    tree.remove_tree(b"top")
    assert os.listdir(root) == []


def test_a_tree_of_two_thousand_levels_is_removed_with_few_fds(tree: Tree, root: Path) -> None:
    path = b"d"
    tree.make_directory(path)
    for level in range(2_000):
        path += b"/d"
        tree.make_directory(path)
        if level % 100 == 0:
            put(tree, path + b"/f")
    before = open_fds()
    tree.remove_tree()
    assert os.listdir(root) == []
    assert open_fds() <= before


def test_two_names_that_collide_are_refused(tree: Tree) -> None:
    put(tree, b"same")
    tree.make_directory(b"dir")
    tree.make_directory(b"dir")
    with pytest.raises(IntegrityError, match="two names are one"):
        tree.create(b"same")
    with pytest.raises(IntegrityError, match="two names are one"):
        tree.make_directory(b"same")
    with pytest.raises(IntegrityError, match="two names are one"):
        tree.make_directory(b"dir", fresh=True)
    with pytest.raises(IntegrityError):
        tree.create(b"dir")
    with pytest.raises(IntegrityError):
        tree.symlink(b"same", b"t")
    with pytest.raises(IntegrityError):
        tree.link_within(b"same", b"dir")
    with pytest.raises(IntegrityError):
        tree.create(b"same/child")
    assert get(tree, b"same") == b"data"


def test_a_missing_parent_contradicts_the_manifest_and_a_missing_file_is_not_found(tree: Tree) -> None:
    placing: list[Callable[[bytes], object]] = [tree.create, tree.make_directory, lambda p: tree.symlink(p, b"t")]
    for call in placing:
        with pytest.raises(IntegrityError, match="parent"):
            call(b"no/such")
    looking: list[Callable[[bytes], object]] = [
        tree.open_file,
        lambda p: tree.set_mode(p, 0o700),
        lambda p: tree.set_mtime(p, 0),
        lambda p: tree.finish_directory(p, 0o700, 0),
    ]
    for call in looking:
        for path in (b"no", b"no/such"):
            with pytest.raises(NotFound):
                call(path)
    assert tree.lstat(b"no") is None
    assert tree.lstat(b"no/such") is None
    tree.remove(b"no/such")
    tree.remove_tree(b"no/such")
    with pytest.raises(NotFound):
        tree.link_within(b"no", b"new")
    with pytest.raises(NotFound):
        Tree.open(Path("/no/such/directory"))


def test_modes_times_and_attributes_are_set_and_set_id_bits_are_not(tree: Tree, root: Path) -> None:
    put(tree, b"file")
    tree.make_directory(b"dir", 0o7700)
    os.close(tree.create(b"suid", 0o6755))
    tree.set_mode(b"file", 0o6751)
    tree.set_mode(b"dir", 0o1755)
    tree.set_mode(b"", 0o750)
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o751
    assert stat.S_IMODE((root / "dir").stat().st_mode) == 0o1755
    assert (root / "suid").stat().st_mode & 0o6000 == 0
    assert stat.S_IMODE(root.stat().st_mode) == 0o750
    tree.finish_directory(b"dir", 0o6551, 1_234_567_890_123_456_789)
    assert stat.S_IMODE((root / "dir").stat().st_mode) == 0o551
    assert (root / "dir").stat().st_mtime_ns == 1_234_567_890_123_456_789
    tree.symlink(b"link", b"nowhere")
    for path in (b"file", b"dir", b"link", b""):
        tree.set_mtime(path, 1_234_567_890_123_456_789)
        assert os.lstat(root / os.fsdecode(path)).st_mtime_ns == 1_234_567_890_123_456_789
    tree.set_mtime(b"file", -1_500_000_000)
    assert (root / "file").stat().st_mtime_ns == -1_500_000_000


def test_only_user_attributes_are_set_and_the_others_are_named(tree: Tree, root: Path) -> None:
    put(tree, b"file")
    try:
        os.setxattr(root / "file", "user.probe", b"1")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    refused = tree.set_xattrs(b"file", [(b"user.a", b"1"), (b"security.capability", b"x"), (b"trusted.t", b"x")])
    assert refused == [b"security.capability", b"trusted.t"]
    assert sorted(os.listxattr(root / "file")) == ["user.a", "user.probe"]
    assert tree.set_xattrs(b"file", [(b"user.big", bytes(60_000))]) in ([], [b"user.big"])
    assert tree.set_xattrs(b"", [(b"user.root", b"r")]) == []


def test_links_share_an_inode_and_a_full_inode_is_a_false(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tree, b"one")
    assert tree.link_within(b"one", b"two")
    one, two = tree.lstat(b"one"), tree.lstat(b"two")
    assert one is not None
    assert two is not None
    assert one.st_ino == two.st_ino

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    monkeypatch.setattr(os, "link", full)
    assert not tree.link_within(b"one", b"three")


def test_rename_moves_a_directory_that_is_open(tree: Tree, root: Path) -> None:
    tree.make_directory(b"old")
    tree.make_directory(b"old/in")
    put(tree, b"old/in/file", b"1")
    tree.rename(b"old", b"new")
    assert get(tree, b"new/in/file") == b"1"
    with pytest.raises(NotFound):
        tree.open_file(b"old/in/file")
    tree.make_directory(b"old")
    tree.make_directory(b"old/in")
    put(tree, b"old/in/file", b"2")
    assert (root / "old/in/file").read_bytes() == b"2"
    assert (root / "new/in/file").read_bytes() == b"1"
    put(tree, b"a", b"a")
    put(tree, b"b", b"b")
    tree.rename(b"a", b"b")
    assert get(tree, b"b") == b"a"


def test_a_removed_and_remade_directory_is_the_new_one(tree: Tree, root: Path) -> None:
    for how in (tree.remove_tree, tree.remove):
        tree.make_directory(b"dir")
        put(tree, b"dir/file")
        tree.remove(b"dir/file")
        how(b"dir")
        tree.make_directory(b"dir")
        put(tree, b"dir/again")
        assert os.listdir(root / "dir") == ["again"]
        tree.remove_tree(b"dir")


def test_remove_tree_follows_no_link_and_takes_all_kinds(tree: Tree, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    tree.make_directory(b"t")
    for name in range(300):
        tree.make_directory(b"t/%d" % name)
        put(tree, b"t/%d/f" % name)
    (root / "t/out").symlink_to(outside)
    (root / "t/0/out").symlink_to(outside / "keep")
    os.mkfifo(root / "t/fifo")
    tree.remove_tree(b"t")
    assert os.listdir(root) == []
    assert os.listdir(outside) == ["keep"]


def test_fds_stay_bounded_over_many_directories_and_threads(tree: Tree) -> None:
    before = open_fds()
    highest = 0

    def work(worker: int) -> None:
        nonlocal highest
        for number in range(100):
            tree.make_directory(b"%d-%d" % (worker, number))
            tree.make_directory(b"%d-%d/in" % (worker, number))
            for file in range(3):
                put(tree, b"%d-%d/in/%d" % (worker, number, file), b"%d %d %d" % (worker, number, file))
        for number in range(100):
            for file in range(3):
                found = get(tree, b"%d-%d/in/%d" % (worker, number, file))
                assert found == b"%d %d %d" % (worker, number, file)
            highest = max(highest, open_fds())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    tree.remove_tree()
    # each thread holds a file and a listing of /proc besides
    assert before < highest <= before + DIRECTORY_FDS + 2 * 8
    tree.close()
    assert open_fds() < before


def test_eight_threads_race_for_one_name_and_one_wins(tree: Tree) -> None:
    def try_create(_: int) -> int:
        try:
            os.close(tree.create(b"one"))
        except IntegrityError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(try_create, range(64))) == 1


def test_close_twice_and_an_fd_in_use_outlives_close(tree: Tree) -> None:
    tree.make_directory(b"d")
    directory, name = tree.locate(b"d/file")
    with directory as fd:
        tree.close()
        tree.close()
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, NoSpace),
        (errno.EDQUOT, NoSpace),
        (errno.EACCES, NotAuthorized),
        (errno.EPERM, NotAuthorized),
        (errno.EROFS, NotAuthorized),
        (errno.EIO, DatasyncError),
    ],
)
def test_each_errno_has_its_error(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[DatasyncError]
) -> None:
    put(tree, b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    for name in ("open", "mkdir", "symlink", "rename", "utime", "unlink"):
        monkeypatch.setattr(os, name, fail)
    for call in (
        lambda: tree.create(b"new"),
        lambda: tree.make_directory(b"new"),
        lambda: tree.symlink(b"new", b"t"),
        lambda: tree.rename(b"old", b"new"),
        lambda: tree.set_mtime(b"old", 0),
        lambda: tree.remove(b"old"),
    ):
        with pytest.raises(DatasyncError, match=r"old|new") as raised:
            call()
        assert type(raised.value) is expected


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from datasync.cache.beneath import Tree
from datasync.errors import NotAuthorized
os.chdir(sys.argv[1])  # the way to it may be private to root
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
with Tree.open(Path(".")) as tree:
    for path in (b"t", b"t/a", b"t/a/b", b"t/c"):
        tree.make_directory(path)
        os.close(tree.create(path + b"/f", 0o400))
    for path, mode in ((b"t/a/b", 0o500), (b"t/a", 0o000), (b"t/c", 0o300), (b"t", 0o555)):
        tree.set_mode(path, mode)
    try:
        tree.create(b"t/new")
    except NotAuthorized as error:
        assert "'t/new'" in str(error)
    else:
        raise SystemExit("created in a read-only directory")
    tree.remove_tree(b"t")
    assert os.listdir(".") == []
"""


def test_read_only_and_unreadable_directories_are_removed_by_their_owner(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    room.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(room)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0


def test_a_full_disk_is_no_space_and_what_was_complete_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=20", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"tmpfs can not be mounted here: {mounted.stderr!r}")
    try:
        with Tree.open(disk) as tree:
            put(tree, b"first")
            with pytest.raises(NoSpace, match="full"):
                fill(tree, 100)
            with pytest.raises(NoSpace):
                tree.make_directory(b"dir")
            with pytest.raises(NoSpace):
                tree.symlink(b"link", b"t")
            assert get(tree, b"first") == b"data"
            tree.remove_tree()
            put(tree, b"room again")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
