"""Manifests: reading the pages of a snapshot in order, and cutting entries into pages (docs/format.md, section 10)."""

from collections.abc import Collection, Iterator, Sequence

from datasync.crypto.hashing import keyed_hash
from datasync.crypto.recipients import HYBRID
from datasync.errors import FormatError, IntegrityError, WrongKey
from datasync.format import pack as packs
from datasync.format.page import Page, check_borders, check_order, read_chunk_list, read_page, write_page
from datasync.format.snapshot import PageRef
from datasync.model.entries import DIRECTORY, ChunkRef, Entry, ListRef, PackRef, StoredChunk
from datasync.model.limits import KIB, MIB, PAGE_BYTES
from datasync.repository.ahead import ahead
from datasync.repository.chunks import read_chunks
from datasync.repository.keyring import Keyring, key_pair
from datasync.repository.relocate import refresh
from datasync.repository.snapshots import History, Snapshot

PAGES_AT_ONCE = 8  # pages of one request round
ENTRIES_PER_PAGE = 4096
HEAVY_PAGE_BYTES = 1 * MIB  # from here on a page is cut 64 times as readily
HEAVY_ENTRIES = 64
PAGE_MARGIN_BYTES = 128 * KIB

_ENTRY_BYTES = 64  # an upper bound of an encoded entry without what varies
_CHUNK_BYTES = 64
_LIST_BYTES = 76
_HOLE_BYTES = 20
_PACK_BYTES = 128


