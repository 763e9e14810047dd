"""What starts must start fast: no engine for --version, no SDK for what does not speak to its service."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.cli import Machine

SDKS = ("boto3", "botocore", "s3transfer", "oss2", "qcloud_cos", "fsspec", "aiohttp")
ENGINE = ("cryptography", "blake3", "msgspec", "zstandard", "xxhash", "pyfastcdc", "sqlite3")
OWN_ENGINE = tuple(
    f"datasync.{name}"
    for name in ("service", "push", "pull", "repository", "crypto", "format", "chunker", "storage", "cache", "config")
)
UNUSED = (
    "http.client",
    "ssl",
    "datasync.crypto.kms.http",
    "datasync.policy",
    "datasync.repository.deposits",
    "datasync.repository.grants",
    "datasync.service.borrow",
    "datasync.service.caller",
    "datasync.service.client",
    "datasync.service.daemon_settings",
    "datasync.service.daemon_warm",
    "datasync.service.decision",
    "datasync.service.policy_files",
    "datasync.service.reader_policies",
    "datasync.service.site_policy",
    "datasync.storage.brokers",
    "datasync.storage.extras",
)
"""What only policies, key services, push-only writers, daemons and control sides need."""
NOT_OF_WARM = ("datasync.push",)
NOT_OF_PUSH = ("datasync.pull", "datasync.cache.space", "datasync.cache.kernel", "ctypes")
NOT_OF_WORKERS = (
    "datasync.crypto.recipients",
    "datasync.format.snapshot",
    "datasync.repository.chunks",
    "datasync.repository.keyring",
    "datasync.repository.packs",
    "datasync.storage",
)
WATCHED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))  # main() ends the process itself
sys.argv = ["datasync", *sys.argv[1:]]
from datasync.cli.main import main
main()
"""


def modules_after(machine: Machine, *arguments: str | Path) -> set[str]:
    done = machine.run(*arguments, command=(sys.executable, "-c", WATCHED))
    return set(json.loads(done.stderr.splitlines()[-1]))


def loaded(found: set[str], names: tuple[str, ...]) -> set[str]:
    return {module for module in found for name in names if module == name or module.startswith(name + ".")}


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ()])
def test_the_group_itself_loads_no_sdk_and_no_engine(machine: Machine, arguments: tuple[str, ...]) -> None:
    found = modules_after(machine, *arguments) if arguments else modules_of(machine, "import datasync")
    assert loaded(found, SDKS + ENGINE + OWN_ENGINE) == set()
    assert "datasync" in found


def test_a_local_repository_needs_no_sdk(machine: Machine, scratch: Path) -> None:
    (scratch / "data").mkdir()
    (scratch / "data" / "file").write_bytes(b"content")
    found = modules_after(machine, "push", scratch / "data")
    assert "datasync.push.pipeline" in found
    assert loaded(found, SDKS) == set()


def test_a_plain_warm_loads_nothing_that_it_does_not_use(machine: Machine, scratch: Path) -> None:
    (scratch / "data").mkdir()
    (scratch / "data" / "file").write_bytes(b"content")
    machine.run("push", scratch / "data")
    for _ in ("fetched", "ready before"):
        found = modules_after(machine, "warm", "data")
        assert "datasync.pull.pipeline" in found
        assert loaded(found, UNUSED + NOT_OF_WARM) == set()


def test_an_unchanged_push_loads_nothing_that_it_does_not_use(machine: Machine, scratch: Path) -> None:
    (scratch / "data").mkdir()
    (scratch / "data" / "file").write_bytes(b"content")
    machine.run("push", scratch / "data")
    found = modules_after(machine, "push", scratch / "data")
    assert "datasync.push.pipeline" in found
    assert loaded(found, UNUSED + NOT_OF_PUSH) == set()


def test_a_worker_loads_no_keyring_and_no_store(machine: Machine) -> None:
    found = modules_of(machine, "import datasync.pull.worker")
    assert "datasync.pull.open" in found
    assert loaded(found, NOT_OF_WORKERS) == set()


def test_locations_load_no_sdk(machine: Machine) -> None:
    found = modules_of(
        machine, "import datasync.storage.location as location; location.parse_url('s3://bucket/prefix')"
    )
    assert "datasync.storage.location" in found
    assert loaded(found, SDKS) == set()


def test_the_python_interface_is_there_when_asked_for(machine: Machine) -> None:
    found = modules_of(machine, "import datasync; assert callable(datasync.open)")
    assert "datasync.service.api" in found
    assert loaded(found, SDKS) == set()


def modules_of(machine: Machine, code: str) -> set[str]:
    watched = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    return set(json.loads(machine.run(command=(sys.executable, "-c", watched)).stdout))
