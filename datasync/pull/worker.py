"""The worker processes of a transfer: each opens, verifies and places small files, one range after the other (ADR 9).

Started by `datasync.pull.crew` as `python -m datasync.pull.worker MEMORY STAGING OBJECTS LOCK SOCKET…`, inherited fds,
with a socket for each worker: the first process forks the others. Keys come through the socket, one pack's at a time
beside the id key; a process ends when its socket closes. It holds the view's lock until then, so nobody takes the view
over while it still writes.
"""

import gc
import os
import socket
import sys
from contextlib import closing
from typing import BinaryIO

from datasync.cache.beneath import Tree
from datasync.cache.objects import Objects
from datasync.crypto.aead import PackOpener
from datasync.errors import DatasyncError
from datasync.model.limits import CHUNK_BYTES
from datasync.pull.batch import UP, Batch, Done, Placed, Start, read, write
from datasync.pull.open import Opening
from datasync.pull.place import Placer
from datasync.pull.plan import small_files
from datasync.pull.slots import map_slots
from datasync.pull.view import ViewDestination


class _Notes:
    """Keeps what was written until it is told to the parent."""

    def __init__(self) -> None:
        self.placed: list[Placed] = []

    def note(self, object_id: bytes, extents: bytes) -> None:
        """Note what was written as *object_id*."""
        self.placed.append((object_id, extents))


class _Worker:
    def __init__(self, start: Start, memory: memoryview, tree: Tree, objects: Objects) -> None:
        self._id_key = start.id_key
        self._memory = memory
        self._notes = _Notes()
        self._placer = Placer(ViewDestination(tree, objects), self._notes, exact=True)
        self._plain = memoryview(bytearray(CHUNK_BYTES))

    def work(self, batch: Batch) -> Done:
        """Place the files of *batch*."""
        files, count = self._placer.files, self._placer.bytes
        self._notes.placed = []
        try:
            self._place(batch)
        except DatasyncError as error:
            return Done([], 0, 0, type(error).__name__, str(error))
        return Done(self._notes.placed, self._placer.files - files, self._placer.bytes - count)

    def _place(self, batch: Batch) -> None:
        opener = PackOpener.taken_over(batch.key, batch.name)
        opening = Opening(opener, batch.head, self._id_key, batch.name, self._plain)
        files = small_files(batch.small)
        for small, raw in zip(files, opening.chunks([s.chunk for s in files], self._memory, batch.base), strict=True):
            self._placer.write(small.file, small.at, raw)


def main() -> None:
    """Serve one transfer: this process the first socket, a fork of it each of the others."""
    memory, staging, objects_fd, _, *sockets = (int(text) for text in sys.argv[1:])
    os.umask(0)  # files get exactly the mode that they are made with
    gc.disable()  # nothing here makes cycles, and a batch is many small objects
    own, forked = _fork(sockets)
    with socket.socket(fileno=own) as connection, connection.makefile("rb") as ask:
        connection.sendall(UP)
        _serve(connection, ask, memory, staging, objects_fd)
    for pid in forked:
        os.waitpid(pid, 0)


def _fork(sockets: list[int]) -> tuple[int, list[int]]:
    """Return the socket that is this process's, and in the first process the pids of the others."""
    forked = []
    for own in sockets[1:]:
        try:
            pid = os.fork()  # what is imported is shared; nothing was opened yet, and there is one thread
        except OSError:
            continue  # no more processes here: its socket is closed without a word
        if not pid:
            return _close_others(sockets, own), []
        forked.append(pid)
    return _close_others(sockets, sockets[0]), forked


def _close_others(sockets: list[int], own: int) -> int:
    for other in sockets:
        if other != own:
            os.close(other)
    return own


def _serve(connection: socket.socket, ask: BinaryIO, memory: int, staging: int, objects_fd: int) -> None:
    try:
        start = read(ask, Start)
        with Tree(staging) as tree, closing(Objects.share(objects_fd, reflinks=start.reflinks)) as objects:
            worker = _Worker(start, map_slots(memory), tree, objects)
            while True:
                write(connection, worker.work(read(ask, Batch)))
    except EOFError:
        return


if __name__ == "__main__":
    main()
    os._exit(0)  # whoever waits need not wait for the interpreter to be taken apart, which takes 15 ms
