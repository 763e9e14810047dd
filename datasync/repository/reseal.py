"""Re-seal everything that retained snapshots need in the present epoch: what `key rotate --full` does after a rotation.

Chunks of older epochs are read, verified by id and sealed into new packs, as they were stored; ids do not change, so
snapshots stay as signed. Each new pack is noted locally once it is stored, and told to all by relocation objects; a run
that was interrupted asks for nothing again that it had sealed. At the end the old packs are condemned: no writer relies
on them, and prune deletes them after the grace time. Memory is a few packs; what is to do lies in a temporary database.
"""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from datasync.crypto.hashing import keyed_hash
from datasync.errors import IntegrityError, NotFound
from datasync.format import pack as packs
from datasync.format.names import pack_name
from datasync.format.page import Page
from datasync.model.entries import ChunkRef, ListRef, PackRef, StoredChunk
from datasync.model.limits import MIB, PACK_BYTES, PACK_CHUNKS
from datasync.repository.chunks import missing
from datasync.repository.compression import decompress
from datasync.repository.condemned import condemn, read_list
from datasync.repository.manifest import ManifestReader
from datasync.repository.packs import Piece, fits, opener_of, seal_pack
from datasync.repository.ranges import Range, plan_ranges
from datasync.repository.relocate import drop_unreliable, publish
from datasync.repository.relocations import Moved
from datasync.repository.snapshots import History

PUBLISH_PACKS = 8  # new packs from one relocation object to the next
METADATA_PACK_BYTES = 8 * MIB

_TABLES = """
PRAGMA journal_mode = OFF;
CREATE TABLE packs (n INTEGER PRIMARY KEY, id BLOB UNIQUE, ref BLOB, type INTEGER);
CREATE TABLE chunks (id BLOB PRIMARY KEY, pack INTEGER, raw INTEGER, stored INTEGER, form INTEGER, position INTEGER,
                     offset INTEGER, keyed BLOB) WITHOUT ROWID;
CREATE INDEX by_pack ON chunks (pack, offset);
"""
_encode = msgspec.msgpack.encode
_pack_ref = msgspec.msgpack.Decoder(PackRef)


@dataclass(slots=True)
class Resealed:
    """How far the work is: packs and bytes still to read at the start, read so far, packs written, packs condemned."""

    packs: int = 0
    bytes: int = 0
    read_packs: int = 0
    read_bytes: int = 0
    written_packs: int = 0
    condemned: int = 0


def reseal(history: History, report: Callable[[Resealed], None]) -> Resealed:
    """Re-seal what is left of older epochs; return what was done."""
    done = Resealed()
    drop_unreliable(history)
    work = _Work(history)
    try:
        work.collect()
        done.packs, done.bytes = work.left()
        old = work.old_packs()
        for type_ in (packs.DATA, packs.METADATA):
            Sealer(history, type_, done, report).run(work)
        publish(history)
    finally:
        work.close()
    done.condemned = _condemn(history, old)
    report(done)
    return done


def is_unfinished(history: History) -> bool:
    """Tell whether something that retained snapshots need is sealed in an older epoch alone, or whether packs of it
    are there that nobody condemned.
    """
    work = _Work(history)
    try:
        work.collect()
        return work.left()[0] > 0 or bool(_standing(history, work.old_packs()))
    finally:
        work.close()


def _standing(history: History, old: list[bytes]) -> list[bytes]:
    """Return those *old* packs that the store has and that are not condemned: not those that were deleted since."""
    listed = {pack for pack, _ in read_list(history)[0].packs}
    wanted = {pack_name(history.dataset, pack): pack for pack in old if pack not in listed}
    if not wanted:
        return []
    return [wanted[item.name] for item in history.store.list(history.prefix("packs")) if item.name in wanted]


