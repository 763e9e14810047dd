"""Fetch one range of a pack into a buffer, and open its chunks one by one, each verified by its id."""

import os
import threading
from collections.abc import Iterable, Iterator

from datasync.crypto.aead import PackOpener
from datasync.errors import NotFound
from datasync.format import pack as packs
from datasync.format.names import pack_name
from datasync.model.limits import CHUNK_BYTES
from datasync.pull.open import Buffer, open_verified
from datasync.repository.chunks import missing
from datasync.repository.keyring import Keyring
from datasync.repository.packs import opener_of
from datasync.repository.ranges import Range, Ref
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

    def name(self, part: Range) -> str:
        """Return the name of the object that *part* lies in."""
        return pack_name(self._keyring.dataset, part.pack.id)

    def opener(self, part: Range) -> tuple[PackOpener, bytes]:
        """Return what opens chunks of *part*'s pack, and the pack's header."""
        return opener_of(self._keyring, part.pack, packs.DATA)

    def fetch(self, part: Range, buffer: memoryview) -> memoryview:
        """Read *part* into *buffer* and return that much of it."""
        sealed = buffer[: part.end - part.start]
        try:
            self._store.get_range(self.name(part), part.start, sealed)
        except NotFound:
            raise missing(self.name(part)) from None
        with self._lock:
            self.fetched_bytes += len(sealed)
        return sealed

    def chunks(
        self, part: Range, sealed: memoryview, wanted: Iterable[tuple[int, Ref]]
    ) -> Iterator[tuple[int, Buffer]]:
        """Yield (index, raw bytes) of each chunk *wanted* of *part*; the bytes are good until the next one."""
        opener, head = self.opener(part)
        name, plain = self.name(part), self._scratch.plain
        with self._turn:  # more writers than cores only contend for directories and the interpreter
            for index, ref in wanted:
                at = ref.offset - part.start
                yield index, open_verified(opener, head, ref, sealed, at, plain, self.id_key, name)
