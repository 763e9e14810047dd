"""A dataset that a key service opens, by the command line: grant, read with no key file at all, rotate, revoke."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasync.repository.repository import Repository
from datasync.storage.memory import MemoryStore
from tests.support.kms.providers import Provider, local
from tests.support.kms.server import Reply
from tests.support.machine import Machine, contents
from tests.support.people import Person

URL = "memory://kms"
KEPT = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_EC2_METADATA_DISABLED")


@pytest.fixture(params=["alibaba", "google"])
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """A provider on a server of ours, which counts what it is asked."""
    with local(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    root.mkdir()
    (root / "scan").write_bytes(b"scan" * 5000)
    return root


@pytest.fixture
def owner(tmp_path: Path, source: Path) -> Person:
    found = Person.make(tmp_path, "olga", URL, MemoryStore())
    found.must("init")
    found.must("push", source, "--dataset", "data")
    return found


def granted(owner: Person, provider: Provider) -> tuple[Person, str]:
    """Grant to the provider's key; return the owner with its credentials, and the trust root."""
    credentials = {name: value for name, value in provider.environment.items() if name != "HOME"}
    extra = credentials | {name: os.environ[name] for name in KEPT}
    able = replace(owner, machine=Machine(owner.machine.home, URL, extra | {"DATASYNC_KMS": provider.uri}))
    done = able.must("key", "grant", "data", provider.uri, "--name", "cloud")
    return able, str(done["trust"])


def node(tmp_path: Path, able: Person, trust: str, **extra: str) -> Person:
    """Return a machine without an identity: the key service is all that it has."""
    settings = {**able.machine.extra, "DATASYNC_TRUST": trust, **extra}
    return Person("node", Machine.make(tmp_path / "node", URL, settings), able.store)


def test_a_node_reads_with_the_key_service_alone(
    provider: Provider, owner: Person, tmp_path: Path, source: Path
) -> None:
    able, trust = granted(owner, provider)
    reader = node(tmp_path, able, trust)
    reader.must("pull", "data", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(source)
    able.must("key", "rotate", "data")
    reader.must("pull", "data@1", tmp_path / "again")
    able.must("key", "revoke", "data", "cloud")
    reader.refused(12, "pull", "data", tmp_path / "no", words="no slot")


def test_a_key_that_is_not_configured_is_not_asked(own: Provider, owner: Person, tmp_path: Path) -> None:
    able, trust = granted(owner, own)
    reader = node(tmp_path, able, trust, DATASYNC_KMS="vault://transit/another?endpoint=http://127.0.0.1:9")
    asked = len(own.faulty().calls)
    reader.refused(12, "pull", "data", tmp_path / "out", words="no slot")
    assert len(own.faulty().calls) == asked


def test_a_service_that_is_down_is_said_so_and_no_weaker_slot_is_tried(
    own: Provider, owner: Person, tmp_path: Path
) -> None:
    able, trust = granted(owner, own)
    address = own.uri.partition("endpoint=")[2]
    reader = node(tmp_path, able, trust, DATASYNC_KMS=own.uri.replace(address, "http://127.0.0.1:9"))
    reader.refused(5, "pull", "data", tmp_path / "out")


def test_a_service_that_goes_down_stops_no_dataset_that_is_open(
    own: Provider, owner: Person, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once when the dataset is opened; after that everything is read, and a second opening asks anew."""
    able, trust = granted(owner, own)
    reader, server = node(tmp_path, able, trust), own.faulty()
    opened = Repository._open

    def then_down(*given: Any, **named: Any) -> Any:
        found = opened(*given, **named)
        server.faults = [Reply(503)]
        return found

    monkeypatch.setattr(Repository, "_open", then_down)
    reader.must("pull", "data", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(source)
    assert sum(not server.is_token(call) for call in server.calls) == 2  # one to grant, one to open
    reader.refused(5, "pull", "data", tmp_path / "again", words="busy or down")


def test_a_new_epoch_needs_the_service_once_more(own: Provider, owner: Person) -> None:
    granted(owner, own)
    owner.refused(12, "key", "rotate", "data", words="DATASYNC_KMS")
