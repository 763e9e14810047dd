"""The temporary directory that `datasync demo` happens in, and the commands that run there.

Each command is a process of its own, of this very datasync. Home, identity, repository and cache lie in the directory,
no setting of the user reaches the commands, and the directory is removed at the end, however that comes, unless it is
kept. Raises `StepFailed` only.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.cli.output import Output


class StepFailed(Exception):
    """A step's message, error class and exit code."""

    def __init__(self, message: str, kind: str, code: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended well: its events, the result last; without --json its lines."""

    command: str
    events: list[dict[str, Any]]
    lines: list[str]
    seconds: float

    @property
    def result(self) -> dict[str, Any]:
        return self.events[-1]


@contextmanager
def temporary_folder(keep: bool, output: Output) -> Iterator[Path]:
    """Yield a new temporary directory; remove it at the end, however that comes, unless it is kept."""
    folder = Path(tempfile.mkdtemp(prefix="datasync-demo-")).resolve()
    try:
        yield folder
    finally:
        if keep:
            output.note(
                f"kept {folder}; to go on:\n  (cd {shlex.quote(str(folder))} && . ./environment && datasync status)"
            )
        else:
            _remove(folder)


def _remove(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)  # the cache's views are read-only
    shutil.rmtree(folder)


class Place:
    """The directory that the demo happens in: runs commands there and tells what each step did."""

    def __init__(self, folder: Path, output: Output) -> None:
        self.folder = folder
        self.output = output
        self.began = time.monotonic()
        own = _own_settings(folder)
        (folder / "home").mkdir()
        (folder / "environment").write_text("".join(f"export {key}={shlex.quote(own[key])}\n" for key in own))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("DATASYNC_", "XDG_"))}
        searched = [str(Path(__file__).parents[2]), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
        self._environment = kept | own | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, searched))}

    def datasync(self, *arguments: str, as_json: bool = True) -> Done:
        """Run one command of datasync; raise `StepFailed` unless its exit code is 0."""
        shown = "datasync " + shlex.join("python" if item == sys.executable else item for item in arguments)
        self._say(f"$ {shown}")
        line = [sys.executable, "-P", "-m", "datasync.cli.main", *arguments, *(["--json"] if as_json else [])]
        began = time.monotonic()
        code, out, err = self._run(line)
        lines = out.splitlines()
        events = [json.loads(item) for item in lines if item.endswith("}")] if as_json else []  # a kill cuts a line
        if code:
            if self.output.verbose:
                self.output.warn(err.rstrip())
            raise _failure(shown, events, err, code)
        return Done(shown, events, [] if as_json else lines, time.monotonic() - began)

    def _run(self, line: list[str]) -> tuple[int, str, str]:
        pipe = subprocess.PIPE
        with subprocess.Popen(
            line, cwd=self.folder, env=self._environment, stdout=pipe, stderr=pipe, encoding="utf-8", errors="replace"
        ) as child:
            try:
                out, err = child.communicate()
            except BaseException:  # interrupted: the directory is removed next, so nothing may still work in it
                child.terminate()
                raise
        return (child.returncode if child.returncode >= 0 else 128 - child.returncode), out, err

    def tell(self, step: str, text: str, seconds: float, **fields: object) -> None:
        """Print one step's line and time."""
        self.output.line(f"{seconds:6.1f} s  {step}: {text}")
        self.output.event("step", step=step, seconds=round(seconds, 3), **fields)
        sys.stdout.flush()  # in a pipe, too, a step's line comes when the step is done

    def _say(self, text: str) -> None:
        if not self.output.quiet:
            self.output.line(text)
            sys.stdout.flush()


def _failure(shown: str, events: list[dict[str, Any]], err: str, code: int) -> StepFailed:
    """Return why a command failed: the message of its result, or else its last word."""
    last = events[-1] if events else {}
    words = err.strip().splitlines() or [f"it ended with exit code {code}"]
    message = last.get("message") or words[-1].removeprefix("datasync: ")
    return StepFailed(f"{shown}: {message}", last.get("error", "DatasyncError"), code)


def _own_settings(folder: Path) -> dict[str, str]:
    """Return the variables that keep everything inside *folder*; they win over every configuration file."""
    home = folder / "home"
    places = {f"XDG_{kind}_HOME": home / kind.lower() for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    places |= {
        "HOME": home,
        "DATASYNC_REPOSITORY": folder / "repository",
        "DATASYNC_IDENTITY": home / "config/datasync/identity",
        "DATASYNC_CACHE": folder / "cache",
    }
    return {key: str(value) for key, value in places.items()} | {"DATASYNC_PUSH_CHUNKER": "cdc"}
