"""Where things lie, and which directories are refused."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.cache.layout import Cache, dataset_name, directory_name
from datasync.errors import DatasyncError, UsageError
from datasync.model.ids import SnapshotId

SNAPSHOT = SnapshotId(bytes(range(32)))
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="@:/"), min_size=1, max_size=128)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("imagenet", b"imagenet"),
        ("a b", b"a%20b"),
        ("50%", b"50%25"),
        (".hidden", b"%2Ehidden"),
        ("..", b"%2E."),
        ("v1.0_x-y", b"v1.0_x-y"),
        ("数", b"%E6%95%B0"),
    ],
)
def test_a_dataset_name_has_this_directory(name: str, expected: bytes) -> None:
    assert directory_name(name) == expected


@given(NAMES)
def test_directory_names_are_safe_and_reversible_unless_cut(name: str) -> None:
    directory = directory_name(name)
    assert 0 < len(directory) <= 255
    assert b"/" not in directory
    assert not directory.startswith(b".")
    assert dataset_name(directory) == (None if b"%-" in directory else name)


def test_long_names_that_differ_at_the_end_differ() -> None:
    assert directory_name("数" * 127 + "a") != directory_name("数" * 127 + "b")


@pytest.mark.parametrize("directory", [b"", b"%2", b"%zz", b"a%2fb", b"%41", b"\xff", b"%FF", b".x"])
def test_what_no_name_gives_is_no_name(directory: bytes) -> None:
    assert dataset_name(directory) is None


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Cache.open(tmp_path / "new" / "cache") as cache:
            view = cache.view("a b", 3, SNAPSHOT)
            cache.make_folder(view)
    finally:
        os.umask(before)
    assert mode(cache.path / "objects") == 0o700
    assert mode(cache.path / "views") == 0o751
    assert mode(cache.path / "views" / "a%20b") == 0o751


def test_a_view_has_its_places(cache: Cache) -> None:
    view = cache.view("imagenet", 12, SNAPSHOT)
    assert cache.view_path("imagenet", 12, SNAPSHOT) == cache.path / "views/imagenet/12-0001020304050607"
    assert view.ready_path == cache.path / "views/imagenet/12-0001020304050607.READY.json"
    assert view.staging == b"views/imagenet/.staging-12-0001020304050607"
    assert view.lock == b"views/imagenet/.lock-12-0001020304050607"


def test_only_views_with_a_receipt_are_listed(cache: Cache) -> None:
    assert list(cache.views("d")) == []
    one, two = cache.view("d", 1, SNAPSHOT), cache.view("d", 2, SNAPSHOT)
    cache.make_folder(one)
    for path in (one.place, two.place, two.staging):
        cache.tree.make_directory(path)
    os.close(cache.tree.create(one.ready))
    os.close(cache.tree.create(two.lock))
    os.close(cache.tree.create(two.folder + b"/x-1.READY.json"))
    assert list(cache.views("d")) == [one]


def test_opening_again_keeps_all_and_tightens_objects(tmp_path: Path) -> None:
    Cache.open(tmp_path / "cache").close()
    (tmp_path / "cache/objects/keep").touch()
    (tmp_path / "cache/objects").chmod(0o755)
    Cache.open(tmp_path / "cache").close()
    assert (tmp_path / "cache/objects/keep").exists()
    assert mode(tmp_path / "cache/objects") == 0o700


@pytest.mark.parametrize("bad", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("place", ["", "views", "objects"])
def test_a_directory_that_others_can_write_is_refused_with_advice(tmp_path: Path, bad: int, place: str) -> None:
    Cache.open(tmp_path / "cache").close()
    (tmp_path / "cache" / place).chmod(bad)
    with pytest.raises(UsageError, match="chmod go-w"):
        Cache.open(tmp_path / "cache")


def test_a_sticky_shared_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o1777)
    Cache.open(tmp_path / "cache").close()
    assert mode(tmp_path / "cache") == 0o1777


@pytest.mark.parametrize("place", ["", "views", "objects"])
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache.open(tmp_path / "cache").close()
    if os.geteuid() == 0:
        os.chown(tmp_path / "cache" / place, 65534, -1)
    elif place:
        pytest.skip("giving a directory away needs root")
    else:
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(UsageError, match="uid"):
        Cache.open(tmp_path / "cache")


@pytest.mark.parametrize("name", ["objects", "views"])
def test_a_link_or_file_in_place_of_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "cache").mkdir(mode=0o755)
    (tmp_path / "cache" / name).symlink_to(other)
    with pytest.raises(UsageError, match="expected a directory"):
        Cache.open(tmp_path / "cache")
    (tmp_path / "cache" / name).unlink()
    (tmp_path / "cache" / name).touch()
    with pytest.raises(UsageError, match="expected a directory"):
        Cache.open(tmp_path / "cache")
    assert os.listdir(other) == []


def test_a_cache_path_that_is_a_file_is_our_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatasyncError, match="cache directory"):
        Cache.open(tmp_path / "file")
    with pytest.raises(DatasyncError, match="cache directory"):
        Cache.open(tmp_path / "file" / "below")


def test_a_dataset_folder_that_is_a_planted_link_is_refused(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (cache.path / "views" / "d").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError):
        cache.make_folder(cache.view("d", 1, SNAPSHOT))
