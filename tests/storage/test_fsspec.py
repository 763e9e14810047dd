"""Stores through fsspec: SFTP over a socket, and what any other file system can do."""

import os
import stat
from contextlib import closing
from pathlib import Path
from unittest import mock

import asyncssh
import pytest

from datasync.errors import AlreadyExists, NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.fsspec import FilesystemStore, open_filesystem
from datasync.storage.location import open_store, parse_url
from datasync.storage.probe import honours_put_if_absent
from datasync.storage.retry import RetryingStore, Surroundings
from tests.attacks.conftest import fill
from tests.support.machine import Machine, tree
from tests.support.sftp import SftpServer, sftp
from tests.support.stores import Running


@pytest.fixture
def server(running: Running) -> SftpServer:
    found = running.server("sftp")
    assert isinstance(found, SftpServer)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path / "home"


def opened(server: SftpServer, bucket: str) -> FilesystemStore:
    return open_filesystem(parse_url(server.url(bucket)))


def test_a_host_that_is_not_known_is_refused(server: SftpServer, home: Path, fresh_bucket: str) -> None:
    server.give_keys(home)
    (home / ".ssh/known_hosts").write_text("")
    with closing(opened(server, fresh_bucket)) as store, pytest.raises(NotAuthorized, match="known_hosts"):
        store.put_if_absent("one", b"x")


def test_a_host_with_another_key_is_refused(server: SftpServer, home: Path, fresh_bucket: str) -> None:
    server.give_keys(home)
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{server.port} {other}\n")
    with closing(opened(server, fresh_bucket)) as store, pytest.raises(NotAuthorized, match="known_hosts"):
        store.put_if_absent("one", b"x")


def test_a_user_without_the_key_is_not_authorized(server: SftpServer, home: Path, fresh_bucket: str) -> None:
    server.give_keys(home)
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(home / ".ssh/id_ed25519"))
    with closing(opened(server, fresh_bucket)) as store, pytest.raises(NotAuthorized, match="check the user"):
        store.put_if_absent("one", b"x")


def test_a_server_that_is_not_there_is_unavailable(home: Path) -> None:
    with pytest.raises(StorageUnavailable):
        open_store("sftp://me@127.0.0.1:1/x").stat("one")


def test_a_lost_connection_is_made_anew(tmp_path: Path) -> None:
    with sftp() as own, closing(own.open("x")) as store:
        calm = RetryingStore(store, around=Surroundings(sleep=lambda _: None))
        calm.put_if_absent("one", b"x")
        store._connected().client.get_transport().sock.close()  # as a network does that goes away
        assert calm.get("one", limit=1) == b"x"
        store._connected().client.close()
        calm.put_if_absent("two", b"y")
        assert [item.name for item in calm.list("")] == ["one", "two"]


def test_nothing_temporary_stays_and_none_is_listed(server: SftpServer, fresh_bucket: str) -> None:
    with closing(server.open(fresh_bucket)) as store:
        store.put_if_absent("a/one", bytes(100_000))
        with pytest.raises(AlreadyExists):
            store.put_if_absent("a/one", b"other")
        left = server.root / fresh_bucket / ".~tmp"
        assert list(left.iterdir()) == []
        (left / "crashed").write_bytes(b"x")
        assert [item.name for item in store.list("")] == ["a/one"]


def test_a_directory_that_is_gone_is_made_again(server: SftpServer, fresh_bucket: str) -> None:
    with closing(server.open(fresh_bucket)) as store:
        calm = RetryingStore(store, around=Surroundings(sleep=lambda _: None))
        calm.put_if_absent("a/one", b"x")
        (server.root / fresh_bucket / "a/one").unlink()
        (server.root / fresh_bucket / "a").rmdir()
        calm.put_if_absent("a/two", b"x")
        assert calm.get("a/two", limit=1) == b"x"


def test_a_directory_without_rights_is_not_authorized(server: SftpServer, fresh_bucket: str) -> None:
    if os.geteuid() == 0:
        with mock.patch.object(FilesystemStore, "_make", side_effect=PermissionError(13, "denied")):
            store = server.open(fresh_bucket)
            with closing(store), pytest.raises(NotAuthorized, match="rights"):
                store.put_if_absent("one", b"x")
        return
    place = server.root / fresh_bucket
    place.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    with closing(server.open(fresh_bucket)) as store, pytest.raises(NotAuthorized, match="rights"):
        store.put_if_absent("one", b"x")


def test_a_repository_over_sftp_goes_there_and_back(server: SftpServer, tmp_path: Path, fresh_bucket: str) -> None:
    machine = Machine.make(tmp_path / "owner", server.url(fresh_bucket))
    server.give_keys(machine.home)
    assert "put-if-absent" not in machine.must("init").err
    source = fill(tmp_path / "source")
    machine.must("push", source, "--dataset", "data")
    node = machine.sibling(tmp_path / "node")
    server.give_keys(node.home)
    node.must("pull", "data", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(source)
    machine.must("verify", "--read-data")


@pytest.fixture
def plugin(running: Running, fresh_bucket: str) -> str:
    return running.server("fsspec").url(fresh_bucket)


def test_a_file_system_without_put_if_absent_says_so_and_works_for_one_writer(plugin: str, tmp_path: Path) -> None:
    store = open_store(plugin)
    assert not honours_put_if_absent(store)
    machine = Machine.make(tmp_path / "owner", plugin)
    assert "does not honour put-if-absent: it works for one writer at a time" in machine.must("init").err
    source = fill(tmp_path / "source")
    machine.must("push", source, "--dataset", "data")
    (source / "text").write_bytes(b"newer")
    machine.must("push", source, "--dataset", "data")
    node = machine.sibling(tmp_path / "node")
    node.must("pull", "data", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(source)
    machine.must("verify", "--read-data")


def test_a_put_that_broke_off_shows_nothing(plugin: str) -> None:
    store = open_store(plugin)
    assert isinstance(store, FilesystemStore)
    store.put_if_absent("zero", b"")
    fs = store._connected()
    with mock.patch.object(fs, "mv", side_effect=OSError("broken")), pytest.raises(StorageUnavailable):
        store.put_if_absent("one", b"x")
    assert [item.name for item in store.list("")] == ["zero"]


@pytest.mark.parametrize("url", ["s4://bucket/x", "gopher://host/x"])
def test_a_scheme_that_nobody_knows_is_told(url: str) -> None:
    with pytest.raises(UsageError, match="unknown scheme"):
        open_store(url)


def test_a_file_system_whose_package_is_missing_names_it() -> None:
    with mock.patch.dict("sys.modules", {"smbclient": None}), pytest.raises(UsageError, match=r"unknown scheme smb://"):
        open_store("smb://host/share/x")
