"""LocalStore's own promises: what a crash, a full disk or a foreign file does."""

import errno
import os
import time
from pathlib import Path

import pytest

from datasync.errors import AlreadyExists, NoSpace, NotAuthorized, StorageUnavailable
from datasync.storage.local import LEFTOVER_SECONDS, TEMPORARY_DIRECTORY, LocalStore


def names(store: LocalStore) -> list[str]:
    return [found.name for found in store.list("")]


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def failing(number: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_full_disk_is_no_space_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    store = LocalStore(tmp_path)
    store.put_if_absent("a/first", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number))
        with pytest.raises(NoSpace, match=r"a/one.*make room"):
            store.put_if_absent("a/one", b"x")
    assert files(tmp_path) == ["a/first"]
    store.put_if_absent("a/one", b"x")


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EROFS, NotAuthorized), (errno.EACCES, NotAuthorized), (errno.EIO, StorageUnavailable)]
)
def test_a_refusal_is_told_from_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    store = LocalStore(tmp_path)
    monkeypatch.setattr(os, "link", failing(number))
    with pytest.raises(kind):
        store.put_if_absent("a/one", b"x")


def test_nothing_is_visible_before_it_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, seen = LocalStore(tmp_path), []
    link = os.link

    def spy(source: str, target: str) -> None:
        seen.append((names(store), Path(source).read_bytes()))
        link(source, target)

    monkeypatch.setattr(os, "link", spy)
    store.put_if_absent("a/one", b"whole")
    assert seen == [([], b"whole")]
    assert files(tmp_path) == ["a/one"]


def test_temporary_and_foreign_files_are_never_listed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put_if_absent("a/one", b"x")
    for name in (f"{TEMPORARY_DIRECTORY}/0", "a/with blank", "a/two~", "a/ä"):
        (tmp_path / name).write_bytes(b"y")
    (tmp_path / "empty/deeper").mkdir(parents=True)
    assert names(store) == ["a/one"]
    assert list(store.list_directories("")) == ["a"]


def test_what_a_crash_left_is_removed_a_day_later(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put_if_absent("a/one", b"x")
    old, new = tmp_path / TEMPORARY_DIRECTORY / "old", tmp_path / TEMPORARY_DIRECTORY / "new"
    for path in (old, new):
        path.write_bytes(b"part")
    long_ago = time.time() - LEFTOVER_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    LocalStore(tmp_path).put_if_absent("a/two", b"x")
    assert (old.exists(), new.exists()) == (False, True)


def test_a_directory_removed_meanwhile_is_trouble_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put_if_absent("a/one", b"x")
    store.delete("a/one")
    (tmp_path / "a").rmdir()
    with pytest.raises(StorageUnavailable):
        store.put_if_absent("a/one", b"x")
    store.put_if_absent("a/one", b"x")
    assert names(store) == ["a/one"]


def test_a_fifo_or_device_is_no_object_and_does_not_block(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert names(store) == []
    with pytest.raises(AlreadyExists):
        store.put_if_absent("pipe", b"x")


def test_a_listing_with_a_limit_reads_no_further_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    for directory in "abc":
        for number in range(20):
            store.put_if_absent(f"{directory}/{number:02}", b"x")
    looked_at: list[str] = []
    stat = os.stat

    def spy(path: os.PathLike[str], **options: bool) -> os.stat_result:
        looked_at.append(str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", spy)
    assert [found.name for found in store.list("", limit=2)] == ["a/00", "a/01"]
    assert len(looked_at) == 2
