"""The walk: every entry once, in the manifest's order, with few fds, whatever lies or happens in the tree."""

import contextlib
import gc
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from datasync.errors import NotFound
from datasync.model.entries import DIRECTORY, FILE, SYMLINK, sort_key
from datasync.model.limits import XATTRS_BYTES
from datasync.push.ignore import IgnoreRules
from datasync.push.scan import Found, Skipped, scan
from datasync.push.source import DIRECTORY_FDS, SourceTree

GIB = 1 << 30


def walk(root: Path, *, xattrs: bool = False, rules: IgnoreRules | None = None) -> tuple[list[Found], list[Skipped]]:
    skipped: list[Skipped] = []
    with SourceTree.open(root) as tree:
        found = list(scan(tree, rules or IgnoreRules(), skipped.append, xattrs=xattrs))
    return found, skipped


def unexpected(skipped: Skipped) -> None:
    raise AssertionError(f"skipped: {skipped}")


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def deep(root: Path, depth: int, name: bytes = b"d") -> None:
    """Make *depth* directories in one another, each with a file beside the next."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open(b"z", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.mkdir(name, dir_fd=fd)
        deeper = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)


def test_names_are_bytes_and_any_byte_survives(tmp_path: Path) -> None:
    names = [
        b"\xff\xfe",
        b"new\nline",
        b"tab\t",
        b"-leading",
        b" ",
        b"e\xcc\x81",
        b"\xc3\xa9",
        b"x" * 255,
        b"\x01",
        b"...",
    ]
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
            pass
    found, skipped = walk(tmp_path)
    assert [entry.path for entry in found] == sorted(names)
    assert not skipped


def test_the_order_is_that_of_components(tmp_path: Path) -> None:
    (tmp_path / "foo").mkdir()
    for name in ("foo.txt", "foo-1", "foo/a", "foo0", "fo", "foo/~", "foo!"):
        (tmp_path / name).touch()
    (tmp_path / "foo\x01").mkdir()
    (tmp_path / "foo\x01" / "a").touch()
    paths = [entry.path for entry in walk(tmp_path)[0]]
    assert paths == sorted(paths, key=sort_key)
    assert paths == [
        b"fo",
        b"foo",
        b"foo/a",
        b"foo/~",
        b"foo\x01",
        b"foo\x01/a",
        b"foo!",
        b"foo-1",
        b"foo.txt",
        b"foo0",
    ]


def test_an_entry_is_what_lstat_says(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    file.chmod(0o4751)
    os.utime(file, ns=(1, -1_234_567_891))
    os.link(file, tmp_path / "link")
    (tmp_path / "empty").touch()
    (tmp_path / "directory").mkdir(mode=0o700)
    found = {entry.path: entry for entry in walk(tmp_path)[0]}
    status = os.lstat(file)
    assert found[b"file"] == Found(
        b"file", FILE, 0o4751, -1_234_567_891, status.st_ctime_ns, 5, status.st_ino, status.st_dev, 2, status.st_blocks
    )
    assert found[b"link"].inode == found[b"file"].inode
    assert (found[b"empty"].size, found[b"empty"].blocks) == (0, 0)
    assert (found[b"directory"].kind, found[b"directory"].size, found[b"directory"].mode) == (DIRECTORY, 0, 0o700)


def test_links_are_links(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "dangling").symlink_to("no/where")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "to-sub").symlink_to("sub")
    os.symlink(b"\xff\n", os.fsencode(tmp_path / "odd"))
    found = [(entry.path, entry.target) for entry in walk(tmp_path)[0] if entry.kind == SYMLINK]
    assert found == [
        (b"dangling", b"no/where"),
        (b"loop", b"loop"),
        (b"odd", b"\xff\n"),
        (b"to-sub", b"sub"),
        (b"up", b".."),
    ]
    assert all(entry.size == 0 for entry in walk(tmp_path)[0])


def test_sparse_files_show_by_their_blocks(tmp_path: Path) -> None:
    for name, size in (("tebibyte", 1024 * GIB), ("zeros", 5 * GIB)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    (tmp_path / "written").write_bytes(bytes(1 << 20))
    found = {entry.path: entry for entry in walk(tmp_path)[0]}
    assert found[b"tebibyte"].size == 1024 * GIB
    assert found[b"tebibyte"].blocks * 512 < found[b"tebibyte"].size
    assert found[b"zeros"].blocks == 0
    assert found[b"written"].blocks * 512 >= 1 << 20


def test_what_is_no_data_is_skipped_and_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(tmp_path):
        server.bind("socket")
    (tmp_path / "kept").touch()
    found, skipped = walk(tmp_path)
    assert [entry.path for entry in found] == [b"kept"]
    assert sorted(skipped) == [(b"fifo", "a FIFO is not pushed"), (b"socket", "a socket is not pushed")]


def test_any_depth_with_a_bounded_number_of_fds(tmp_path: Path) -> None:
    deep(tmp_path, 300, b"d" * 200)
    gc.collect()  # what other tests left open closes now, not while fds are counted
    before, most, paths = open_fds(), 0, []
    with SourceTree.open(tmp_path) as tree:
        for entry in scan(tree, IgnoreRules(), unexpected):
            paths.append(entry.path)
            most = max(most, open_fds() - before)
        assert len(paths) == 600
        assert paths == sorted(paths, key=sort_key)
        for path in paths[::-7]:
            if path.endswith(b"z"):
                os.close(tree.open_file(path))
                most = max(most, open_fds() - before)
    del tree
    assert most <= DIRECTORY_FDS
    assert open_fds() == before


def test_a_directory_evicted_and_moved_away_is_not_read_from_elsewhere(tmp_path: Path) -> None:
    deep(tmp_path, 200)
    skipped: list[Skipped] = []
    found = []
    with SourceTree.open(tmp_path) as tree:
        for entry in scan(tree, IgnoreRules(), skipped.append):
            found.append(entry.path)
            if entry.path.count(b"d") == 200:  # the deepest: its far ancestors are evicted by now
                (tmp_path / "d").rename(tmp_path / "away")
                (tmp_path / "d").mkdir()
                (tmp_path / "d" / "z").symlink_to("/etc/passwd")
    assert not skipped  # the open directory still leads to its own parents, each verified
    assert len(found) == 400


def test_a_subtree_moved_out_of_its_parent_ends_there(tmp_path: Path) -> None:
    deep(tmp_path, 200)
    skipped: list[Skipped] = []
    found = []
    with SourceTree.open(tmp_path) as tree:
        for entry in scan(tree, IgnoreRules(), skipped.append):
            found.append(entry.path)
            if entry.path.count(b"d") == 200:
                (tmp_path / "d/d/d").rename(tmp_path / "away")
                (tmp_path / "d/d/d").mkdir()
    lost = b"/".join([b"d"] * 3)
    assert Skipped(lost, "changed while being read") not in skipped  # it is itself, under another name
    assert len(found) + len(skipped) == 400


def test_directories_that_can_not_be_reached_again_are_each_reported_once(tmp_path: Path) -> None:
    deep(tmp_path, 150)
    deepest = tmp_path / "/".join("d" * 150)
    (deepest / "last").touch()
    skipped: list[Skipped] = []
    found = []
    with SourceTree.open(tmp_path) as tree:
        for entry in scan(tree, IgnoreRules(), skipped.append):
            found.append(entry.path)
            if entry.path.endswith(b"last"):
                tree.close()  # as if all were evicted
                deepest.rename(tmp_path / "moved")
                (tmp_path / "d").rename(tmp_path / "old")
                (tmp_path / "d").symlink_to("old")  # the same directories, reached through a link: not followed
    assert skipped == [(b"/".join([b"d"] * depth), "changed while being read") for depth in range(149, 0, -1)]
    assert found[150].endswith(b"last")
    assert found[151:] == [b"z"]


@pytest.mark.parametrize("swap", ["remove", "link", "file", "fifo"])
def test_entries_removed_or_swapped_during_the_walk(tmp_path: Path, swap: str) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "inner").touch()
    (tmp_path / "c").touch()
    skipped: list[Skipped] = []
    found = []
    with SourceTree.open(tmp_path) as tree:
        for entry in scan(tree, IgnoreRules(), skipped.append):
            found.append((entry.path, entry.kind))
            if entry.path == b"a":
                (tmp_path / "b").rename(tmp_path / "a-moved")
                (tmp_path / "c").unlink()
                if swap == "link":
                    (tmp_path / "b").symlink_to("/")
                elif swap == "file":
                    (tmp_path / "b").touch()
                elif swap == "fifo":
                    os.mkfifo(tmp_path / "b")
    seen = {"remove": [], "link": [(b"b", SYMLINK)], "file": [(b"b", FILE)], "fifo": []}[swap]
    assert found == [(b"a", FILE), *seen]
    assert (b"c", "vanished while being read") in skipped
    assert len(skipped) == {"remove": 2, "fifo": 2}.get(swap, 1)


@pytest.mark.parametrize(
    ("replace", "why"), [("link", "changed while being read"), ("directory", "changed while being read")]
)
def test_a_directory_swapped_between_lstat_and_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: str, why: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").touch()
    child = SourceTree.child

    def swapping(tree: SourceTree, *arguments: object) -> object:
        (tmp_path / "sub").rename(tmp_path / "was")
        (tmp_path / "sub").mkdir() if replace == "directory" else (tmp_path / "sub").symlink_to("/etc")
        return child(tree, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SourceTree, "child", swapping)
    assert walk(tmp_path) == ([], [(b"sub", why)])


def test_names_and_paths_past_the_limits_are_reported(tmp_path: Path) -> None:
    deep(tmp_path, 300, b"d" * 220)
    found, skipped = walk(tmp_path)
    longest = max(len(entry.path) for entry in found)
    assert longest <= 65_535
    assert len(skipped) == 1
    assert "too long" in skipped[0].reason
    assert len(skipped[0].path) > 65_535


def test_one_file_system_yields_a_mount_point_and_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "file").touch()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").touch()
    plain = os.stat

    def other_device(path: bytes, *, dir_fd: int, follow_symlinks: bool) -> os.stat_result:
        status = plain(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        if path == b"mount":
            values = list(status)
            values[stat.ST_DEV] += 1
            return os.stat_result(values)
        return status

    monkeypatch.setattr("datasync.push.scan.os.stat", other_device)
    with SourceTree.open(tmp_path) as tree:
        paths = [entry.path for entry in scan(tree, IgnoreRules(), unexpected, one_file_system=True)]
    assert paths == [b"here", b"here/file", b"mount"]


def test_a_root_that_was_removed_is_an_error_not_an_empty_tree(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with SourceTree.open(root) as tree:
        root.rmdir()
        with pytest.raises(NotFound, match="removed"):
            list(scan(tree, IgnoreRules(), unexpected))


def as_nobody(check: Callable[[], None]) -> None:
    """Run *check* in a child process that has no privileges; its failure fails the test."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            check()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_unreadable_directories_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("closed", "no-search", "open"):
        (tree / name).mkdir(parents=True)
        (tree / name / "file").touch()
    (tree / "closed").chmod(0)
    (tree / "no-search").chmod(0o444)
    here = os.open(tree, os.O_RDONLY)

    def check() -> None:
        os.fchdir(here)  # the parents of tmp_path may be closed to others
        found, skipped = walk(Path("."))
        assert [entry.path for entry in found] == [b"no-search", b"open", b"open/file"]
        denied = "can not be read: Permission denied"
        assert skipped == [(b"closed", denied), (b"no-search/file", denied)]

    tree.chmod(0o755)
    as_nobody(check)
    os.close(here)


