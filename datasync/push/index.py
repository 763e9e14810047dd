"""Which chunks need not be stored: those of the record, and those that this push has on its way. Thread-safe."""

import threading

from datasync.model.entries import PackRef, StoredChunk
from datasync.push.record import Record


class Placed:
    """A chunk whose place is known once its pack is sealed; `pack` is None before."""

    __slots__ = ("form", "id", "offset", "pack", "position", "raw", "stored")

    def __init__(self, chunk_id: bytes, raw: int) -> None:
        self.id = chunk_id
        self.raw = raw
        self.pack: PackRef | None = None
        self.stored = self.form = self.position = self.offset = 0

    def at(self, pack: PackRef, stored: int, form: int, position: int, offset: int) -> None:
        """Set the place; `pack` last, since readers look at it first."""
        self.stored, self.form, self.position, self.offset = stored, form, position, offset
        self.pack = pack

    def settled(self) -> StoredChunk:
        """Return the chunk with its place."""
        if self.pack is None:
            raise AssertionError("the pack of this chunk is not sealed yet")
        return StoredChunk(self.id, self.raw, self.stored, self.form, self.pack, self.position, self.offset)


class ChunkIndex:
    """Claims each new chunk once."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._pending: dict[bytes, Placed] = {}  # bounded: the chunks of packs that are not stored yet
        self._lock = threading.Lock()

    def claim(self, chunk_id: bytes, raw: int) -> tuple[Placed, bool]:
        """Return the chunk, and whether the caller has to store it."""
        with self._lock:
            pending = self._pending.get(chunk_id)
            if pending is not None:
                return pending, False
            known = self._record.chunk(chunk_id)
            placed = Placed(chunk_id, raw)
            if known is None:
                self._pending[chunk_id] = placed
                return placed, True
        placed.at(known.pack, known.stored, known.form, known.position, known.offset)
        return placed, False

    def stored(self, chunks: list[Placed]) -> None:
        """The record has these now."""
        with self._lock:
            for chunk in chunks:
                self._pending.pop(chunk.id, None)
