"""One pool of pack buffers for filling, sealing and sending: peak memory is its size,
whatever the concurrency (design §7).
"""

import threading

from datasync.model.limits import PACK_BYTES

POOL_BUFFERS = 6


class BufferPool:
    """Hands out 32 MiB buffers; `take` waits for one, and raises what `fail` was given."""

    def __init__(self, count: int = POOL_BUFFERS) -> None:
        self._free: list[bytearray] = []
        self._left = count
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def take(self) -> bytearray:
        """Return a buffer; its old content is still there."""
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._free:
                    return self._free.pop()
                if self._left:
                    self._left -= 1
                    return bytearray(PACK_BYTES)
                self._changed.wait()

    def give(self, buffer: bytearray) -> None:
        """Take *buffer* back."""
        with self._changed:
            self._free.append(buffer)
            self._changed.notify()

    def fail(self, error: BaseException) -> None:
        """Make everybody who waits, or comes later, raise *error*."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
