"""What job files need to run for real: `datasync` on the PATH of a machine, and stand-ins for programs that are not
here, which write down how they were called.
"""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli import PROJECT, Machine

NOTED = ("JOB_REFERENCE", "JOB_COMMAND", "DATASYNC_REPOSITORY", "DATASYNC_CACHE", "DATASYNC_TRUST")
_STAND_IN = """\
#!/bin/sh
{
  printf '%s\\0' "${0##*/}" "$#" "$@"
  for name in NOTED; do eval "printf '%s\\\\0' \\"\\${$name-}\\""; done
} >> "$CALLS"
case ${0##*/} in
  ssh) for last; do :; done; exec sh -c "$last" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Call:
    """How a stand-in was called: its name, arguments, and the variables of `NOTED`."""

    program: str
    arguments: list[str]
    variables: dict[str, str]


def make_stand_ins(folder: Path, *names: str) -> None:
    """Make programs that note each call in the file that $CALLS names; `ssh` also runs its command, here."""
    for name in names:
        program = folder / name
        program.write_text(_STAND_IN.replace("NOTED", " ".join(NOTED)))
        program.chmod(0o755)


def read_calls(path: Path) -> list[Call]:
    """Return the calls in order."""
    words = path.read_text(encoding="utf-8").split("\0")[:-1] if path.exists() else []
    calls = []
    while words:
        end = 2 + int(words[1])
        calls.append(Call(words[0], words[2:end], dict(zip(NOTED, words[end : end + len(NOTED)], strict=True))))
        words = words[end + len(NOTED) :]
    return calls


def put_datasync_on_path(folder: Path, machine: Machine) -> dict[str, str]:
    """Return the machine's environment with a `datasync` program in *folder* first on PATH."""
    folder.mkdir(exist_ok=True)
    for name, line in (("datasync", "-m datasync.cli.main"), ("python", ""), ("torchrun", "-m torch.distributed.run")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {line} "$@"\n')
        program.chmod(0o755)
    return machine.environment() | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT)}
