"""What the living snapshots of a dataset need of its packs, chunk by chunk, and what the store has.

A temporary SQLite database: memory grows neither with entries nor with packs nor with history. Complete or not at all:
a snapshot, page or chunk list that can not be read raises, and so does a number that is neither listed nor forgotten,
since who deletes by half a picture deletes what is needed.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator

import msgspec

from datasync.errors import FormatError, IntegrityError, NotFound
from datasync.format import pack as packs
from datasync.format.names import dataset_prefix
from datasync.format.page import Page
from datasync.model.entries import ChunkRef, ListRef, PackRef, StoredChunk
from datasync.model.limits import CHUNK_BYTES, PACK_BYTES
from datasync.repository.id_set import IdSet
from datasync.repository.manifest import ManifestReader
from datasync.repository.snapshots import History, Snapshot

PACK_NUMBERS = 4_096  # packs whose number is remembered
_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -32768;
CREATE TABLE packs (n INTEGER PRIMARY KEY, id BLOB UNIQUE, ref BLOB, type INTEGER, size INTEGER, spare INTEGER,
                    chosen INTEGER);
CREATE TABLE chunks (pack INTEGER, offset INTEGER, id BLOB, raw INTEGER, stored INTEGER, form INTEGER,
                     position INTEGER, keyed BLOB, PRIMARY KEY (pack, offset, id)) WITHOUT ROWID;
CREATE TABLE stored (id BLOB PRIMARY KEY, size INTEGER, modified REAL) WITHOUT ROWID;
CREATE TABLE condemned (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""
_encode = msgspec.msgpack.encode
_pack_ref = msgspec.msgpack.Decoder(PackRef)


class Survey:
    """References of living snapshots and the store's listing, on disk. Close it at the end."""

    def __init__(self, history: History, report: Callable[[int], None]) -> None:
        self._history = history
        self._report = report
        self._db = sqlite3.connect("")
        self._db.executescript(_TABLES)
        self._pages = IdSet()
        self._snapshots: set[bytes] = set()
        self._numbers: dict[bytes, int] = {}

    def close(self) -> None:
        """Remove it from disk."""
        self._pages.close()
        self._db.close()

    # what snapshots need

    def collect(self) -> int:
        """Enter what every living snapshot needs that was not entered before; return how many were new."""
        count = 0
        for snapshot in _living(self._history):
            if snapshot.id not in self._snapshots:
                self._enter_snapshot(snapshot)
                self._snapshots.add(snapshot.id)
                count += 1
                self._report(len(self._snapshots))
        return count

    def _enter_snapshot(self, snapshot: Snapshot) -> None:
        reader = ManifestReader(self._history, snapshot)
        key = reader.id_key
        for ref, pack in reader.page_places():  # a page may lie in several packs, and this snapshot needs this one
            place = StoredChunk(ref.id, ref.raw, ref.stored, ref.form, pack, ref.position, ref.offset)
            self._enter([place], packs.METADATA, key)
        for ref, _, page, _ in reader.pages(skip=self._pages):
            self._pages.add(ref.id)
            self._enter_page(reader, page, key)

    def _enter_page(self, reader: ManifestReader, page: Page, key: bytes) -> None:
        for entry in page.entries:
            self._enter(reader.chunks(entry, page), packs.DATA, key)
            self._enter((_list_place(*reader.list_place(item, page)) for item in entry.lists), packs.METADATA, key)

    def _enter(self, chunks: Iterable[StoredChunk], type_: int, key: bytes) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            ((self._number(c.pack, type_), c.offset, c.id, c.raw, c.stored, c.form, c.position, key) for c in chunks),
        )

    def _number(self, pack: PackRef, type_: int) -> int:
        n = self._numbers.get(pack.id)
        if n is None:
            row = (pack.id, _encode(pack), type_, pack.size)
            self._db.execute("INSERT OR IGNORE INTO packs VALUES (NULL, ?, ?, ?, ?, 0, 0)", row)
            n = int(self._db.execute("SELECT n FROM packs WHERE id = ?", row[:1]).fetchone()[0])
            if len(self._numbers) >= PACK_NUMBERS:
                self._numbers.clear()
            self._numbers[pack.id] = n
        return n

    def needs(self, pack: bytes) -> bool:
        """Tell whether a living snapshot needs something of *pack*."""
        return self._db.execute("SELECT 1 FROM packs WHERE id = ?", (pack,)).fetchone() is not None

    # what the store has

    def list_stored(self) -> None:
        """Enter the store's listing of packs."""
        prefix = dataset_prefix(self._history.dataset) + "packs/"
        rows = ((_pack_id(item.name), item.size, item.modified) for item in self._history.store.list(prefix))
        self._db.executemany("INSERT OR REPLACE INTO stored VALUES (?, ?, ?)", rows)

    def stored_size(self, pack: bytes) -> int | None:
        """Return the size of *pack* in the listing, None when it is not there."""
        row = self._db.execute("SELECT size FROM stored WHERE id = ?", (pack,)).fetchone()
        return int(row[0]) if row else None

    def note_condemned(self, ids: Iterable[bytes]) -> None:
        """Enter packs that are on the list: they are not found again."""
        self._db.executemany("INSERT OR IGNORE INTO condemned VALUES (?)", ((pack,) for pack in ids))

    def totals(self) -> tuple[int, int]:
        """Return how many packs the store has, and their bytes."""
        count, size = self._db.execute("SELECT count(*), coalesce(sum(size), 0) FROM stored").fetchone()
        return int(count), int(size)

    def unlisted(self) -> Iterator[bytes]:
        """Yield the packs that are needed and not in the listing."""
        rows = self._db.execute("SELECT id FROM packs WHERE id NOT IN (SELECT id FROM stored) ORDER BY id")
        yield from (row[0] for row in rows)

    def unneeded(self, *, before: float) -> Iterator[tuple[bytes, int]]:
        """Yield id and size of the stored packs from before that time (by the store) that nothing needs and no list
        names.
        """
        yield from self._db.execute(
            "SELECT id, size FROM stored WHERE modified < ? AND id NOT IN (SELECT id FROM packs) "
            "AND id NOT IN (SELECT id FROM condemned) ORDER BY id",
            (before,),
        )

    def count_young(self, *, since: float) -> int:
        """Return how many packs nothing needs, and are too new to tell: a push may be about to commit them."""
        return int(
            self._db.execute(
                "SELECT count(*) FROM stored WHERE modified >= ? AND id NOT IN (SELECT id FROM packs) "
                "AND id NOT IN (SELECT id FROM condemned)",
                (since,),
            ).fetchone()[0]
        )

    # what is spare in packs that are needed: a `reseal.Work`

    def measure(self) -> tuple[int, int]:
        """Work out how many bytes of each needed pack nothing needs; return them, and the packs' bytes, altogether."""
        last = self._db.execute("SELECT coalesce(max(n), 0) FROM packs").fetchone()[0]
        for start in range(1, last + 1, PACK_NUMBERS):
            rows = self._db.execute(
                "SELECT p.n, p.ref, p.type, sum(c.stored), count(*) FROM packs p JOIN chunks c ON c.pack = p.n "
                "WHERE p.n BETWEEN ? AND ? AND p.id IN (SELECT id FROM stored) GROUP BY p.n",
                (start, start + PACK_NUMBERS - 1),
            ).fetchall()
            spare = [(_spare(_pack_ref.decode(ref), type_, used, count), n) for n, ref, type_, used, count in rows]
            self._db.executemany("UPDATE packs SET spare = ? WHERE n = ?", spare)
        found = self._db.execute("SELECT coalesce(sum(spare), 0), coalesce(sum(size), 0) FROM packs").fetchone()
        return int(found[0]), int(found[1])

    def choose(self, excess: int) -> tuple[int, int]:
        """Choose packs to seal anew: those that are condemned and needed all the same, then the emptiest first, until
        *excess* spare bytes are saved; return how many, and their bytes.
        """
        self._db.execute(
            "UPDATE packs SET chosen = 1 WHERE id IN (SELECT id FROM condemned) AND id IN (SELECT id FROM stored)"
        )
        rows = self._db.execute(
            "SELECT n, spare FROM packs WHERE spare > 0 AND chosen = 0 ORDER BY spare * 1.0 / size DESC, n"
        )
        for n, spare in rows.fetchall() if excess > 0 else ():
            if excess <= 0:
                break
            self._db.execute("UPDATE packs SET chosen = 1 WHERE n = ?", (n,))
            excess -= spare
        found = self._db.execute("SELECT count(*), coalesce(sum(size), 0) FROM packs WHERE chosen = 1").fetchone()
        return int(found[0]), int(found[1])

    def chosen(self) -> list[bytes]:
        """Return the ids of the chosen packs."""
        return [row[0] for row in self._db.execute("SELECT id FROM packs WHERE chosen = 1 ORDER BY id")]

    def packs(self, type_: int) -> Iterator[tuple[int, PackRef]]:
        """Yield the chosen packs of *type_*."""
        rows = self._db.execute("SELECT n, ref FROM packs WHERE chosen = 1 AND type = ? ORDER BY n", (type_,))
        for n, ref in rows.fetchall():
            yield n, _pack_ref.decode(ref)

    def chunks(self, n: int) -> list[tuple[ChunkRef, bytes]]:
        """Return the needed chunks of pack *n* in order of offset, each with the key that its id is made with."""
        rows = self._db.execute(
            "SELECT id, raw, stored, form, position, offset, keyed FROM chunks WHERE pack = ? ORDER BY offset", (n,)
        )
        return [(ChunkRef(row[0], row[1], row[2], row[3], 0, row[4], row[5]), row[6]) for row in rows]