class _Work:
    """Which chunks of older epochs retained snapshots need and no relocation covers, pack by pack."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._db = sqlite3.connect("")
        self._db.executescript(_TABLES)
        self._old: dict[bytes, None] = {}

    def close(self) -> None:
        self._db.close()

    def collect(self) -> None:
        """Enter every chunk that has to be read, and every pack of an older epoch that is met."""
        now, seen = self._history.keyring.epoch, set[bytes]()
        for item in self._history.line():
            reader = ManifestReader(self._history, self._history.read_object(item), untold=True)
            self._old.update((pack.id, None) for _, pack in reader.snapshot.pages() if pack.epoch < now)
            for ref, pack, page, _ in reader.pages(skip=frozenset(seen)):
                seen.add(ref.id)
                self._old.update((old.id, None) for old in page.packs if old.epoch < now)
                here = StoredChunk(ref.id, ref.raw, ref.stored, ref.form, pack, ref.position, ref.offset)
                self._enter(here, packs.METADATA, reader.id_key)
                self._entries(reader, page)

    def _entries(self, reader: ManifestReader, page: Page) -> None:
        for entry in page.entries:
            for chunk in reader.chunks(entry, page):
                self._enter(chunk, packs.DATA, reader.id_key)
            for item in entry.lists:
                self._old.update((old, None) for old in reader.packs_of_list(item, page))
                self._enter(_stored(*reader.list_place(item, page)), packs.METADATA, reader.id_key)

    def _enter(self, chunk: StoredChunk, type_: int, id_key: bytes) -> None:
        if chunk.pack.epoch >= self._history.keyring.epoch:
            return
        self._db.execute(
            "INSERT OR IGNORE INTO packs VALUES (NULL, ?, ?, ?)", (chunk.pack.id, _encode(chunk.pack), type_)
        )
        n = self._db.execute("SELECT n FROM packs WHERE id = ?", (chunk.pack.id,)).fetchone()[0]
        self._db.execute(
            "INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (chunk.id, n, chunk.raw, chunk.stored, chunk.form, chunk.position, chunk.offset, id_key),
        )

    def left(self) -> tuple[int, int]:
        """Return how many packs have to be read, and how many bytes of chunks."""
        count = self._db.execute("SELECT count(*) FROM packs").fetchone()[0]
        size = self._db.execute("SELECT coalesce(sum(stored), 0) FROM chunks").fetchone()[0]
        return int(count), int(size)

    def old_packs(self) -> list[bytes]:
        """Return every pack of an older epoch that was met, and those that an earlier re-sealing made."""
        table, now = self._history.relocations, self._history.keyring.epoch
        made = (pack.id for pack in table.packs() if pack.epoch < now) if table is not None else ()
        return list(self._old | dict.fromkeys(made))

    def packs(self, type_: int) -> Iterator[tuple[int, PackRef]]:
        """Yield the packs of *type_* to read."""
        rows = self._db.execute("SELECT n, ref FROM packs WHERE type = ? ORDER BY n", (type_,)).fetchall()
        for n, ref in rows:
            yield n, _pack_ref.decode(ref)

    def chunks(self, n: int) -> list[tuple[ChunkRef, bytes]]:
        """Return the wanted chunks of pack *n* in order, each with the key that its id is made with."""
        rows = self._db.execute(
            "SELECT id, raw, stored, form, position, offset, keyed FROM chunks WHERE pack = ? ORDER BY offset", (n,)
        )
        return [(ChunkRef(row[0], row[1], row[2], row[3], 0, row[4], row[5]), row[6]) for row in rows]


def _stored(item: ListRef, pack: PackRef) -> StoredChunk:
    return StoredChunk(item.id, item.raw, item.stored, item.form, pack, item.position, item.offset)


class Work(Protocol):
    """What a `Sealer` is told: which packs to read, and which chunks of each."""

    def packs(self, type_: int) -> Iterator[tuple[int, PackRef]]:
        """Yield the packs of *type_* to read, with a number of each."""

    def chunks(self, n: int) -> list[tuple[ChunkRef, bytes]]:
        """Return the wanted chunks of pack *n* in order of offset, each with the key that its id is made with."""


@dataclass(slots=True)
class Sealer:
    """Reads old packs of one type and fills new ones; their new places are noted, and published now and then."""

    history: History
    type_: int
    done: Resealed
    report: Callable[[Resealed], None]
    pieces: list[Piece] = field(default_factory=list)
    used: int = 0
    since_published: int = 0

    def run(self, work: Work) -> None:
        """Re-seal all that *work* has of this type."""
        for n, pack in work.packs(self.type_):
            wanted = work.chunks(n)
            keys = [key for _, key in wanted]
            for part in plan_ranges((index, pack, ref) for index, (ref, _) in enumerate(wanted)):
                self._read(part, keys)
            self.done.read_packs += 1
            self.report(self.done)
        self._seal(full=False)

    def _read(self, part: Range, keys: list[bytes]) -> None:
        name = pack_name(self.history.dataset, part.pack.id)
        opener, head = opener_of(self.history.keyring, part.pack, self.type_)
        buffer = memoryview(bytearray(part.end - part.start))
        try:
            self.history.store.get_range(name, part.start, buffer)
        except NotFound:
            raise missing(name) from None
        self.done.read_bytes += len(buffer)
        for index, ref in part.wanted:
            at = ref.offset - part.start
            plain = memoryview(bytearray(ref.stored))
            aad = packs.aad(head, packs.WHAT_CHUNK, ref.position, ref.form, ref.raw, ref.id)
            opener.open_into(ref.position, buffer[at : at + ref.stored + packs.TAG_BYTES], aad, plain)
            raw = decompress(ref.form, plain, ref.raw, name)
            if keyed_hash(keys[index], raw) != ref.id:
                raise IntegrityError(f"{name}: the chunk at position {ref.position} does not hash to its id")
            self._add(Piece(ref.id, ref.form, ref.raw, plain))

    def _add(self, piece: Piece) -> None:
        if not fits(packs.FIXED_HEADER_BYTES, self.used, len(self.pieces), len(piece.data)):
            self._seal(full=len(self.pieces) < PACK_CHUNKS and self.type_ == packs.DATA)
        self.pieces.append(piece)
        self.used += len(piece.data)
        if self.type_ == packs.METADATA and self.used >= METADATA_PACK_BYTES:
            self._seal(full=False)

    def _seal(self, *, full: bool) -> None:
        pieces, self.pieces, self.used = self.pieces, [], 0
        if not pieces:
            return
        out = memoryview(bytearray(PACK_BYTES))
        sealed = seal_pack(self.history.keyring.sealing(self.type_), self.type_, pieces, out, full=full)
        self.history.store.put_if_absent(pack_name(self.history.dataset, sealed.ref.id), sealed.data)
        table = self.history.relocations
        if table is None:
            raise AssertionError("re-sealing needs the table of relocations")
        table.add(
            (
                Moved(piece.id, sealed.ref, len(piece.data), piece.form, position, offset)
                for piece, (position, offset) in zip(pieces, sealed.places, strict=True)
            ),
            number=None,
        )
        self.done.written_packs += 1
        self.since_published += 1
        if self.since_published >= PUBLISH_PACKS:
            publish(self.history)
            self.since_published = 0


def _condemn(history: History, old: list[bytes]) -> int:
    new = _standing(history, old)
    if new:
        condemn(history, new)
    return len(new)
