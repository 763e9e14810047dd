"""A request's body as a file over the caller's memory: sent without a copy, in pieces that a slow line can take.

A socket's time-out holds for one send() call (while sending it is urllib3's connect time-out), so one call with a whole
pack would fail on a slow line; HTTP clients read files in 16 KiB steps, which costs calls. So `Body.read` returns more
than it is asked for, and not too much: a line of 13 KB/s is fast enough for 10 s.
"""

import io

from datasync.model.limits import KIB

SEND_BYTES = 128 * KIB  # one send() call


class Body:
    """A rewindable file over *data* that hands out views."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).cast("B")
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def read(self, size: int = -1) -> memoryview:
        """Return the next view, larger than *size* when there is more."""
        end = len(self._view) if size < 0 else self._at + max(size, SEND_BYTES)
        view = self._view[self._at : end]
        self._at += len(view)
        return view

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = min(max(base + offset, 0), len(self._view))
        return self._at

    def tell(self) -> int:
        return self._at
