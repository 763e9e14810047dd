"""The source tree: opening it, opening files in it, and never more directory fds than allowed."""

import contextlib
import errno
import os
import socket
import threading
from pathlib import Path

import pytest

from datasync.cache import kernel
from datasync.errors import NotAuthorized, NotFound, PartialFailure, StorageUnavailable, UsageError
from datasync.push.source import CHANGED, DIRECTORY_FDS, VANISHED, SourceTree, Unreadable, shown


def directory_fds(root: Path) -> int:
    """Count this process's open directories beneath *root*, its own included."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # closed since it was listed
            continue
        count += target.startswith(os.fspath(root)) and os.path.isdir(f"/proc/self/fd/{name}")
    return count


def test_a_missing_root_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such directory"):
        SourceTree.open(tmp_path / "missing")
    (tmp_path / "dangling").symlink_to("missing")
    with pytest.raises(NotFound):
        SourceTree.open(tmp_path / "dangling")


def test_a_file_as_root_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="name the one that holds it"):
        SourceTree.open(tmp_path / "file")


def test_an_endless_root_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError):
        SourceTree.open(tmp_path / "loop")


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EACCES, NotAuthorized), (errno.EIO, StorageUnavailable), (errno.ENAMETOOLONG, UsageError)],
)
def test_other_trouble_with_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("datasync.push.source.os.open", refused)
    with pytest.raises(kind, match=str(tmp_path)):
        SourceTree.open(tmp_path)


def test_a_root_named_by_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with SourceTree.open(tmp_path / "link") as tree:
        assert tree.root_stat.st_ino == (tmp_path / "real").stat().st_ino
        assert tree.identity()[1] == tree.root_stat.st_ino
        assert tree.identity()[0].startswith(("fsid:", "dev:"))


def test_files_are_opened_by_their_path(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for path in ("top", "a/one", "a/two", "a/b/three"):
        (tmp_path / path).write_text(path)
    with SourceTree.open(tmp_path) as tree:
        for asked in (b"top", b"a/one", b"a/two", b"a/b/three", b"top", b"a/one"):
            with open(tree.open_file(asked), "rb") as file:
                assert file.read() == asked
                assert not os.get_inheritable(file.fileno())


def open_beneath(root: Path) -> list[str]:
    """Return what this process has open there; what other tests leave to the collector does not count."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(str(root))]


def test_what_is_no_regular_file_is_refused_without_blocking(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "linked").symlink_to("sub")
    os.mkfifo(tmp_path / "fifo")
    server = socket.socket(socket.AF_UNIX)
    at = os.open(tmp_path, os.O_RDONLY)
    server.bind(f"/proc/self/fd/{at}/socket")
    os.close(at)
    with SourceTree.open(tmp_path) as tree:
        for path in (b"sub", b"link", b"fifo", b"socket", b"linked/file", b"file/file"):
            with pytest.raises(Unreadable) as caught:
                tree.open_file(path)
            assert caught.value.skipped == (path, CHANGED)
        for path in (b"gone", b"sub/gone", b"nowhere/file"):
            with pytest.raises(PartialFailure, match=VANISHED):
                tree.open_file(path)
    del tree, caught
    assert open_beneath(tmp_path) == []
    server.close()


@pytest.fixture(params=["at once", "by component"])
def long_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The ways down that were gone at once; without openat2 there are none."""
    gone: list[bytes] = []

    def open_beneath(dir_fd: int, path: bytes) -> int:
        if request.param == "by component":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        gone.append(path)
        return there(dir_fd, path)

    there = kernel.open_directory_beneath
    monkeypatch.setattr(kernel, "open_directory_beneath", open_beneath)
    return gone


@pytest.mark.parametrize(
    ("planted", "why"), [(None, VANISHED), ("outside", CHANGED), ("root/a/b/moved", CHANGED), ("file", CHANGED)]
)
def test_a_file_deep_down_is_reached_and_nothing_planted_on_the_way(
    tmp_path: Path, long_ways: list[bytes], planted: str | None, why: str
) -> None:
    """*planted* is what a link leads to that takes the place of a directory."""
    for place in ("root/a/b/c/d/e", "outside/d/e"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "file").write_bytes(place.encode())
    (tmp_path / "file").touch()
    with SourceTree.open(tmp_path / "root") as tree, open(tree.open_file(b"a/b/c/d/e/file"), "rb") as file:
        assert file.read() == b"root/a/b/c/d/e"
    swapped = tmp_path / "root/a/b/c"
    swapped.rename(tmp_path / "root/a/b/moved")
    if planted is not None:
        swapped.symlink_to(tmp_path / planted)
    with SourceTree.open(tmp_path / "root") as tree, pytest.raises(Unreadable) as caught:
        tree.open_file(b"a/b/c/d/e/file")
    assert caught.value.skipped == (b"a/b/c/d/e/file", why)
    assert set(long_ways) <= {b"a/b/c/d/e"}


def test_a_path_that_one_call_does_not_take_is_gone_by_component(tmp_path: Path) -> None:
    names = [f"{number:02}-{'n' * 200}" for number in range(30)]
    fd = os.open(tmp_path, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    with open(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd), "wb") as file:
        file.write(b"content")
    os.close(fd)
    with SourceTree.open(tmp_path) as tree, open(tree.open_file("/".join([*names, "file"]).encode()), "rb") as found:
        assert found.read() == b"content"


def test_a_machine_without_fds_stops_the_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with SourceTree.open(tmp_path) as tree:

        def refused(*_: object, **__: object) -> int:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr("datasync.push.source.os.open", refused)
        with pytest.raises(StorageUnavailable, match="ulimit"):
            tree.open_file(b"file")


def test_a_file_of_another_owner_is_read_without_noatime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")
    plain = os.open
    asked: list[int] = []

    def not_owner(path: bytes, flags: int, **options: int) -> int:
        asked.append(flags)
        if flags & os.O_NOATIME:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return plain(path, flags, **options)

    with SourceTree.open(tmp_path) as tree:
        monkeypatch.setattr("datasync.push.source.os.open", not_owner)
        os.close(tree.open_file(b"file"))
        os.close(tree.open_file(b"file"))
    assert [bool(flags & os.O_NOATIME) for flags in asked] == [True, False, False]


def read_files(tree: SourceTree, first: int, wrong: list[str]) -> None:
    for step in range(400):
        number = (first * 37 + step * 7) % 200
        with open(tree.open_file(f"{number}/file".encode())) as file:
            if (text := file.read()) != f"{number}":
                wrong.append(text)


def test_many_threads_share_the_bound_and_read_their_own_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(200):
        (root / f"{number}").mkdir(parents=True)
        (root / f"{number}" / "file").write_text(f"{number}")
    wrong: list[str] = []
    most = 0
    tree = SourceTree.open(root)
    threads = [threading.Thread(target=read_files, args=(tree, first, wrong)) for first in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most = max(most, directory_fds(root))
    for thread in threads:
        thread.join()
    tree.close()
    del tree, thread, threads
    assert not wrong
    assert 1 <= most <= DIRECTORY_FDS
    assert directory_fds(root) == 0


def test_paths_in_messages_can_not_upset_a_terminal() -> None:
    assert shown(b"a/\xc3\xa9 b") == "a/é b"
    assert shown(b"\xff\x1b[31m\n") == "\\xff\\x1b[31m\\n"
