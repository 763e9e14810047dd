"""How fast work goes and when it will end, by the last 30 seconds. Pure: the caller says what time it is."""

from collections import deque
from collections.abc import Sequence

WINDOW_SECONDS = 30.0
SAMPLE_SECONDS = 0.2  # closer samples say nothing more
FIRST_SECONDS = 2.0  # nothing is foretold from less


class Pace:
    """Counts that only grow, and when they were seen."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Sequence[float]]] = deque()

    def add(self, now: float, *counts: float) -> None:
        """Note *counts*, always as many, at *now* seconds."""
        if self._samples and now - self._samples[-1][0] < SAMPLE_SECONDS:
            return
        self._samples.append((now, counts))
        while now - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()

    def rate(self, which: int) -> float | None:
        """Return how much count number *which* grew per second; None while there is too little to tell."""
        if not self._samples:
            return None
        (first, then), (last, now) = self._samples[0], self._samples[-1]
        return (now[which] - then[which]) / (last - first) if last - first >= FIRST_SECONDS else None

    def left(self, which: int, total: float) -> float | None:
        """Return the seconds until count number *which* reaches *total*; None when nothing tells."""
        rate = self.rate(which)
        return max(0.0, total - self._samples[-1][1][which]) / rate if rate else None


def duration(seconds: float) -> str:
    """Return *seconds* for people, two units at most."""
    whole = round(seconds)
    for unit, size, below in (("d", 86_400, "h"), ("h", 3_600, "min"), ("min", 60, "s")):
        if whole >= size:
            part = whole % size // {"h": 3_600, "min": 60, "s": 1}[below]
            return f"{whole // size} {unit} {part} {below}" if part else f"{whole // size} {unit}"
    return f"{whole} s"


def percent(done: float, total: float) -> int:
    """Return how much is done; 100 only when all is."""
    if done >= total:
        return 100
    return min(99, int(100 * done / total))