def _living(history: History) -> Iterator[Snapshot]:
    """Yield every snapshot that is not forgotten, the newest first; refuse a number that is nowhere."""
    newest, following = history.latest(), 0
    for item in history.line():
        following = following or (newest.body.seq if newest is not None else item.number)
        yield from _between(history, following, item.number)
        yield history.read_object(item)
        following = item.number - 1
    yield from _between(history, following, 0)


def _between(history: History, high: int, low: int) -> Iterator[Snapshot]:
    """Yield the snapshots from *high* down to above *low* that a listing left out and are not forgotten."""
    for seq in range(high, low, -1):
        if history.forgotten.find(seq) is not None:
            continue
        try:
            yield history.read(seq)
        except NotFound:
            raise IntegrityError(
                f"snapshot {seq}: it is neither in the store nor forgotten, so nothing is pruned: run datasync verify"
            ) from None


def _list_place(item: ListRef, pack: PackRef) -> StoredChunk:
    return StoredChunk(item.id, item.raw, item.stored, item.form, pack, item.position, item.offset)


def _pack_id(name: str) -> bytes:
    try:
        return bytes.fromhex(name.rpartition("/")[2])
    except ValueError:
        raise FormatError(f"{name}: not the name of a pack: remove it if it is nobody's") from None


def _spare(pack: PackRef, type_: int, used: int, count: int) -> int:
    """Return how many bytes less a pack of the needed chunks alone would take; padding is no spare.

    A full pack is closed when a chunk does not fit, so up to a chunk of it may always be empty.
    """
    unpadded = packs.unpadded_bytes(packs.FIXED_HEADER_BYTES + len(pack.sealed_key), used, count)
    if type_ == packs.DATA and pack.size == PACK_BYTES:
        return PACK_BYTES - unpadded if PACK_BYTES - unpadded > CHUNK_BYTES else 0
    return max(0, pack.size - packs.padded_bytes(min(unpadded, pack.size), full=False))
