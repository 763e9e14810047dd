"""Which chunks need not be stored: those of the record, and those that this push has on its way. Thread-safe."""

import threading
from collections.abc import Sequence

from datasync.model.entries import PackRef, StoredChunk
from datasync.push.record import ChunkRow, Record


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

    def claim(self, wanted: Sequence[tuple[bytes, int]]) -> list[tuple[Placed, bool]]:
        """Return for each (id, raw length) the chunk, and whether the caller has to store it."""
        with self._lock:
            known = self._record.chunks([item[0] for item in wanted if item[0] not in self._pending])
            return [self._claim(chunk_id, raw, known.get(chunk_id)) for chunk_id, raw in wanted]

    def _claim(self, chunk_id: bytes, raw: int, known: ChunkRow | None) -> tuple[Placed, bool]:
        placed = self._pending.get(chunk_id)
        if placed is not None:
            return placed, False
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