class ManifestReader:
    """Reads a snapshot's entries, verified, in order; memory holds a few pages.

    What it says of places is true now: of a chunk that was re-sealed since, its new pack. *untold*: also where no
    object of the repository says so yet, which is for who goes on with the re-sealing alone.
    """

    def __init__(self, history: History, snapshot: Snapshot, *, untold: bool = False) -> None:
        self._untold = untold
        self._store = history.store
        self._keyring = history.keyring
        self._moved = refresh(history)
        self.snapshot = snapshot
        self.id_key = _id_key(self._keyring, snapshot)

    def pages(
        self, *, start: int = 0, end: int | None = None, skip: Collection[bytes] = frozenset()
    ) -> Iterator[tuple[PageRef, PackRef, Page, bytes]]:
        """Yield each page with its reference, its pack and its plaintext; refuse pages that do not follow each other.

        *start* and *end* choose pages by number, *skip* leaves pages out by id; then parents are not checked.
        """
        refs = [self._page_place(*pair) for pair in self.snapshot.pages()[start:end] if pair[0].id not in skip]
        whole = not start and end is None and not skip
        rounds = (refs[start : start + PAGES_AT_ONCE] for start in range(0, len(refs), PAGES_AT_ONCE))
        last, parents = b"", [b""]
        for group, blobs in ahead(self._fetch, rounds, threads=2, window=3):
            for (ref, pack), blob in zip(group, blobs, strict=True):
                what = f"{self.snapshot.name}: page {ref.id.hex()[:16]}"
                page = read_page(blob, what)
                if page.entries[0].path != ref.first or len(page.entries) != ref.entries:
                    raise FormatError(f"{what}: expected {ref.entries} entries from {ref.first!r}, found others")
                check_order(last, page.entries[0].path, what)
                if whole:
                    _check_parents(page.entries, parents, what)
                last = page.entries[-1].path
                yield ref, pack, page, blob

    def _fetch(self, group: list[tuple[PageRef, PackRef]]) -> tuple[list[tuple[PageRef, PackRef]], list[bytes]]:
        wanted = [(pack, ref) for ref, pack in group]
        return group, read_chunks(self._store, self._keyring, packs.METADATA, self.id_key, wanted)

    def page_places(self) -> Iterator[tuple[PageRef, PackRef]]:
        """Yield where each page lies now, in order; reads none of them."""
        for pair in self.snapshot.pages():
            yield self._page_place(*pair)

    def entries(self) -> Iterator[tuple[Entry, Page]]:
        """Yield each entry with the page that holds it."""
        for _, _, page, _ in self.pages():
            for entry in page.entries:
                yield entry, page

    def chunks(self, entry: Entry, page: Page) -> Iterator[StoredChunk]:
        """Yield a file's chunks in order, through its chunk lists where it has them."""
        for _, chunks in self.chunk_lists(entry, page):
            yield from chunks

    def own_chunks(self, entry: Entry, page: Page) -> list[StoredChunk]:
        """Return the chunks of a file without chunk lists."""
        return [self._place(stored_chunk(chunk, page.packs)) for chunk in entry.chunks]

    def chunk_lists(self, entry: Entry, page: Page) -> Iterator[tuple[ListRef | None, list[StoredChunk]]]:
        """Yield a file's chunks, those of each chunk list together; without lists all at once, under None."""
        if not entry.lists:
            yield None, self.own_chunks(entry, page)
            return
        lengths: list[int] = []
        for item in entry.lists:
            chunks, table = self._chunk_list(*self.list_place(item, page))
            lengths += [chunk.raw for chunk in chunks]
            yield item, [self._place(stored_chunk(chunk, table)) for chunk in chunks]
        if entry.holes:
            check_borders(entry.holes, lengths, f"{self.snapshot.name}: {entry.path!r}")

    def _place(self, chunk: StoredChunk) -> StoredChunk:
        """Return *chunk* with the place that it has now."""
        if self._moved is None:
            return chunk
        emptied = self._moved.has_emptied(chunk.pack.id)
        if not emptied and chunk.pack.epoch == self._keyring.epoch:
            return chunk
        moved = self._moved.find(chunk.id, untold=self._untold)
        if moved is None or not (emptied or chunk.pack.epoch < moved.pack.epoch):
            return chunk
        if self._moved.has_emptied(moved.pack.id):  # an old entry, of a time when nothing needed the chunk any more
            return chunk
        return StoredChunk(chunk.id, chunk.raw, moved.stored, moved.form, moved.pack, moved.position, moved.offset)

    def _page_place(self, ref: PageRef, pack: PackRef) -> tuple[PageRef, PackRef]:
        old = StoredChunk(ref.id, ref.raw, ref.stored, ref.form, pack, ref.position, ref.offset)
        new = self._place(old)
        if new is old:
            return ref, pack
        here = (new.stored, new.form, 0, new.position, new.offset)
        return PageRef(ref.id, ref.raw, *here, ref.entries, ref.bytes, ref.first), new.pack

    def list_place(self, item: ListRef, page: Page) -> tuple[ListRef, PackRef]:
        """Return a chunk list's reference and pack as they are now."""
        old = StoredChunk(item.id, item.raw, item.stored, item.form, page.packs[item.pack], item.position, item.offset)
        new = self._place(old)
        return ListRef(item.id, item.raw, new.stored, new.form, 0, new.position, new.offset, item.bytes), new.pack

    def packs_of_page(self, page: Page) -> tuple[dict[bytes, PackRef], dict[bytes, PackRef]]:
        """Return the packs that the page's own chunks lie in now, and those of its chunk lists, by id.

        What lies in chunk lists is not among them.
        """
        if self._moved is None:  # told by the table alone: an unchanged million entries cost little
            chunks = {chunk.pack for entry in page.entries for chunk in entry.chunks}
            lists = {item.pack for entry in page.entries for item in entry.lists}
            of_chunks, of_lists = ([page.packs[index] for index in some] for some in (chunks, lists))
        else:
            of_chunks = [
                self._place(stored_chunk(chunk, page.packs)).pack for entry in page.entries for chunk in entry.chunks
            ]
            of_lists = [self.list_place(item, page)[1] for entry in page.entries for item in entry.lists]
        return {pack.id: pack for pack in of_chunks}, {pack.id: pack for pack in of_lists}

    def packs_of_list(self, item: ListRef, page: Page) -> Iterator[bytes]:
        """Yield the packs of older epochs that a chunk list names, wherever its chunks lie now."""
        _, table = self._chunk_list(*self.list_place(item, page))
        yield from (pack.id for pack in table if pack.epoch < self._keyring.epoch)

    def _chunk_list(self, item: ListRef, pack: PackRef) -> tuple[tuple[ChunkRef, ...], tuple[PackRef, ...]]:
        blob = read_chunks(self._store, self._keyring, packs.METADATA, self.id_key, [(pack, item)])[0]
        found = read_chunk_list(blob, item.bytes, f"{self.snapshot.name}: chunk list {item.id.hex()[:16]}")
        return found.chunks, found.packs


