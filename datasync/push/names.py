"""The names of one directory in byte order, in bounded memory: a directory of ten million files is sorted on disk.

A directory whose own size tells that it is small is listed at once. File systems that always tell the same size (some
of FUSE) are believed: their listings lie in memory. Raises `OSError` of the directory, and of the temporary file.
"""

import heapq
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice

LARGE_BYTES = 4 * 1024 * 1024  # of the directory itself: some 100,000 names on ext4 and XFS, 200,000 on tmpfs
RUN_NAMES = 131_072  # sorted in memory at a time
READ_BYTES = 64 * 1024  # of each sorted run at a time

_ENCODING = sys.getfilesystemencoding()


class NamesOnDisk:
    """Sorted runs of names in a temporary file that has no name; it goes with the object."""

    def __init__(self, names: Iterator[bytes], run_names: int = RUN_NAMES) -> None:
        self.longest = 0
        self.count = 0
        self._file = tempfile.TemporaryFile(prefix="datasync-")  # noqa: SIM115 (it goes with this object)
        self._runs: list[tuple[int, int]] = []
        while run := sorted(islice(names, run_names)):
            self.count += len(run)
            self.longest = max(self.longest, *map(len, run))
            start = self._file.tell()
            self._file.write(b"\0".join(run) + b"\0")  # no name holds a NUL
            self._runs.append((start, self._file.tell()))
        self._file.flush()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        return heapq.merge(*(self._run(start, end) for start, end in self._runs))

    def _run(self, start: int, end: int) -> Iterator[bytes]:
        rest = b""
        while start < end:
            block = os.pread(self._file.fileno(), min(READ_BYTES, end - start), start)
            start += len(block)
            *whole, rest = (rest + block).split(b"\0")
            yield from whole


def names_of(fd: int, own_bytes: int) -> list[bytes] | NamesOnDisk:
    """Return the names in the directory *fd*, whose own size is *own_bytes*, in byte order."""
    if own_bytes >= LARGE_BYTES:
        with closing(os.scandir(fd)) as found:
            return NamesOnDisk(os.fsencode(entry.name) for entry in found)
    names = [name.encode(_ENCODING, "surrogateescape") for name in os.listdir(fd)]
    names.sort()
    return names
