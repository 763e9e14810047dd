"""Limits on what a client may ask: size, time, rate, number. Named, with units and reasons."""

import time
from collections import OrderedDict
from collections.abc import Callable

BODY_BYTES = 64 * 1024  # the largest true body, a key request, has 3 KiB
HEADER_BYTES = 16 * 1024  # of one header, so a JWT fits; all together at most 32 KiB
HEADER_SECONDS = 10.0  # for a connection's first request to be whole
BODY_SECONDS = 10.0
IDLE_SECONDS = 15.0
CONNECTIONS = 256
BEAT_SECONDS = 10.0  # between empty lines of a stream, so that both ends see that the other one lives
STREAMS = 32  # listeners at a time
COMMANDS = 4  # run for clients at a time, each a process
RELEASES = 4  # keys released at a time: each opens a dataset on the store
RATE = 20.0  # requests a second of one remote address
BURST = 100.0
REFUSALS = 10.0  # wrong tokens a second of one address, after which it waits
REFUSALS_BURST = 50.0
ADDRESSES = 4_096  # remembered; the one heard of longest ago goes first


class Rate:
    """A bucket of tokens for each address."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, address: str) -> float:
        """Return how many requests *address* may make now."""
        now = self._clock()
        level, since = self._buckets.get(address, (self._burst, now))
        return min(self._burst, level + (now - since) * self._rate)

    def take(self, address: str) -> bool:
        """Count one request; False when it is one too many."""
        level = self.left(address)
        allowed = level >= 1
        self._buckets[address] = (level - 1 if allowed else level, self._clock())
        self._buckets.move_to_end(address)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return allowed
