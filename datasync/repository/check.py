"""Check a dataset: every snapshot, page and chunk list, that every pack is there,
and (when asked) every byte of the packs.

Problems are collected, not raised, so one damaged object does not hide the next. What snapshots refer to is kept in a
temporary SQLite database: memory does not grow with the dataset.
"""

import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from datasync.crypto.hashing import keyed_hash
from datasync.errors import IntegrityError, NotFound
from datasync.format import pack as packs
from datasync.format.names import dataset_prefix, pack_name
from datasync.format.names import numbered as numbered_name
from datasync.format.page import Page
from datasync.format.snapshot import PageRef
from datasync.model.entries import FILE, ChunkRef, ListRef, PackRef, StoredChunk
from datasync.model.limits import PACK_BYTES
from datasync.repository.forgotten_table import Gone
from datasync.repository.id_set import IdSet
from datasync.repository.keyring import Keyring
from datasync.repository.manifest import ManifestReader, stored_chunk
from datasync.repository.numbered import NumberedObject
from datasync.repository.packs import check_pack_id, open_pack
from datasync.repository.snapshots import History, Snapshot
from datasync.repository.tags import read_all

MISSING_NAMED = 100  # deleted snapshots that are named one by one
PACKS_NAMED = 10_000  # missing packs that are named one by one
PACK_NUMBERS = 4096  # packs whose number in the database is remembered
REPORT_PAGES = 16

_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -32768;
CREATE TABLE packs (n INTEGER PRIMARY KEY, id BLOB UNIQUE, size INTEGER, type INTEGER, found INTEGER);
CREATE TABLE refs (pack INTEGER, position INTEGER, id BLOB, raw INTEGER, stored INTEGER, form INTEGER, offset INTEGER,
                   keyed BLOB, PRIMARY KEY (pack, position, id, offset, raw, stored, form)) WITHOUT ROWID;
