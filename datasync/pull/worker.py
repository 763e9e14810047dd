"""A worker process of a transfer: opens, verifies and places small files, one range after the other (ADR 9).

Started by `datasync.pull.crew` as `python -m datasync.pull.worker SOCKET MEMORY STAGING OBJECTS LOCK`, five inherited
fds. Keys come through the socket, one pack's at a time beside the id key; the process ends when the socket closes. It
holds the view's lock until then, so nobody takes the view over while it still writes.
"""

import gc
import os
import socket
import sys
from contextlib import closing

from datasync.cache.beneath import Tree
from datasync.cache.objects import Objects
from datasync.cache.sums import Sum, pack_extents
from datasync.crypto.aead import PackOpener
from datasync.errors import DatasyncError
from datasync.model.limits import CHUNK_BYTES
from datasync.pull.batch import Batch, Done, Placed, Start, read, write
from datasync.pull.open import open_verified
from datasync.pull.place import Placer
from datasync.pull.slots import map_slots
from datasync.pull.view import ViewDestination


class _Notes:
    """Keeps what was written until it is told to the parent."""

    def __init__(self) -> None:
        self.placed: list[Placed] = []

    def note(self, object_id: bytes, extents: list[Sum]) -> None:
        """Note what was written as *object_id*."""
        self.placed.append((object_id, pack_extents(extents)))


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
        for ref, targets in batch.wanted:
            at = batch.base + ref.offset
            raw = open_verified(opener, batch.head, ref, self._memory, at, self._plain, self._id_key, batch.name)
            for file, offset in targets:
                self._placer.write(file, offset, raw)


def main() -> None:
    """Serve one transfer."""
    talk, memory, staging, objects_fd, _ = (int(text) for text in sys.argv[1:])
    os.umask(0)  # files get exactly the mode that they are made with
    gc.disable()  # nothing here makes cycles, and a batch is many small objects
    with socket.socket(fileno=talk) as connection, connection.makefile("rb") as ask:
        start = read(ask, Start)
        with Tree(staging) as tree, closing(Objects.share(objects_fd, reflinks=start.reflinks)) as objects:
            worker = _Worker(start, map_slots(memory), tree, objects)
            while True:
                try:
                    batch = read(ask, Batch)
                except EOFError:
                    return
                write(connection, worker.work(batch))


if __name__ == "__main__":
    main()
    os._exit(0)  # the parent waits: taking the interpreter apart takes 15 ms
