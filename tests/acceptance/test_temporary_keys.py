"""Temporary keys: renewed in the middle of a push nothing fails; expired, it stops with one message and resumes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from datasync.storage.sdk.credentials import Keys
from tests.acceptance.conftest import s3_machine
from tests.support.cli import Machine
from tests.support.cos_server import CosServer
from tests.support.object_server import Account
from tests.support.oss_server import OssServer
from tests.support.stores import Running
from tests.support.trees import content

OVERLAP_SECONDS = 20.0  # old keys hold so long after new ones came: a pack on its way was signed with them
EACH_SECONDS = 0.02

AnyServer = OssServer | CosServer


@pytest.fixture(params=["oss-oss2", "oss-v2", "cos"])
def server(request: pytest.FixtureRequest, running: Running) -> Iterator[AnyServer]:
    found = running.server(request.param)
    assert isinstance(found, OssServer | CosServer)
    accounts = dict(found.state.accounts)
    yield found
    found.state.accounts = accounts


def give(server: AnyServer, number: int, seconds: float) -> Keys:
    """Return new temporary keys that the server knows."""
    keys = Keys(f"TMP.{number}", f"secret-{number}", f"token-{number}")
    server.state.accounts[keys.access_key] = Account(keys.secret_key, keys.token, time.time() + seconds)
    return keys


def use(server: AnyServer, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.with_keys(keys).environment().items():
        monkeypatch.setenv(name, value)


@contextmanager
def changing(server: AnyServer) -> Iterator[list[Keys]]:
    """Change the keys again and again; yield those that were given, the newest last."""
    done, given = threading.Event(), [give(server, 0, OVERLAP_SECONDS)]

    def change() -> None:
        while not done.wait(EACH_SECONDS):
            given.append(give(server, len(given), OVERLAP_SECONDS))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield given
    finally:
        done.set()
        thread.join()


def fill(source: Path, files: int) -> None:
    for number in range(files):
        path = source / f"{number % 100:02}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(number, 5_000 + number % 7_000))


@pytest.fixture
def machine(server: AnyServer, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return s3_machine(server, scratch, monkeypatch)


@pytest.mark.parametrize("files", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_keys_that_change_in_the_middle_fail_nothing(
    server: AnyServer, machine: Machine, scratch: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    fill(scratch / "source", files)
    accounts, used = dict(server.state.accounts), set[Keys]()
    with changing(server) as given:

        def newest() -> Keys:
            used.add(given[-1])
            return given[-1]

        monkeypatch.setattr("datasync.storage.oss.store.oss_keys", lambda: newest)
        monkeypatch.setattr("datasync.storage.cos.store.cos_keys", lambda: newest)
        for name in accounts:
            del server.state.accounts[name]  # the ones of the fixture
        pushed = machine.push(scratch / "source")
        warmed, _ = machine.warm()
    assert pushed.totals.files == files
    assert len(used) >= 5
    assert sum(path.is_file() for path in warmed.path.rglob("*")) == files


def test_expired_keys_stop_the_command_with_one_message_and_the_same_line_resumes(
    server: AnyServer, machine: Machine, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(scratch / "source", 50)
    use(server, give(server, 1, seconds=-1), monkeypatch)
    before = len(server.state.requests)
    stopped = machine.run("push", scratch / "source", "--dataset", "data", expect=6)
    assert len(stopped.stderr.splitlines()) == 1
    assert "have expired or are not valid; renew them" in stopped.stderr
    assert "secret-1" not in stopped.stderr + stopped.stdout
    assert len(server.state.requests) - before < 20  # nothing goes on asking
    use(server, give(server, 2, seconds=600), monkeypatch)
    machine.run("push", scratch / "source", "--dataset", "data")