"""


@dataclass(slots=True)
class CheckResult:
    """What was checked, and the problems found, each naming its object."""

    snapshots: int = 0
    pages: int = 0
    files: int = 0
    packs: int = 0
    read_packs: int = 0
    read_bytes: int = 0
    unreferenced_packs: int = 0
    forgotten: int = 0
    problems: list[str] = field(default_factory=list)


def check_dataset(
    history: History, keyring: Keyring, *, read_data: bool, sample: float, report: Callable[[CheckResult], None]
) -> CheckResult:
    """Check everything that the dataset's snapshots need; with *read_data* also the bytes
    of a share *sample* of the packs.
    """
    return _Check(history, keyring, report).run(read_data=read_data, sample=sample)


class _Check:
    def __init__(self, history: History, keyring: Keyring, report: Callable[[CheckResult], None]) -> None:
        self._history = history
        self._keyring = keyring
        self._report = report
        self._db = sqlite3.connect("")
        self._db.executescript(_TABLES)
        self._numbers: dict[bytes, int] = {}
        self._pages = IdSet()
        self.result = CheckResult()

    def run(self, *, read_data: bool, sample: float) -> CheckResult:
        self._attempt("head", lambda: self._history.newest(fresh=False))
        self._attempt("tags", lambda: read_all(self._history))
        for snapshot in self._snapshots():
            self.result.snapshots += 1
            self._attempt(snapshot.name, partial(self._snapshot, snapshot, with_chunks=read_data))
            self._report(self.result)
        self._check_presence()
        if read_data:
            self._read_packs(sample)
        self._pages.close()
        self._db.close()
        return self.result

    def _attempt(self, what: str, step: Callable[[], object]) -> None:
        try:
            step()
        except (IntegrityError, NotFound) as error:
            text = str(error)
            self.result.problems.append(text if what in text else f"{what}: {text}")

    def _snapshots(self) -> Iterator[Snapshot]:
        above: tuple[int, bytes, str] | None = None  # seq, the id that it follows, and its name
        try:
            line = self._history.line()
        except IntegrityError as error:
            self.result.problems.append(str(error))
            return
        self._check_numbers(line)
        for item in line:
            try:
                snapshot = self._history.read_object(item)
            except (IntegrityError, NotFound) as error:
                self.result.problems.append(str(error))
                above = None
                continue
            if above is not None:
                self._check_line(above, item.number, snapshot.id)
            above = snapshot.body.seq, snapshot.body.previous, snapshot.name
            yield snapshot

    def _check_line(self, above: tuple[int, bytes, str], number: int, found: bytes) -> None:
        """What *above* follows is the snapshot *found*, through those between them that were forgotten."""
        seq, previous, name = above
        while seq - 1 > number:
            gone = self._history.forgotten.find(seq - 1)
            if gone is None:
                return  # a missing one is told by its number
            seq, previous = seq - 1, self._follow(gone, previous, name)
            name = f"snapshot {gone.seq} (forgotten)"
        if seq == number + 1 and previous != found:
            self.result.problems.append(
                f"{self._history.prefix('snapshots')}{numbered_name(number)}: {name} follows another snapshot: "
                "history was forked"
            )

    def _follow(self, gone: Gone, previous: bytes, name: str) -> bytes:
        if gone.id != previous:
            self.result.problems.append(f"snapshot {gone.seq} (forgotten): {name} follows another: history was forked")
        return gone.previous

    def _check_numbers(self, line: Sequence[NumberedObject]) -> None:
        """Every number from 1 on is there, once, or was forgotten: none is deleted otherwise."""
        for above, below in pairwise(line):
            if above.number == below.number:
                self.result.problems.append(f"{above.name} and {below.name}: two snapshots have number {above.number}")
        there = {item.number for item in line}
        missing = [number for number in range(1, line[0].number if line else 1) if number not in there]
        missing = [number for number in missing if self._history.forgotten.find(number) is None]
        self.result.forgotten = self._history.forgotten.count()
        for number in missing[:MISSING_NAMED]:
            name = self._history.prefix("snapshots") + numbered_name(number)
            self.result.problems.append(f"{name}: snapshot {number} is not in the repository: it was deleted")

    def _snapshot(self, snapshot: Snapshot, *, with_chunks: bool) -> None:
        reader = ManifestReader(self._history, snapshot)
        for ref, pack, page, _ in reader.pages(skip=self._pages):
            self._pages.add(ref.id)
            self.result.pages += 1
            if with_chunks:
                self._refer(packs.METADATA, reader.id_key, [_place(ref, pack)])
                self._refer_all(reader, page)
            else:
                self._number(pack, packs.METADATA)
                self._need_all(reader, page)
            self.result.files += sum(entry.kind == FILE for entry in page.entries)
            if self.result.pages % REPORT_PAGES == 0:
                self._report(self.result)

    def _need_all(self, reader: ManifestReader, page: Page) -> None:
        """Note the packs that *page* needs; what lies where in them only matters to who reads them."""
        of_chunks, of_lists = reader.packs_of_page(page)
        for type_, found in ((packs.DATA, of_chunks), (packs.METADATA, of_lists)):
            for pack in found.values():
                self._number(pack, type_)
        for entry in page.entries:
            for chunk in reader.chunks(entry, page) if entry.lists else ():
                self._number(chunk.pack, packs.DATA)

    def _refer_all(self, reader: ManifestReader, page: Page) -> None:
        for entry in page.entries:
            lists = [_place(*reader.list_place(item, page)) for item in entry.lists]
            self._refer(packs.METADATA, reader.id_key, lists)
            self._refer(packs.DATA, reader.id_key, reader.chunks(entry, page))

    def _refer(self, type_: int, id_key: bytes, chunks: Iterable[StoredChunk]) -> None:
        rows = (
            (self._number(c.pack, type_), c.position, c.id, c.raw, c.stored, c.form, c.offset, id_key) for c in chunks
        )
        self._db.executemany("INSERT OR IGNORE INTO refs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _number(self, pack: PackRef, type_: int) -> int:
        n = self._numbers.get(pack.id)
        if n is None:
            row = (pack.id, pack.size, type_)
            self._db.execute("INSERT OR IGNORE INTO packs VALUES (NULL, ?, ?, ?, 0)", row)
            n = int(self._db.execute("SELECT n FROM packs WHERE id = ?", row[:1]).fetchone()[0])
            if len(self._numbers) >= PACK_NUMBERS:
                self._numbers.clear()
            self._numbers[pack.id] = n
        return n

    def _check_presence(self) -> None:
        prefix = dataset_prefix(self._history.dataset) + "packs/"
        for item in self._history.store.list(prefix):
            try:
                pack_id = bytes.fromhex(item.name.rpartition("/")[2])
            except ValueError:
                self.result.problems.append(f"{item.name}: not the name of a pack")
                continue
            known = self._db.execute("SELECT n, size FROM packs WHERE id = ?", (pack_id,)).fetchone()
            if known is None:
                self.result.unreferenced_packs += 1
                continue
            self._db.execute("UPDATE packs SET found = 1 WHERE n = ?", known[:1])
            if known[1] != item.size:
                self.result.problems.append(f"{item.name}: expected {known[1]} bytes, found {item.size}")
        self.result.packs, missing = self._db.execute("SELECT count(*), count(*) - sum(found) FROM packs").fetchone()
        self._name_missing(missing or 0)

    def _name_missing(self, missing: int) -> None:
        rows = self._db.execute("SELECT id FROM packs WHERE found = 0 ORDER BY n LIMIT ?", (PACKS_NAMED,))
        for (pack_id,) in rows:
            self.result.problems.append(
                f"{pack_name(self._history.dataset, pack_id)}: a snapshot needs this pack, the store does not have it"
            )
        if missing > PACKS_NAMED:
            self.result.problems.append(f"and {missing - PACKS_NAMED} packs more that the store does not have")

    def _read_packs(self, sample: float) -> None:
        chooser = random.SystemRandom()
        for n, pack_id, size, type_ in self._db.execute("SELECT n, id, size, type FROM packs ORDER BY n"):
            if sample < 1 and chooser.random() >= sample:
                continue
            name = pack_name(self._history.dataset, pack_id)
            self._attempt(name, partial(self._read_pack, n, pack_id, type_, size, name))
            self._report(self.result)

    def _read_pack(self, n: int, pack_id: bytes, type_: int, size: int, name: str) -> None:
        data = self._history.store.get(name, limit=PACK_BYTES)
        self.result.read_packs += 1
        self.result.read_bytes += len(data)
        check_pack_id(pack_id, data, name)
        pack = open_pack(self._keyring, data, type_, name)
        pack.check_padding(name)
        keys = {row[0]: row[1] for row in self._db.execute("SELECT DISTINCT id, keyed FROM refs WHERE pack = ?", (n,))}
        table = set()
        for position, (row, raw) in enumerate(pack.chunks(name)):
            key = keys.get(row.id, self._keyring.fixed.id_key)
            if keyed_hash(key, raw) != row.id:
                raise IntegrityError(f"{name}: the chunk at position {position} does not hash to its id")
            table.add((position, row.id, row.raw, row.stored, row.form, row.offset))
        wanted = self._db.execute("SELECT position, id, raw, stored, form, offset FROM refs WHERE pack = ?", (n,))
        if any(tuple(row) not in table for row in wanted):
            raise IntegrityError(f"{name}: a snapshot refers to a chunk that the pack's table does not have there")


def _place(ref: PageRef | ListRef, pack: PackRef) -> StoredChunk:
    return stored_chunk(ChunkRef(ref.id, ref.raw, ref.stored, ref.form, 0, ref.position, ref.offset), [pack])
