"""Where a file has data and where it has holes, without reading either (docs/format.md, sections 9 and 10).

Asks SEEK_DATA and SEEK_HOLE, so a hole of 1 TiB costs two calls. Moves the fd's offset; readers use pread. A file
system that can not tell has data everywhere. Raises `OSError` when the fd itself fails (a disk error, a lost mount).
"""

import errno
import heapq
import os
from collections.abc import Iterator

from datasync.model.limits import ENTRY_HOLES

Extents = tuple[tuple[int, int], ...]

_CAN_NOT_TELL = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY)


def data_extents(fd: int, size: int) -> tuple[Extents, Extents]:
    """Return (data, holes) of the first *size* bytes, each (offset, length), ascending and not touching one another.

    At most `ENTRY_HOLES` holes: the longest, of equal ones the first; the others count as data.
    """
    try:
        holes = _longest(_holes(fd, size))
    except OSError as error:
        if error.errno not in _CAN_NOT_TELL:
            raise
        holes = ()
    return _between(holes, size), holes


def _holes(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of each hole in order; touching ones, which a concurrent change can make, are joined."""
    position = hole = 0  # an open hole runs from `hole` to `position`
    while position < size:
        data = min(_seek(fd, position, os.SEEK_DATA, size), size)
        end = min(_seek(fd, data, os.SEEK_HOLE, size), size) if data < size else size
        if end > data or data == size:
            if data > hole:
                yield hole, data - hole
            hole = end
        position = max(end, position + 1)


def _seek(fd: int, position: int, whence: int, end: int) -> int:
    try:
        return os.lseek(fd, position, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing of the kind from here to the end
            return end
        raise


def _longest(holes: Iterator[tuple[int, int]]) -> Extents:
    heap: list[tuple[int, int]] = []  # (length, -offset): the first to go is the shortest, of equals the last
    for offset, length in holes:
        if len(heap) < ENTRY_HOLES:
            heapq.heappush(heap, (length, -offset))
        else:
            heapq.heappushpop(heap, (length, -offset))
    return tuple(sorted((-offset, length) for length, offset in heap))


def _between(holes: Extents, size: int) -> Extents:
    data = []
    position = 0
    for offset, length in (*holes, (size, 0)):
        if offset > position:
            data.append((position, offset - position))
        position = offset + length
    return tuple(data)
