"""`datasync`: finds the command's module when it is asked for, so `--version` and `--help` import no engine.

Turns errors into one line on stderr and the exit codes of `datasync.errors`; a traceback only with -vv. 130 and 143
after SIGINT and SIGTERM: the same line resumes.
"""

import atexit
import contextlib
import errno
import gc
import importlib
import os
import re
import signal
import sys
import traceback
from types import FrameType
from typing import Any, NoReturn

import click

from datasync import __version__
from datasync.errors import DatasyncError, NoSpace, StorageUnavailable

RELAYED = "--relayed"  # as service.verbs has it, which is not imported for --version
_BROKEN_PIPE = 141  # as a shell says it of a program that SIGPIPE ended
GC_ALLOCATIONS = 50_000  # between two looks for cycles

COMMANDS = {
    "init": "Make a repository, and an identity if there is none",
    "push": "Push a directory: what changed goes up, sealed",
    "pull": "Restore a snapshot into a directory",
    "warm": "Make a snapshot ready in the node's cache and print its path",
    "plan": "Show what a warm or a pull would fetch, keep and evict here",
    "run": "Warm datasets, then run a command that reads them",
    "path": "Print the ready directory of a dataset on this node",
    "ready": "Check that a dataset is ready on this node",
    "cache": "Look at the node's cache, pin, evict, scrub, purge",
    "status": "Show the repository, its datasets and their newest snapshots",
    "ls": "List datasets, or the entries of a snapshot",
    "log": "List the snapshots of a dataset",
    "diff": "Show what differs between two snapshots",
    "du": "Show raw, deduplicated and stored sizes",
    "tag": "Set, remove or list the tags of a dataset",
    "forget": "Forget snapshots, by name or by rules; prune frees their space",
    "prune": "Free the space of what no snapshot needs",
    "verify": "Check snapshots and packs",
    "audit": "Look at the audit log, verify and prove it, export it, make reports",
    "key": "Identities; grant, revoke, list and rotate a dataset's keys",
    "policy": "Who may do what: check, test, explain, compare and publish policies",
    "doctor": "Measure this node's disks, or try what a store does",
    "daemon": "Mirror folders, keep datasets ready and serve keys, in the background",
    "token": "Give nodes tokens for datasets, list and revoke them",
    "jobs": "Print job files for Slurm, Kubernetes, SkyPilot, torchrun, docker and ssh",
    "config": "Show the settings in force",
    "completion": "Print a shell's completion script",
    "demo": "Run the main job on an example dataset, in a temporary directory",
}


_KINDS = {2: "UsageError", 130: "Interrupted", 143: "Interrupted"}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"datasync.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="datasync")
def cli() -> None:
    """Secure dataset staging for rented GPU nodes: init, push, then warm or run.

    `datasync COMMAND --help` tells more of each.
    """


class _Stopped(BaseException):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


def _stop(number: int, _: FrameType | None) -> NoReturn:
    raise _Stopped(number)


def main() -> NoReturn:
    """Run the command line."""
    _open_closed_streams()
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # of a job in the background
            signal.signal(number, _stop)
    gc.set_threshold(GC_ALLOCATIONS, 20, 50)  # pages and plans are many small values without cycles
    _leave(_run(sys.argv[1:]))


def _open_closed_streams() -> None:
    """Put the null device where a caller closed a standard stream: no file that is opened later gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (stays open to the end)


def _leave(code: int) -> NoReturn:
    """End the process at once: taking the interpreter apart costs 0.06 s, and nothing of ours waits for it.

    Everything that must be closed is closed by a `with` before; what the standard library and the SDKs registered for
    the end of the process is run.
    """
    with contextlib.suppress(OSError):  # of what could not be written the code tells
        atexit._run_exitfuncs()
        sys.stderr.flush()
    os._exit(code)


def _run(arguments: list[str]) -> int:
    loud = _is_loud(arguments)
    try:
        result: Any = cli.main(arguments, prog_name="datasync", standalone_mode=False, obj=tuple(arguments))
        sys.stdout.flush()
    except SystemExit as error:  # with 1 click ends by itself, when nobody reads its output
        return _BROKEN_PIPE if error.code == 1 else int(error.code or 0)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        if "--json" in arguments or RELAYED in arguments:
            return _fail(arguments, None, error.format_message(), 2, loud=loud)
        error.show()
        return 2
    except DatasyncError as error:
        return _fail(arguments, error, str(error), error.exit_code, loud=loud)
    except _Stopped as stopped:
        return _fail(arguments, None, "interrupted: the same line resumes", stopped.code, loud=loud)
    except click.Abort:
        return _fail(arguments, None, "nothing was done: a question was not answered", 130, loud=loud)
    except BrokenPipeError:
        return _BROKEN_PIPE
    except MemoryError as error:
        return _fail(arguments, error, "out of memory", 1, loud=loud)
    except OSError as error:
        return _fail(arguments, error, f"unexpected error of the system: {error}", _code_of(error), loud=loud)
    except Exception as error:  # noqa: BLE001 (the last line of defence: one line and exit code 1)
        text = f"unexpected {type(error).__name__}: {error}: run again with -vv for the traceback and report it"
        return _fail(arguments, error, text, 1, loud=loud)
    return int(result or 0)


def _is_loud(arguments: list[str]) -> bool:
    """Tell whether -v is there twice, in one word or in two, before any `--`."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    words = [item for item in options if re.fullmatch("-[nqv]+", item)]
    return sum(item.count("v") for item in words) + options.count("--verbose") >= 2


def _code_of(error: OSError) -> int:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace.exit_code
    return StorageUnavailable.exit_code if isinstance(error, ConnectionError | TimeoutError) else 1


def _class_of(error: BaseException) -> str:
    """Return the class that programs know: of our own errors, the nearest one that `datasync.errors` has."""
    known = (kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "datasync.errors")
    return next(known, type(error).__name__)


def _fail(arguments: list[str], error: BaseException | None, text: str, code: int, *, loud: bool) -> int:
    from datasync.cli.output import fail

    if loud and error is not None:
        traceback.print_exception(error)
    kind = _class_of(error) if error is not None else _KINDS[code]
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    fail(text, kind, code, as_json="--json" in options, relayed=RELAYED in options)
    return code


if __name__ == "__main__":
    main()
