"""Turn entries in order into stored pages, and remember each for the next push (docs/format.md, section 10).

Pages of the last snapshot that come out again are not stored again. Chunk lists of large files are sealed before the
page that refers to them. Used by one thread, but for `lists_stored`.
"""

from dataclasses import dataclass

from datasync.crypto.hashing import hash_all, keyed_hash
from datasync.crypto.kdf import FixedKeys
from datasync.format.page import write_chunk_list
from datasync.format.snapshot import PageRef, Totals
from datasync.model.entries import DIRECTORY, FILE, ChunkRef, Entry, ListRef, PackRef, StoredChunk
from datasync.model.limits import ENTRY_CHUNKS, LIST_CHUNKS
from datasync.push.index import Placed
from datasync.push.pack import Packer
from datasync.push.record import FileStat, Record
from datasync.repository.manifest import PageBuilder

CHUNKS_PER_LIST = 1024  # on average; a list ends where a chunk's id says so

Lists = list[tuple[ListRef, PackRef]]
NO_TOTALS = Totals(0, 0, 0, 0, 0, 0, 0)


def add_totals(one: Totals, other: Totals) -> Totals:
    """Return the sums."""
    return Totals(*(getattr(one, name) + getattr(other, name) for name in Totals.__struct_fields__))


def totals_of(entries: list[Entry]) -> Totals:
    """Return counts and bytes of *entries*."""
    files = sum(entry.kind == FILE for entry in entries)
    directories = sum(entry.kind == DIRECTORY for entry in entries)
    size = sum(entry.size for entry in entries)
    holes = sum(length for entry in entries if entry.holes for _, length in entry.holes)
    return Totals(len(entries), files, directories, len(entries) - files - directories, size, holes, 0)


@dataclass(frozen=True, slots=True)
class KnownPage:
    """A page of the last snapshot without its entries, so that any number of them can wait."""

    ref: PageRef
    pack: PackRef
    totals: Totals


@dataclass(slots=True)
class _Page:
    """A page of the new manifest: known from before, or on its way in a pack."""

    id: bytes
    entries: int
    size: int
    first: bytes
    placed: Placed | None
    known: tuple[PageRef, PackRef] | None

    def settled(self) -> tuple[PageRef, PackRef]:
        if self.known is not None:
            return self.known
        assert self.placed is not None
        c = self.placed.settled()
        return PageRef(
            self.id, c.raw, c.stored, c.form, 0, c.position, c.offset, self.entries, self.size, self.first
        ), c.pack


class PageWriter:
    """Collects the new manifest. `pages` and `lists` are metadata packers of their own."""

    def __init__(self, keys: FixedKeys, record: Record, pages: Packer, lists: Packer, scanned: int) -> None:
        self._keys = keys
        self._record = record
        self._packer = pages
        self._list_packer = lists
        self._scanned = scanned
        self._builder = PageBuilder(keys.page_cut)
        self._stats: list[FileStat] = []
        self._new_lists: dict[bytes, tuple[int, list[bytes]]] = {}  # those whose pack is on its way
        self._done: list[_Page] = []
        self.totals = NO_TOTALS

    @property
    def at_border(self) -> bool:
        """True when the next entry begins a page, so that a page from before may follow whole."""
        return not self._builder.entries

    def reuse(self, page: KnownPage) -> None:
        """Take a page of the last snapshot as it is; only `at_border`."""
        ref = page.ref
        self._done.append(_Page(ref.id, ref.entries, ref.bytes, ref.first, None, (ref, page.pack)))
        self.totals = add_totals(self.totals, page.totals)

    def add(self, entry: Entry, chunks: list[StoredChunk], lists: Lists, stat: FileStat) -> None:
        """Add the next entry with its content: chunks, however many, or chunk lists from before."""
        if len(chunks) > ENTRY_CHUNKS:
            lists, chunks = self._store_lists(chunks), []
        if self._builder.must_end_before(entry, len(chunks), len(lists)):
            self._end_page()
        ends = self._builder.add(entry, chunks, lists)
        self._stats.append(stat)
        if ends:
            self._end_page()

    def _store_lists(self, chunks: list[StoredChunk]) -> Lists:
        made: list[tuple[bytes, int, Placed | None]] = []
        for part in _cut_lists(chunks):
            table: dict[bytes, int] = {}
            refs = [
                ChunkRef(c.id, c.raw, c.stored, c.form, table.setdefault(c.pack.id, len(table)), c.position, c.offset)
                for c in part
            ]
            in_table = {c.pack.id: c.pack for c in part}
            encoded = write_chunk_list([in_table[pack_id] for pack_id in table], refs)
            list_id, covered = keyed_hash(self._keys.id_key, encoded), sum(c.raw for c in part)
            placed = None
            if self._record.list_place(list_id) is None:
                placed = Placed(list_id, len(encoded))
                self._new_lists[list_id] = (covered, list(table))
                self._list_packer.add(placed, encoded)
            made.append((list_id, covered, placed))
        self._list_packer.seal()
        return [self._list_place(*item) for item in made]

    def _list_place(self, list_id: bytes, covered: int, placed: Placed | None) -> tuple[ListRef, PackRef]:
        if placed is None:
            known = self._record.list_place(list_id)
            assert known is not None
            return known
        return _list_ref(placed, covered)

    def _end_page(self) -> None:
        encoded, entries = self._builder.take()
        stats, self._stats = self._stats, []
        page_id = keyed_hash(self._keys.id_key, encoded)
        totals = totals_of(entries)
        known = self._record.page(page_id)
        placed = None
        if known is None:
            placed = Placed(page_id, len(encoded))
            self._packer.add(placed, encoded)
        self._done.append(_Page(page_id, len(entries), totals.bytes, entries[0].path, placed, known))
        self._record.keep_page(page_id, encoded, stats, totals, self._scanned)
        self.totals = add_totals(self.totals, totals)

    def finish(self) -> tuple[list[tuple[PageRef, PackRef]], bytes]:
        """Return every page's reference with its pack, and the root hash; all packs are sealed and on their way."""
        if self._builder.entries:
            self._end_page()
        self._packer.finish()
        self._list_packer.finish()
        return [page.settled() for page in self._done], hash_all(page.id for page in self._done)

    def lists_stored(self, lists: list[Placed]) -> None:
        """Remember chunk lists whose pack is stored now; called by the threads that store."""
        for placed in lists:
            content = self._new_lists.pop(placed.id, None)
            if content is not None:  # else the same list, of another file, was stored already
                self._record.add_list(*_list_ref(placed, content[0]), content[1])


def _list_ref(placed: Placed, covered: int) -> tuple[ListRef, PackRef]:
    c = placed.settled()
    return ListRef(c.id, c.raw, c.stored, c.form, 0, c.position, c.offset, covered), c.pack


def _cut_lists(chunks: list[StoredChunk]) -> list[list[StoredChunk]]:
    parts: list[list[StoredChunk]] = [[]]
    for chunk in chunks:
        if parts[-1] and len(parts[-1]) >= LIST_CHUNKS:
            parts.append([])
        parts[-1].append(chunk)
        if int.from_bytes(chunk.id[:8], "little") % CHUNKS_PER_LIST == 0:
            parts.append([])
    return [part for part in parts if part]