def _id_key(keyring: Keyring, snapshot: Snapshot) -> bytes:
    body = snapshot.body
    if not body.id_key:
        return keyring.fixed.id_key
    pair = key_pair(keyring.material(packs.METADATA, body.epoch))
    try:
        return pair.open(HYBRID, body.id_key, b"datasync/v1/id-key\0" + body.dataset)
    except WrongKey:
        raise IntegrityError(f"{snapshot.name}: its writer's id key was not sealed to this dataset") from None


def _check_parents(entries: Sequence[Entry], parents: list[bytes], what: str) -> None:
    """Refuse an entry whose parent is not a directory before it; *parents* is the stack
    of open directories, across pages.
    """
    for entry in entries:
        parent = entry.path.rpartition(b"/")[0]
        while parents[-1] != parent:
            if len(parents) == 1:
                raise FormatError(f"{what}: {entry.path!r} has no parent directory before it")
            parents.pop()
        if entry.kind == DIRECTORY:
            parents.append(entry.path)


def stored_chunk(chunk: ChunkRef, table: Sequence[PackRef]) -> StoredChunk:
    """Return *chunk* with its pack in place of the index."""
    return StoredChunk(chunk.id, chunk.raw, chunk.stored, chunk.form, table[chunk.pack], chunk.position, chunk.offset)


class PageBuilder:
    """Collects entries into one page at a time; cuts depend only on the paths near them, so snapshots share pages."""

    def __init__(self, page_cut: bytes) -> None:
        self._page_cut = page_cut
        self._start()

    def _start(self) -> None:
        self.entries: list[Entry] = []
        self._table: dict[bytes, int] = {}
        self._packs: list[PackRef] = []
        self.weight = 16

    def must_end_before(self, entry: Entry, chunks: int, lists: int) -> bool:
        """Tell whether the page must end before *entry*, which would take it over the limit."""
        return bool(self.entries) and self.weight + weigh(entry, chunks, lists) > PAGE_BYTES - PAGE_MARGIN_BYTES

    def add(self, entry: Entry, chunks: Sequence[StoredChunk], lists: Sequence[tuple[ListRef, PackRef]]) -> bool:
        """Add *entry* with its content; return whether the page ends after it."""
        self.weight += weigh(entry, len(chunks), len(lists))
        refs = tuple(ChunkRef(c.id, c.raw, c.stored, c.form, self._index(c.pack), c.position, c.offset) for c in chunks)
        list_refs = tuple(
            ListRef(ref.id, ref.raw, ref.stored, ref.form, self._index(pack), ref.position, ref.offset, ref.bytes)
            for ref, pack in lists
        )
        self.entries.append(
            Entry(
                entry.path,
                entry.kind,
                entry.mode,
                entry.mtime,
                entry.size,
                entry.xattrs,
                entry.target,
                entry.link,
                refs,
                entry.holes,
                list_refs,
            )
        )
        return self._ends_after(entry.path)

    def _index(self, pack: PackRef) -> int:
        index = self._table.get(pack.id)
        if index is None:
            index = self._table[pack.id] = len(self._packs)
            self._packs.append(pack)
            self.weight += _PACK_BYTES + len(pack.sealed_key)
        return index

    def _ends_after(self, path: bytes) -> bool:
        cut = int.from_bytes(keyed_hash(self._page_cut, path)[:8], "little")
        return cut % ENTRIES_PER_PAGE == 0 or (self.weight >= HEAVY_PAGE_BYTES and cut % HEAVY_ENTRIES == 0)

    def take(self) -> tuple[bytes, list[Entry]]:
        """Return the encoded page and its entries, and start the next."""
        encoded, entries = write_page(self._packs, self.entries), self.entries
        if len(encoded) > PAGE_BYTES:
            raise FormatError(
                f"page from {entries[0].path[:64]!r}: {len(encoded)} bytes, the limit is {PAGE_BYTES}: "
                "fewer extended attributes or holes"
            )
        self._start()
        return encoded, entries


def weigh(entry: Entry, chunks: int, lists: int) -> int:
    """Return an upper bound of the encoded size of *entry*, the same on every machine."""
    xattrs = sum(len(name) + len(value) + 8 for name, value in entry.xattrs)
    names = len(entry.path) + len(entry.target) + len(entry.link)
    return _ENTRY_BYTES + names + xattrs + _CHUNK_BYTES * chunks + _LIST_BYTES * lists + _HOLE_BYTES * len(entry.holes)
