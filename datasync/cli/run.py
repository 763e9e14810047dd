"""datasync run."""

import contextlib
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
from datasync.cli.common import cache_option, common, group_option, session
from datasync.cli.output import Output
from datasync.cli.warm import fields, warm_one
from datasync.config import Flags
from datasync.errors import DatasyncError, NotFound, UsageError
from datasync.service.references import parse_reference
from datasync.service.session import Session
from datasync.service.warm import HeldLease, Warmed, WarmOptions, environment_of, newest_complete, variables

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.option(
    "--data",
    "references",
    multiple=True,
    required=True,
    metavar="REF[=ENV]",
    help="A dataset to warm, and the variable that gets its path; may be repeated.",
)
@click.option(
    "--on-fail",
    type=click.Choice(["stop", "continue", "stale"]),
    default="stop",
    help="When a warm fails: stop (default), run without the dataset, or use the newest complete local snapshot.",
)
@click.option(
    "--link",
    type=click.Choice(["share", "copy"]),
    default="share",
    help="Read the shared view (default), or a private writable copy that lasts as long as the command.",
)
@group_option
@cache_option
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED)
@common
def command(
    references: tuple[str, ...],
    on_fail: str,
    link: str,
    group: str | None,
    cache: tuple[Path, ...],
    command_line: tuple[str, ...],
    output: Output,
    flags: Flags,
) -> int:
    """Warm each --data, then run COMMAND_LINE with DATASYNC_DATASET_<NAME> set to its path.

    Signals are passed on, the command's exit code is returned. Write `--` before the command.
    """
    if shutil.which(command_line[0]) is None:
        raise NotFound(f"command {command_line[0]!r}: not found: nothing was warmed")
    leases: list[HeldLease] = []
    try:
        with session(replace(flags, caches=cache), output) as opened:
            environment = _warm_all(opened, references, on_fail, leases, output, group, copy=link == "copy")
        code = _run(command_line, environment, leases)
    finally:
        for lease in leases:
            _release(lease, output)
    output.result(command=list(command_line), exit=code)
    return code


def _release(lease: HeldLease, output: Output) -> None:
    """End a lease; the command's own exit code counts, whatever became of the cache meanwhile."""
    try:
        lease.release()
    except DatasyncError as error:
        output.warn(str(error))


def _warm_all(
    opened: Session,
    references: tuple[str, ...],
    on_fail: str,
    leases: list[HeldLease],
    output: Output,
    group: str | None,
    *,
    copy: bool,
) -> dict[str, str]:
    """Return the job's variables; *leases* gets what holds its views."""
    environment: dict[str, str] = {}
    for reference, variable in _parse(references):
        done = _warm(opened, reference, on_fail, output, group)
        if done is None:
            continue
        if done.lease is not None:
            leases.append(done.lease)
            done = replace(done, path=done.lease.copy()) if copy else done
        environment |= environment_of(done, variable)
        output.event("ready", **fields(done))
    return environment


def _parse(references: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (reference, variable or nothing) of each; a wrong or doubled variable is told before any warm."""
    found: list[tuple[str, str]] = []
    names: set[str] = set()
    for text in references:
        reference, _, variable = text.partition("=")
        wanted = variables(parse_reference(reference).name, variable)
        if not names.isdisjoint(wanted):
            doubled = ", ".join(sorted(names.intersection(wanted)))
            raise UsageError(f"{doubled}: two datasets would set this variable: give one another, as REF=ENV")
        names.update(wanted)
        found.append((reference, variable))
    return found


def _warm(opened: Session, reference: str, on_fail: str, output: Output, group: str | None) -> Warmed | None:
    try:
        return warm_one(opened, reference, output, WarmOptions(lease=True, group=group))
    except UsageError:
        raise  # a wrong command line is never run with other data
    except DatasyncError as error:
        if on_fail == "stop":
            raise
        output.warn(str(error))
        if on_fail == "continue":
            output.warn(f"{reference}: not warmed: the command runs without it (--on-fail continue)")
            return None
        done = newest_complete(opened, reference)
        output.warn(f"{reference}: using {done.dataset}@{done.seq}, the newest complete one here (--on-fail stale)")
        return done


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
                with contextlib.suppress(OSError):  # the flock holds it still: no disk's trouble ends the job
                    lease.beat()
