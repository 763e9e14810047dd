"""Fetch one range of a pack into the thread's own buffer, and open its chunks one by one, each verified by its id."""

import os
import threading
from collections.abc import Iterator

from datasync.crypto.aead import PackOpener
from datasync.crypto.hashing import keyed_hash
from datasync.errors import IntegrityError, NotFound
from datasync.format import pack as packs
from datasync.format.names import pack_name
from datasync.model.limits import CHUNK_BYTES, PACK_BYTES
from datasync.repository.chunks import Range, missing
from datasync.repository.keyring import Keyring
from datasync.repository.packs import Buffer, open_chunk, opener_of
from datasync.storage.protocol import ObjectStore


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.sealed = memoryview(bytearray(PACK_BYTES))
        self.plain = memoryview(bytearray(CHUNK_BYTES))


class Fetcher:
    """Fetches and opens; each thread that calls it has a buffer of one pack."""

    def __init__(self, store: ObjectStore, keyring: Keyring, id_key: bytes) -> None:
        self._store = store
        self._keyring = keyring
        self._id_key = id_key
        self._buffers = _Buffers()
        self._lock = threading.Lock()
        self._turn = threading.Semaphore(max(2, os.cpu_count() or 2))
        self.fetched_bytes = 0

    def chunks(self, part: Range) -> Iterator[tuple[int, Buffer]]:
        """Yield (index, raw bytes) of each chunk wanted from *part*; the bytes are good until the next one."""
        name = pack_name(self._keyring.dataset, part.pack.id)
        opener, head = opener_of(self._keyring, part.pack, packs.DATA)
        buffer = self._buffers.sealed[: part.end - part.start]
        try:
            self._store.get_range(name, part.start, buffer)
        except NotFound:
            raise missing(name) from None
        with self._lock:
            self.fetched_bytes += len(buffer)
        with self._turn:  # more writers than cores only contend for directories and the interpreter
            yield from self._open(part, buffer, opener, head, name)

    def _open(
        self, part: Range, buffer: memoryview, opener: PackOpener, head: bytes, name: str
    ) -> Iterator[tuple[int, Buffer]]:
        for index, ref in part.wanted:
            at = ref.offset - part.start
            sealed = buffer[at : at + ref.stored + packs.TAG_BYTES]
            raw = open_chunk(opener, head, ref, ref.position, sealed, self._buffers.plain, name)
            if keyed_hash(self._id_key, raw) != ref.id:
                raise IntegrityError(f"{name}: the chunk at position {ref.position} does not hash to its id")
            yield index, raw
