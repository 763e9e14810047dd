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
WATCHED = """
import json, sys
sys.argv = ["datasync", *sys.argv[1:]]
from datasync.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
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
