"""Buffers for fetched ranges, a fixed number of them, in memory that worker processes can map too.

What lies in them is sealed, as the store gave it. The memory has no name and goes with its last process.
"""

import mmap
import os
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from datasync.model.limits import RANGE_BORDER_BYTES
from datasync.pull.plan import JOB_BYTES

SLOT_BYTES = JOB_BYTES + 2 * RANGE_BORDER_BYTES  # a range is widened to its borders
SHARED = hasattr(os, "memfd_create")  # Linux


class Slot(NamedTuple):
    """One buffer; `start` is where it lies in the memory."""

    start: int
    buffer: memoryview


class Slots:
    """The buffers of one transfer. Thread-safe."""

    def __init__(self, count: int) -> None:
        self.fd = os.memfd_create("datasync-ranges", os.MFD_CLOEXEC) if SHARED else -1
        if SHARED:
            os.truncate(self.fd, count * SLOT_BYTES)
        self._memory = memoryview(mmap.mmap(self.fd, count * SLOT_BYTES))
        self._free: queue.LifoQueue[int] = queue.LifoQueue()  # the last one used is in the processor's cache
        for at in range(count):
            self._free.put(at * SLOT_BYTES)

    @contextmanager
    def take(self) -> Iterator[Slot]:
        """Lend one buffer, waiting until one is free."""
        start = self._free.get()
        try:
            yield Slot(start, self._memory[start : start + SLOT_BYTES])
        finally:
            self._free.put(start)

    def close(self) -> None:
        """Close the memory's file; buffers still lent stay good."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def map_slots(fd: int) -> memoryview:
    """Return, in a worker process, the whole memory that *fd* stands for; it is only read there."""
    return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
