"""One pool of pack buffers for filling, sealing and sending: peak memory is its size,
whatever the concurrency (design §7).
"""

import mmap
import threading
from contextlib import suppress

from datasync.model.limits import PACK_BYTES

POOL_BUFFERS = 6


def anonymous_memory(size: int) -> mmap.mmap:
    """Return *size* bytes of zeros that cost nothing until they are written, in huge pages where the kernel has them.

    A bytearray writes its zeros first, in pages of 4 KiB.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class BufferPool:
    """Hands out 32 MiB buffers; `take` waits for one, and raises what `fail` was given."""

    def __init__(self, count: int = POOL_BUFFERS) -> None:
        self._free: list[mmap.mmap] = []
        self._left = count
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def take(self) -> mmap.mmap:
        """Return a buffer; its old content is still there."""
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._free:
                    return self._free.pop()
                if self._left:
                    self._left -= 1
                    return anonymous_memory(PACK_BYTES)
                self._changed.wait()

    def give(self, buffer: mmap.mmap) -> None:
        """Take *buffer* back."""
        with self._changed:
            self._free.append(buffer)
            self._changed.notify()

    def fail(self, error: BaseException) -> None:
        """Make everybody who waits, or comes later, raise *error*."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
