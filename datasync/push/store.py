"""Store sealed packs on a few threads; a pack enters the journal only after its PUT (docs/format.md, section 13)."""

import mmap
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from datasync.errors import AlreadyExists, DatasyncError, IntegrityError
from datasync.format.names import pack_name
from datasync.push.buffers import BufferPool
from datasync.push.record import Record
from datasync.repository.packs import SealedPack
from datasync.storage.protocol import ObjectStore

TICK_SECONDS = 0.1

ChunkFields = tuple[bytes, int, int, int, int, int]


class PackStore:
    """Sends packs in the background; the first failure stops everything and is raised by `check` and `finish`."""

    def __init__(self, store: ObjectStore, dataset: bytes, record: Record, pool: BufferPool, transfers: int) -> None:
        self._store = store
        self._dataset = dataset
        self._record = record
        self._pool = pool
        self._threads = ThreadPoolExecutor(transfers, thread_name_prefix="store")
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._running: set[Future[None]] = set()
        self.sent_bytes = 0
        self.sent_packs = 0

    def send(self, pack: SealedPack, buffer: mmap.mmap, chunks: list[ChunkFields], done: Callable[[], None]) -> None:
        """Store *pack*, which lies in *buffer*; then enter *chunks* into the journal and call *done*."""
        future = self._threads.submit(self._send, pack, buffer, chunks, done)
        with self._lock:
            self._running.add(future)
        future.add_done_callback(self._ended)

    def _ended(self, future: Future[None]) -> None:
        with self._lock:
            self._running.discard(future)

    def _send(self, pack: SealedPack, buffer: mmap.mmap, chunks: list[ChunkFields], done: Callable[[], None]) -> None:
        try:
            if self._failure is None:
                self._put(pack)
                self._record.add_pack(pack.ref, chunks, stored=int(time.time() * 1000), committed=False)
                done()
                with self._lock:
                    self.sent_bytes += pack.ref.size
                    self.sent_packs += 1
        except BaseException as error:  # noqa: BLE001 (raised again in the main thread by `check`)
            self._failure = self._failure or error
            self._pool.fail(error)
        finally:
            self._pool.give(buffer)

    def _put(self, pack: SealedPack) -> None:
        name = pack_name(self._dataset, pack.ref.id)
        try:
            self._store.put_if_absent(name, pack.data)
        except AlreadyExists:
            if self._store.get(name, limit=pack.ref.size) != pack.data:
                raise IntegrityError(
                    f"{name}: the store holds other bytes under the name of a pack: it was changed or replaced"
                ) from None

    def check(self) -> None:
        """Raise the first failure."""
        if self._failure is not None:
            raise self._failure

    def finish(self, tick: Callable[[], None]) -> None:
        """Wait until everything is stored, calling *tick* meanwhile; raise the first failure."""
        while True:
            with self._lock:
                running = list(self._running)
            if not running:
                break
            wait(running, TICK_SECONDS)
            tick()
        self.check()

    def close(self) -> None:
        """Stop the threads; what was not started is not sent."""
        if self._failure is None:
            self._failure = DatasyncError("the push was stopped")
        self._threads.shutdown(wait=True, cancel_futures=True)
