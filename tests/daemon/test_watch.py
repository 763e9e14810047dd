"""Where events can not be relied on, that is said, and nothing is watched."""

import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from datasync.cache.mounts import Kind
from datasync.daemon import watch
from datasync.daemon.watch import NETWORK, Watcher


def test_a_network_file_system_is_told_and_not_watched(tmp_path: Path) -> None:
    told: list[str] = []
    with mock.patch.object(watch, "kind_of", return_value=Kind.NETWORK):
        watcher = Watcher(tmp_path, lambda: None, told.append)
    assert (watcher.why_not, told) == (NETWORK, [NETWORK])
    watcher.stop()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    watcher = Watcher(tmp_path / "none", lambda: None, told.append)
    assert watcher.why_not is not None
    assert "no watches left" not in told[0]
    watcher.stop()


@pytest.mark.parametrize("what", ["create", "write", "rename", "delete", "folder"])
def test_every_change_is_a_hint(tmp_path: Path, what: str) -> None:
    hinted = threading.Event()
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "file"
    path.write_text("before")
    watcher = Watcher(tmp_path, hinted.set, lambda _: None)
    assert watcher.why_not is None
    actions: dict[str, Callable[[], object]] = {
        "create": lambda: (tmp_path / "new").touch(),
        "write": lambda: path.write_text("after"),
        "rename": lambda: path.rename(tmp_path / "moved"),
        "delete": path.unlink,
        "folder": (tmp_path / "e").mkdir,
    }
    actions[what]()
    assert hinted.wait(30)
    watcher.stop()


def test_a_directory_in_its_place_is_another_one(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    watcher = Watcher(root, lambda: None, lambda _: None)
    assert watcher.still_there(root)
    root.rename(tmp_path / "away")
    root.mkdir()
    assert not watcher.still_there(root)
    watcher.stop()
