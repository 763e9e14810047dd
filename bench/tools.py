"""The tools that are compared: how each makes its repository, pushes a directory and brings it back.

rclone comes from the locked test requirements; restic is used where it is on
PATH (Debian's package), else left out with a word.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers import S3Server

TRANSFERS = 16  # rclone's, as a user who wants speed would set it


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool's command lines; `{source}`, `{target}` and `{name}` are filled in."""

    name: str
    environment: Mapping[str, str]
    prepare: tuple[list[str], ...]
    push: list[str]
    pull: list[str]

    def fill(self, command: list[str], **values: str) -> list[str]:
        """Return *command* with its places filled."""
        return [part.format(**values) for part in command]


def all_tools(server: S3Server, home: Path, bucket: str) -> list[Tool]:
    """Return the tools that this machine has."""
    found = [_datasync(server, home, bucket), _rclone(server, home, bucket)]
    if shutil.which("restic"):
        found.insert(1, _restic(server, home, bucket))
    else:
        print("restic is not installed: left out (Debian: apt-get install restic)")
    return found


def _base(server: S3Server, home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), **server.environment()}


def _datasync(server: S3Server, home: Path, bucket: str) -> Tool:
    run = [sys.executable, "-m", "datasync.cli.main"]
    environment = _base(server, home) | {
        "DATASYNC_REPOSITORY": server.url(bucket, "datasync"),
        "DATASYNC_CACHE": str(home / "cache"),
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
    }
    return Tool(
        "datasync",
        environment,
        ([*run, "init"],),
        [*run, "push", "{source}", "--dataset", "{name}"],
        [*run, "warm", "{name}"],
    )


def _restic(server: S3Server, home: Path, bucket: str) -> Tool:
    environment = _base(server, home) | {
        "RESTIC_REPOSITORY": f"s3:{server.endpoint}/{bucket}/restic",
        "RESTIC_PASSWORD": "bench",
    }
    return Tool(
        "restic",
        environment,
        (["restic", "init"],),
        ["restic", "backup", "--quiet", "--tag", "{name}", "{source}"],
        ["restic", "restore", "latest", "--quiet", "--tag", "{name}", "--target", "{target}"],
    )


def _rclone(server: S3Server, home: Path, bucket: str) -> Tool:
    program = shutil.which("rclone", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "rclone"
    password = subprocess.run([program, "obscure", "bench"], check=True, capture_output=True, text=True).stdout.strip()
    environment = _base(server, home) | {
        "RCLONE_CONFIG": str(home / "rclone.conf"),
        "RCLONE_CONFIG_S3_TYPE": "s3",
        "RCLONE_CONFIG_S3_PROVIDER": "Other",
        "RCLONE_CONFIG_S3_ENDPOINT": server.endpoint,
        "RCLONE_CONFIG_S3_ENV_AUTH": "true",
        "RCLONE_CONFIG_S3_REGION": "us-east-1",
        "RCLONE_CONFIG_SEALED_TYPE": "crypt",
        "RCLONE_CONFIG_SEALED_REMOTE": f"s3:{bucket}/rclone",
        "RCLONE_CONFIG_SEALED_PASSWORD": password,
    }
    (home / "rclone.conf").touch()
    options = ["--transfers", str(TRANSFERS), "--checkers", str(TRANSFERS), "--quiet"]
    return Tool(
        "rclone crypt",
        environment,
        (),
        [program, "copy", *options, "{source}", "sealed:{name}"],
        [program, "copy", *options, "sealed:{name}", "{target}"],
    )
