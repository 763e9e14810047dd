"""Leases: a view in use is never evicted. One small file per lease, held by an flock that the kernel releases at death.

`<folder>/.lease-<seq>-<id>-<16 hex>`: JSON with pid, start time, boot id and host of its owner, for people and for
file systems that several machines share. A lease is alive while its flock is held. Where it is not held and another
boot or host wrote it (NFS, a cloned container image), its heartbeat decides: the file's mtime, renewed by its owner
every `BEAT_SECONDS`; silent for `SILENT_SECONDS` it is dead. A dead lease is removed by whoever looks. Leases are taken
under the view's lock, so an eviction and a new lease never cross.
"""

import contextlib
import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from datasync.cache.faults import fault
from datasync.cache.kernel import current_boot_id, names_in
from datasync.cache.layout import Cache, View
from datasync.cache.locks import ViewLock
from datasync.errors import Locked, NotFound

BEAT_SECONDS = 60
SILENT_SECONDS = 600
LEASE_BYTES = 4096
_PREFIX = b".lease-"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease: a process is itself by pid, start time (clock ticks since boot) and boot."""

    pid: int
    start: int
    boot: str
    host: str

    @classmethod
    def this(cls) -> Self:
        """Return the running process."""
        return cls(os.getpid(), _start_time(), current_boot_id(), socket.gethostname())


def _start_time() -> int:
    try:
        return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


class Lease:
    """A held lease; `beat` now and then, `release` at the end. It ends with the process in any case."""

    def __init__(self, cache: Cache, view: View, name: bytes, fd: int) -> None:
        """Use `take_lease`."""
        self._cache = cache
        self._name = name
        self._fd = fd
        self.view = view

    def beat(self) -> None:
        """Show that the owner is alive, to machines that can not see the flock."""
        os.utime(self._fd)

    def release(self) -> None:
        """End the lease; the view counts as used until now. It has ended, too, when its file can not be removed."""
        if self._fd >= 0:
            try:
                note_use(self._cache, self.view)
                self._cache.tree.remove(self._name)
            finally:
                os.close(self._fd)
                self._fd = -1


def take_lease(cache: Cache, view: View) -> Lease:
    """Lease a ready view; `NotFound` when it was evicted meanwhile."""
    with ViewLock(cache, view):
        if cache.tree.lstat(view.ready) is None:
            raise NotFound(f"view {view.path}: it was evicted: warm it again")
        name = view.folder + b"/" + _PREFIX + view.stem + b"-" + _random_name()
        fd = cache.tree.create(name, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # whoever just looks at it holds it for a moment
            os.write(fd, json.dumps(asdict(Owner.this())).encode())
        except OSError as error:
            cache.tree.remove(name)
            os.close(fd)
            raise fault(error, f"lease of view {view.path}") from error
        note_use(cache, view)
        return Lease(cache, view, name, fd)


def _random_name() -> bytes:
    """Return 16 random hex digits."""
    return os.urandom(8).hex().encode()


def living_leases(cache: Cache, view: View, *, remove_dead: bool = True) -> list[Owner]:
    """Return who holds the view; leases of the dead are removed, unless nothing is to be changed."""
    found = []
    with cache.tree.subtree(view.folder) as folder:
        names = [os.fsencode(name) for name in names_in(folder.root_fd)]
    for name in names:
        if name.startswith(_PREFIX + view.stem + b"-"):
            owner = _look(cache, view.folder + b"/" + name, remove_dead=remove_dead)
            found += [owner] if owner is not None else []
    return found


def _look(cache: Cache, name: bytes, *, remove_dead: bool) -> Owner | None:
    try:
        fd = cache.tree.open_file(name, os.O_RDWR)
    except NotFound:
        return None
    try:
        owner = _read(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return owner
        foreign = owner.boot != current_boot_id() or owner.host != socket.gethostname()
        if foreign and time.time() - os.fstat(fd).st_mtime < SILENT_SECONDS:
            return owner
        if remove_dead:
            cache.tree.remove(name)
        return None
    finally:
        os.close(fd)


def _read(fd: int) -> Owner:
    try:
        fields = json.loads(os.pread(fd, LEASE_BYTES, 0))
        return Owner(int(fields["pid"]), int(fields["start"]), str(fields["boot"]), str(fields["host"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Owner(0, 0, "", "")  # its owner died between creating and writing it, or it is no lease at all


def note_use(cache: Cache, view: View) -> None:
    """Make the view the most recently used one: the mtime of its receipt says when."""
    if cache.tree.lstat(view.ready) is not None:
        with contextlib.suppress(NotFound):  # evicted meanwhile
            cache.tree.set_mtime(view.ready, time.time_ns())


def require_unleased(cache: Cache, view: View) -> None:
    """Raise `Locked` when somebody uses the view."""
    owners = living_leases(cache, view)
    if owners:
        held = ", ".join(f"pid {owner.pid} on {owner.host}" for owner in owners)
        raise Locked(f"view {view.path}: it is leased by {held}: wait for the job, or end it")
