"""How fast a store answers and transfers, for `datasync doctor`. Objects are those of the conformance kit's scratch."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from datasync.model.limits import PACK_BYTES
from datasync.storage.conformance import Kit, in_lanes

SAMPLES = 15
BENCH_LANES = 4  # packs at the same time; each is held once for sending and once for reading
BENCH_PACKS = 12


@dataclass(frozen=True, slots=True)
class Latency:
    """Medians in seconds, of a small object."""

    put: float
    get: float
    list: float


@dataclass(frozen=True, slots=True)
class Throughput:
    """Bytes a second, with several packs on the way."""

    put: float
    get: float


def measure_latency(kit: Kit, samples: int = SAMPLES) -> Latency:
    """Time small requests, one after the other."""
    names = [f"latency/{number:04}" for number in range(samples)]
    put = [_seconds(partial(kit.put, name, b"x")) for name in names]
    get = [_seconds(partial(kit.other.get, name, limit=1)) for name in names]
    listed = [_seconds(partial(kit.names, "latency/", limit=1)) for _ in names]
    return Latency(median(put), median(get), median(listed))


def measure_throughput(kit: Kit, packs: int = BENCH_PACKS, size: int = PACK_BYTES) -> Throughput:
    """Time packs of full size, several at the same time."""
    body = os.urandom(size)
    names = [f"bench/{number:04}" for number in range(packs)]
    put = _seconds(partial(_all, partial(_put, kit, body), names))
    get = _seconds(partial(_all, partial(_get, kit, size), names))
    return Throughput(packs * size / put, packs * size / get)


def _put(kit: Kit, body: bytes, name: str) -> None:
    kit.put(name, body)


def _get(kit: Kit, size: int, name: str) -> None:
    kit.other.get(name, limit=size)


def _all(call: Callable[[str], object], names: list[str]) -> None:
    for _ in in_lanes(call, names, BENCH_LANES):
        pass


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return max(time.perf_counter() - began, 1e-9)