@pytest.fixture
def with_xattrs(tmp_path: Path) -> Path:
    try:
        os.setxattr(tmp_path, b"user.probe", b"")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    return tmp_path


def test_extended_attributes_when_asked(with_xattrs: Path) -> None:
    (with_xattrs / "file").touch()
    (with_xattrs / "sub").mkdir()
    (with_xattrs / "link").symlink_to("file")
    os.setxattr(with_xattrs / "file", b"user.b", b"\0\xff")
    os.setxattr(with_xattrs / "file", b"user.a", b"")
    os.setxattr(with_xattrs / "sub", b"user.c", b"1")
    asked = {entry.path: entry.xattrs for entry in walk(with_xattrs, xattrs=True)[0]}
    assert asked == {b"file": ((b"user.a", b""), (b"user.b", b"\0\xff")), b"sub": ((b"user.c", b"1"),), b"link": ()}
    assert all(entry.xattrs == () for entry in walk(with_xattrs)[0])


def test_too_many_attributes_are_left_out_and_reported(with_xattrs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (with_xattrs / "file").touch()
    os.setxattr(with_xattrs / "file", b"user.a", b"1")
    monkeypatch.setattr(os, "getxattr", lambda *_: bytes(XATTRS_BYTES))
    found, skipped = walk(with_xattrs, xattrs=True)
    assert [(entry.path, entry.xattrs) for entry in found] == [(b"file", ())]
    assert skipped == [
        (b"file", f"its extended attributes are left out: {XATTRS_BYTES + 6} bytes, at most {XATTRS_BYTES} fit")
    ]


def test_memory_is_bounded_by_one_directory(tmp_path: Path) -> None:
    """10,000 files in 10 directories take no more memory than 1,000 names."""
    for directory in range(10):
        (tmp_path / f"d{directory}").mkdir()
        fd = os.open(tmp_path / f"d{directory}", os.O_RDONLY)
        for file in range(1000):
            os.mknod(f"a-file-with-a-name-{file}", dir_fd=fd)
        os.close(fd)
    script = f"""
import tracemalloc
from pathlib import Path
from datasync.push.ignore import IgnoreRules
from datasync.push.scan import scan
from datasync.push.source import SourceTree
with SourceTree.open(Path({os.fspath(tmp_path)!r})) as tree:
    tracemalloc.start()
    count = sum(1 for _ in scan(tree, IgnoreRules(), print))
    assert count == 10010, count
    assert tracemalloc.get_traced_memory()[1] < 500_000, tracemalloc.get_traced_memory()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
