"""Cut points of one extent, the same however it is read (docs/format.md, section 9, pinned by its vectors).

A caller reads an extent through a window: it hands over all that is not yet cut, takes the lengths of the chunks that
are certain, moves the rest to the front, reads on, and says `final` when the extent ends with the window. Which
library cuts stays in here. A `Cutter` keeps no state between calls, so one serves any number of extents; one thread
at a time uses it, each thread has its own.
"""

from abc import ABC, abstractmethod
from typing import Final

_KIB = 1024
CDC_MINIMUM = 256 * _KIB
CDC_AVERAGE = 1024 * _KIB  # where the mask becomes looser, not the mean length
CDC_MAXIMUM = 4096 * _KIB
FIXED_LENGTH = 1024 * _KIB

_NORMALISATION: Final = 1
_SEED_LIMIT = 1 << 63


class Cutter(ABC):
    """Cuts windows; a window of `maximum` bytes or more always yields a chunk."""

    maximum: int
    """No chunk is longer, in bytes."""

    @abstractmethod
    def cuts(self, window: bytes | bytearray | memoryview, *, final: bool) -> list[int]:
        """Return the lengths, in order, of the chunks at the start of *window* that no further byte could change.

        With *final* they cover the whole window; else less than `maximum` bytes are left for the next call. An empty
        window has no chunk.
        """


class _Fixed(Cutter):
    maximum = FIXED_LENGTH

    def cuts(self, window: bytes | bytearray | memoryview, *, final: bool) -> list[int]:
        full, rest = divmod(len(window), FIXED_LENGTH)
        return [FIXED_LENGTH] * full + ([rest] if final and rest else [])


class _ContentDefined(Cutter):
    maximum = CDC_MAXIMUM

    def __init__(self, seed: int) -> None:
        from pyfastcdc import FastCDC  # here: importing it takes 50 ms, and not every command cuts

        self._engine = FastCDC(
            CDC_AVERAGE, min_size=CDC_MINIMUM, max_size=CDC_MAXIMUM, normalized_chunking=_NORMALISATION, seed=seed
        )

    def cuts(self, window: bytes | bytearray | memoryview, *, final: bool) -> list[int]:
        lengths = []
        left = len(window)
        enough = 1 if final else CDC_MAXIMUM  # a cut depends on the next CDC_MAXIMUM bytes at most
        chunks = self._engine.cut_buf(window)
        while left >= enough:
            length = next(chunks).length
            lengths.append(length)
            left -= length
        return lengths


def cdc(seed: int) -> Cutter:
    """Return a content-defined cutter for the keyed *seed* (1 to 2^63 - 1, else `ValueError`)."""
    if not 0 < seed < _SEED_LIMIT:
        raise ValueError("chunker seed: expected 1 to 2^63 - 1")  # the value is a secret
    return _ContentDefined(seed)


def fixed() -> Cutter:
    """Return a cutter whose lengths tell nothing about the content."""
    return _Fixed()
