"""The tools that are compared: how each makes its repository, pushes a directory and brings it back.

rclone and s5cmd come from the locked test requirements; restic is used where it is on
PATH (Debian's package), else left out with a word.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support.servers import S3Server

_PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # programs of the locked requirements lie beside Python
TRANSFERS = 16  # of rclone and s5cmd, as a user who wants speed would set it; 256 at once make the server fail


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool's command lines; `{source}`, `{target}` and `{name}` are filled in."""

    name: str
    environment: Mapping[str, str]
    prepare: tuple[list[str], ...]
    push: list[str]
    pull: list[str]
    again: list[str] = field(default_factory=list)  # empty: as push

    def fill(self, command: list[str], **values: str) -> list[str]:
        """Return *command* with its places filled."""
        return [part.format(**values) for part in command]


def all_tools(server: S3Server, home: Path, bucket: str, names: list[str]) -> list[Tool]:
    """Return the tools called *names* that this machine has."""
    made = {
        "floor": _floor,
        "floor-in-turn": _floor_in_turn,
        "datasync": _datasync,
        "restic": _restic,
        "rclone": _rclone,
        "s5cmd": _s5cmd,
    }
    found = []
    for name in names:
        if name in ("restic", "s5cmd") and not shutil.which(name, path=_PATH):
            print(f"{name} is not installed: left out (restic: Debian's package; s5cmd: requirements/dev.txt)")
        else:
            found.append(made[name](server, home, bucket))
    return found


def _floor(server: S3Server, home: Path, bucket: str) -> Tool:
    run = [sys.executable, "-m", "bench.floor"]
    environment = _base(server, home) | {
        "FLOOR_ENDPOINT": server.endpoint,
        "FLOOR_BUCKET": bucket,
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
    }
    step = {name: [*run, name, "{source}", "{target}"] for name in ("push", "pull", "again")}
    return Tool("floor", environment, (), step["push"], step["pull"], step["again"])


def _floor_in_turn(server: S3Server, home: Path, bucket: str) -> Tool:
    floor = _floor(server, home, bucket)
    return replace(floor, name="floor-in-turn", environment={**floor.environment, "FLOOR_IN_TURN": "1"})


def _s5cmd(server: S3Server, home: Path, bucket: str) -> Tool:
    program = shutil.which("s5cmd", path=_PATH) or "s5cmd"
    run = [program, "--numworkers", str(TRANSFERS), "--endpoint-url", server.endpoint, "--log", "error"]
    place = f"s3://{bucket}/s5cmd/{{name}}/"
    return Tool(
        "s5cmd, plaintext",
        _base(server, home),
        (),
        [*run, "cp", "{source}/", place],
        [*run, "cp", f"{place}*", "{target}/"],
        [*run, "sync", "{source}/", place],
    )


def _base(server: S3Server, home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), **server.environment()}


def _datasync(server: S3Server, home: Path, bucket: str) -> Tool:
    run = [sys.executable, "-m", "datasync.cli.main"]
    environment = _base(server, home) | {
        "DATASYNC_REPOSITORY": server.url(bucket, "datasync"),
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
    }
    return Tool(
        "datasync",
        environment,
        ([*run, "init"],),
        [*run, "push", "{source}", "--dataset", "{name}"],
        [*run, "warm", "--cache", "{target}", "{name}"],
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
    program = shutil.which("rclone", path=_PATH) or "rclone"
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
