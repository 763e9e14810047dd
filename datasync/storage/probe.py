"""Finds out what a store does, by doing it: never from a provider's name.

Scratch objects lie under `probe/` with a random name and are removed again, also after a failure.
"""

import os
import threading

from datasync.errors import AlreadyExists, StorageUnavailable
from datasync.storage.protocol import ObjectStore

PROBE_PREFIX = "probe/"
RACERS = 4

_FIRST = b"datasync probe: the first of two"
_SECOND = b"datasync probe: must not replace it"
_LIMIT = 1024  # bytes; a scratch object is far smaller


def honours_put_if_absent(store: ObjectStore) -> bool:
    """Tell whether *store* really creates once: for a second writer, and for one of several at the same time."""
    names = [f"{PROBE_PREFIX}{os.urandom(16).hex()}" for _ in range(2)]
    try:
        return _refuses_second(store, names[0]) and _has_one_winner(store, names[1])
    finally:
        for name in names:
            store.delete(name)


def _refuses_second(store: ObjectStore, name: str) -> bool:
    store.put_if_absent(name, _FIRST)
    try:
        store.put_if_absent(name, _SECOND)
    except AlreadyExists:
        return store.get(name, limit=_LIMIT) == _FIRST
    return False


def _has_one_winner(store: ObjectStore, name: str) -> bool:
    start = threading.Barrier(RACERS)

    def race(number: int) -> bytes | None:
        body = b"datasync probe: racer %d" % number
        start.wait()
        try:
            store.put_if_absent(name, body)
        except (AlreadyExists, StorageUnavailable):  # a server may tell a loser to try again
            return None
        return body

    from concurrent.futures import ThreadPoolExecutor  # a probe is rare, and every session knows this module

    with ThreadPoolExecutor(RACERS) as pool:
        winners = [body for body in pool.map(race, range(RACERS)) if body is not None]
    if not winners:
        raise StorageUnavailable(f"{store.url}: no put of {RACERS} at the same time went through; try again")
    return len(winners) == 1 and store.get(name, limit=_LIMIT) == winners[0]
