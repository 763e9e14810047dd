"""The worker processes of a transfer: small files cost many short system calls, and threads of one interpreter wait for
each other at every one of them (ADR 9).

A worker gets a clean environment, the fds that it needs, and a pack's key with each batch; it dies with this process.
Where there is no shared memory, no interpreter known, or too little to do, `size_for` says 0 and threads do the work.
Raises what the worker met, `DatasyncError` for one that died, and `OSError` where no process can be started.
"""

import contextlib
import os
import queue
import socket
import subprocess
import sys

from datasync import errors
from datasync.errors import DatasyncError
from datasync.pull.batch import UP, Batch, Done, Start, read, write
from datasync.pull.slots import SHARED

WORKERS = 4  # at most: more than ranges in flight have nothing to do
FILES_TO_PAY = 1_000  # small files; starting workers costs as much as they save with these
_LEFT_BYTES = 1 << 16  # read at once of an answer that nobody waits for
_KEPT = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPLATLIBDIR", "HOME", "PATH")


def size_for(small_files: int) -> int:
    """Return how many workers *small_files* are worth here; 0 for none."""
    if small_files < FILES_TO_PAY or not SHARED or not sys.executable:
        return 0
    return min(WORKERS, len(os.sched_getaffinity(0)))


class _Member:
    """Our end of one worker's socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")
        self._is_up = False

    def is_up(self) -> bool:
        """Wait for the worker; tell whether it could be made."""
        if not self._is_up:
            with contextlib.suppress(OSError):
                self._is_up = self._answers.read(len(UP)) == UP
        return self._is_up

    def start(self, start: Start) -> None:
        """Say what all batches have in common."""
        write(self._connection, start)

    def place(self, batch: Batch) -> Done:
        """Have *batch* placed."""
        try:
            write(self._connection, batch)
            return read(self._answers, Done)
        except (EOFError, OSError):
            raise DatasyncError(
                f"{batch.name}: a worker process died over it (out of memory, or killed): run the same line again"
            ) from None

    def dismiss(self) -> None:
        """Ask nothing more of the worker."""
        with contextlib.suppress(OSError):  # it is dead
            self._connection.shutdown(socket.SHUT_WR)

    def wait(self) -> None:
        """Wait until the worker has ended."""
        with contextlib.suppress(OSError):
            while self._answers.read(_LEFT_BYTES):
                pass
        self._answers.close()
        self._connection.close()


class Crew:
    """The workers of one transfer. Thread-safe."""

    def __init__(self, size: int, fds: tuple[int, int, int, int], start: Start) -> None:
        """Start *size* workers with the *fds* of shared memory, staging, objects and lock."""
        self._members: list[_Member] = []
        self._idle: queue.LifoQueue[_Member] = queue.LifoQueue()
        self._first: subprocess.Popen[bytes] | None = None
        try:
            with contextlib.ExitStack() as theirs:
                given = [*fds]
                for _ in range(size):
                    ours, its = socket.socketpair()
                    self._members.append(_Member(ours))
                    given.append(theirs.enter_context(its).fileno())
                self._first = subprocess.Popen(
                    [sys.executable, "-P", "-m", "datasync.pull.worker", *map(str, given)],
                    pass_fds=given,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # ours is a command's result
                    env=_environment(),
                    process_group=0,  # Ctrl-C is for this process, which then ends its workers
                )
            for member in self._members:
                member.start(start)
                self._idle.put(member)
        except BaseException:
            self.close()
            raise

    def place(self, batch: Batch) -> Done:
        """Have *batch* placed by a worker, waiting for an idle one; raise what it met."""
        member = self._idle.get()
        while not member.is_up() and member is not self._members[0]:  # could not be forked
            member = self._idle.get()
        try:
            done = member.place(batch)
        finally:
            self._idle.put(member)  # a dead one, too: whoever comes next learns it as well
        if done.error:
            raise getattr(errors, done.error)(done.message)
        return done

    def close(self) -> None:
        """End all workers."""
        for member in self._members:
            member.dismiss()
        for member in self._members:
            member.wait()
        if self._first is not None:
            self._first.wait()
        self._members.clear()


def _environment() -> dict[str, str]:
    """Return an environment without credentials, in which our own modules are found."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
