"""Fetch one range of a pack into a buffer, and open its chunks one by one, each verified by its id."""

import os
import threading
from collections.abc import Iterable, Iterator

from datasync.crypto.aead import PackOpener
from datasync.errors import NotFound
from datasync.format import pack as packs
from datasync.format.names import pack_name
from datasync.model.entries import ChunkRef
from datasync.model.limits import CHUNK_BYTES
from datasync.pull.open import Buffer, Opening
from datasync.pull.plan import Job
from datasync.repository.chunks import missing
from datasync.repository.keyring import Keyring
from datasync.repository.packs import opener_of
from datasync.storage.protocol import ObjectStore


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.plain = memoryview(bytearray(CHUNK_BYTES))


class Fetcher:
    """Fetches into buffers, and opens what is in them."""

    def __init__(self, store: ObjectStore, keyring: Keyring, id_key: bytes) -> None:
        self._store = store
        self._keyring = keyring
        self.id_key = id_key
        self._scratch = _Scratch()
        self._lock = threading.Lock()
        self._turn = threading.Semaphore(max(2, os.cpu_count() or 2))
        self.fetched_bytes = 0

    def name(self, job: Job) -> str:
        """Return the name of the object that *job* reads."""
        return pack_name(self._keyring.dataset, job.pack.id)

    def opener(self, job: Job) -> tuple[PackOpener, bytes]:
        """Return what opens chunks of *job*'s pack, and the pack's header."""
        return opener_of(self._keyring, job.pack, packs.DATA)

    def fetch(self, job: Job, buffer: memoryview) -> memoryview:
        """Read the range of *job* into *buffer* and return that much of it."""
        sealed = buffer[: job.end - job.start]
        try:
            self._store.get_range(self.name(job), job.start, sealed)
        except NotFound:
            raise missing(self.name(job)) from None
        with self._lock:
            self.fetched_bytes += len(sealed)
        return sealed

    def chunks(self, job: Job, sealed: memoryview, refs: Iterable[ChunkRef]) -> Iterator[Buffer]:
        """Yield the raw bytes of each of *refs*, good until the next ones."""
        opening = Opening(*self.opener(job), self.id_key, self.name(job), self._scratch.plain)
        with self._turn:  # more writers than cores only contend for directories and the interpreter
            yield from opening.chunks(refs, sealed, -job.start)
