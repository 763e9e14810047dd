"""datasync run."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import click

from datasync.cache.leases import BEAT_SECONDS
from datasync.cli.common import common, session
from datasync.cli.output import Output
from datasync.cli.warm import fields, warm_one
from datasync.config import Flags
from datasync.errors import NotFound, UsageError
from datasync.service.warm import HeldLease, environment_of

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.option(
    "--data", "references", multiple=True, required=True, metavar="REF", help="A dataset to warm; may be repeated."
)
@click.option(
    "--cache",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A cache directory; several disks: repeat it (or DATASYNC_CACHE, separated by colons).",
)
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED)
@common
def command(
    references: tuple[str, ...], cache: tuple[Path, ...], command_line: tuple[str, ...], output: Output, flags: Flags
) -> int:
    """Warm each --data, then run COMMAND_LINE with DATASYNC_DATASET_<NAME> set to its path.

    Signals are passed on, the command's exit code is returned. Write `--` before the command.
    """
    if shutil.which(command_line[0]) is None:
        raise NotFound(f"command {command_line[0]!r}: not found: nothing was warmed")
    flags = replace(flags, caches=cache)
    with session(flags, output) as opened:
        done = [warm_one(opened, reference, output, lease=True) for reference in references]
        environment = environment_of(done)
    for item in done:
        output.event("ready", **fields(item))
    leases = [item.lease for item in done if item.lease is not None]
    try:
        code = _run(command_line, environment, leases)
    finally:
        for lease in leases:
            lease.release()
    output.result(command=list(command_line), exit=code)
    return code


def _run(command_line: tuple[str, ...], environment: dict[str, str], leases: list[HeldLease]) -> int:
    """Run the command in the foreground; return its code, 128 + n when a signal n ended it."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if child is None:
            early.append(number)
        elif child.poll() is None:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        sys.stdout.flush()
        child = subprocess.Popen(command_line, env=os.environ | environment)  # the user's own command
        for number in early:
            child.send_signal(number)
        code = _wait(child, leases)
    except OSError as error:
        raise UsageError(f"command {command_line[0]!r}: cannot be run: {error.strerror}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _wait(child: subprocess.Popen[bytes], leases: list[HeldLease]) -> int:
    while True:
        try:
            return child.wait(BEAT_SECONDS)
        except subprocess.TimeoutExpired:
            for lease in leases:
                lease.beat()
