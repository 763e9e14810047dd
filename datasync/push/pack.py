"""Gather chunks into packs: data packs in a pool buffer, metadata packs in a list;
sealed when full, handed to the store.
"""

import mmap
from collections.abc import Callable

from datasync.format import pack as packs
from datasync.model.limits import MIB, PACK_CHUNKS
from datasync.push.buffers import BufferPool
from datasync.push.index import Placed
from datasync.push.store import PackStore
from datasync.repository.compression import Buffer, compress
from datasync.repository.keyring import Keyring
from datasync.repository.packs import Piece, fits, seal_pack

METADATA_PACK_BYTES = 8 * MIB  # small enough to read whole for its pages, and to hold beside the pool


class Packer:
    """Fills one pack at a time. One thread at a time uses it."""

    def __init__(
        self, keyring: Keyring, type_: int, pool: BufferPool, store: PackStore, stored: Callable[[list[Placed]], None]
    ) -> None:
        self._keyring = keyring
        self._keys = keyring.sealing(type_)
        self._type = type_
        self._pool = pool
        self._store = store
        self._stored = stored
        self._header = packs.FIXED_HEADER_BYTES + len(self._keys.sealed_key)
        self._staging: mmap.mmap | None = None
        self._used = 0
        self._pieces: list[Piece] = []
        self._placed: list[Placed] = []

    def room(self) -> memoryview:
        """Return where the next chunks will lie: what is read into it, from its start on, `add` need not copy."""
        if self._staging is None:
            self._staging = self._pool.take()
        return memoryview(self._staging)[self._used :]

    def add(self, chunk: Placed, raw: Buffer, *, compressible: bool = True, at: int = -1) -> None:
        """Add a new chunk; its place is set when the pack is sealed.

        *at* is how many bytes before the buffer's end *raw* begins, when it lies in `room`; chunks that lie there are
        added in order, so none is written over before its turn.
        """
        form, stored = compress(raw) if compressible else (0, raw)
        if not fits(self._header, self._used, len(self._pieces), len(stored)):
            self.seal(full=len(self._pieces) < PACK_CHUNKS)
        room = self.room()
        view = room[: len(stored)]
        if form or at != len(room):
            view[:] = stored
        end = self._used + len(stored)
        self._pieces.append(Piece(chunk.id, form, len(raw), view))
        self._placed.append(chunk)
        self._used = end
        if self._type == packs.METADATA and end >= METADATA_PACK_BYTES:
            self.seal()

    def seal(self, *, full: bool = False) -> None:
        """Seal and send what was gathered, if anything."""
        if not self._pieces:
            return
        pieces, placed = self._pieces, self._placed
        self._pieces, self._placed, self._used = [], [], 0
        target = self._pool.take()
        try:
            sealed = seal_pack(
                self._keys, self._type, pieces, memoryview(target), full=full and self._type == packs.DATA
            )
        except BaseException:
            self._pool.give(target)
            raise
        if self._keys.source == packs.SEALED:  # a sealed key is one pack's
            self._keys = self._keyring.sealing(self._type)
        for chunk, piece, (position, offset) in zip(placed, pieces, sealed.places, strict=True):
            chunk.at(sealed.ref, len(piece.data), piece.form, position, offset)
        fields = (
            [(c.id, c.raw, c.stored, c.form, c.position, c.offset) for c in placed] if self._type == packs.DATA else []
        )
        self._store.send(sealed, target, fields, lambda: self._stored(placed))

    def finish(self) -> None:
        """Seal the rest and give the buffer back."""
        self.seal()
        if self._staging is not None:
            self._pool.give(self._staging)
            self._staging = None
