"""One user's machine for a test: its own HOME, identity and state, and the real command line, in this process or in a
child.

In this process a command costs milliseconds and its store may be replaced, which is how the attacks reach every write
and every byte.
"""

import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from botocore.loaders import create_loader

from datasync.cli.main import _run
from datasync.service import session
from datasync.storage.protocol import ObjectStore
from datasync.storage.retry import RetryingStore, Surroundings

REPOSITORY_ROOT = Path(__file__).parents[2]
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONHASHSEED")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line of --json."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        assert found["type"] == "result", self
        return found

    @property
    def message(self) -> str:
        """The one line on stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self
        return lines[0]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose user works with one repository."""

    home: Path
    repository: str
    extra: Mapping[str, str]

    @classmethod
    def make(cls, home: Path, repository: str, extra: Mapping[str, str] | None = None) -> "Machine":
        home.mkdir(parents=True, exist_ok=True)
        return cls(home, repository, dict(extra or {}))

    @property
    def identity(self) -> Path:
        return self.home / ".config/datasync/identity"

    @property
    def state(self) -> Path:
        return self.home / ".local/state/datasync"

    @property
    def evidence(self) -> Path:
        return self.home / ".local/share/datasync/datasets"

    def environment(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
        return kept | {"HOME": str(self.home), "DATASYNC_REPOSITORY": self.repository} | dict(self.extra)

    def sibling(self, home: Path, **extra: str) -> "Machine":
        """Return another machine of the same user: the identity, and no memory."""
        other = Machine.make(home, self.repository, {**self.extra, **extra})
        other.identity.parent.mkdir(parents=True)
        shutil.copy(self.identity, other.identity)
        return other

    def clone(self, home: Path) -> "Machine":
        """Return a copy of this machine, memory included."""
        shutil.copytree(self.home, home, symlinks=True)
        return Machine.make(home, self.repository, self.extra)

    def run(self, *arguments: str | Path, store: ObjectStore | None = None) -> Ran:
        """Run a command in this process, over *store* instead of the repository's; no pause lasts."""
        out, err = io.StringIO(), io.StringIO()
        with ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, self.environment(), clear=True))
            stack.enter_context(mock.patch.object(session, "RetryingStore", _impatient))
            stack.enter_context(mock.patch("botocore.session.create_loader", _loader))
            if store is not None:
                stack.enter_context(mock.patch.object(session, "open_store", return_value=store))
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(err))
            code = _run([str(item) for item in arguments])
        return Ran(code, out.getvalue(), err.getvalue())

    def must(self, *arguments: str | Path, store: ObjectStore | None = None) -> Ran:
        """Run a command that has to succeed."""
        ran = self.run(*arguments, store=store)
        assert ran.code == 0, ran
        return ran

    def start(self, *arguments: str | Path, **options: Any) -> "subprocess.Popen[str]":
        """Start a command as a child process."""
        command = [sys.executable, "-m", "datasync.cli.main", *map(str, arguments)]
        environment = self.environment() | {"PYTHONPATH": str(REPOSITORY_ROOT)}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=self.home, **options)

    def spawn(self, *arguments: str | Path, **options: Any) -> Ran:
        """Run a command as a child process to its end."""
        return finish(self.start(*arguments, **options))

    def kill(self, seconds: float, *arguments: str | Path) -> bool:
        """Run a command and kill it after *seconds*; return whether that ended it."""
        child = self.start(*arguments)
        try:
            child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
        return child.returncode == -signal.SIGKILL


def finish(child: "subprocess.Popen[str]") -> Ran:
    """Wait for a child and return how it ended."""
    out, err = child.communicate(timeout=200)
    return Ran(child.returncode, out, err)


_loader = functools.cache(create_loader)  # the SDK reads its models once, not once for each command


def _impatient(store: ObjectStore) -> RetryingStore:
    return RetryingStore(store, around=Surroundings(sleep=lambda _: None))


def tree(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return what pull restores of the directory *root*: kinds, modes, times, contents."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def contents(root: Path) -> dict[str, Any]:
    """Return names and contents only: what a view promises."""
    return {name: item[2] for name, item in tree(root).items()}
