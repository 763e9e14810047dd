"""Push, all steps joined: scan -> detect -> chunk -> seal -> pack -> store -> commit. The only module here
that starts threads' work.

Two readers chunk and seal, a few senders store; entries wait in order until their packs are sealed, so memory is the
buffer pool, the entries of the packs in it, and one page. Nothing is visible before `commit`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from datasync.chunker import Cutter, cdc, fixed
from datasync.crypto.hashing import hash_bytes
from datasync.errors import StorageUnavailable, UsageError
from datasync.format import pack as packs
from datasync.format.snapshot import Body, PageRef, Root, Source, Totals, write_page_lists
from datasync.model.entries import FILE, Entry, ListRef, PackRef, StoredChunk
from datasync.model.ids import ZERO_ID
from datasync.model.limits import MIB
from datasync.push.buffers import BufferPool
from datasync.push.chunk import FileReader, Outcome, ReadFile, SameContent
from datasync.push.detect import Changed, Changes, Item, SameEntry, SamePage, detect
from datasync.push.entry import link_only, plain_entry, unchanged, with_link
from datasync.push.guard import check_loss
from datasync.push.ignore import IgnoreRules
from datasync.push.index import ChunkIndex, Placed
from datasync.push.links import LinkGroups
from datasync.push.options import Progress, PushOptions, PushResult
from datasync.push.pack import Packer
from datasync.push.page import PageWriter
from datasync.push.record import FileStat, Record, SourceMark
from datasync.push.scan import Skipped, scan
from datasync.push.source import SourceTree
from datasync.push.store import PackStore
from datasync.push.sync import GRACE_MS, Baseline, synchronise
from datasync.push.xattrs import read_xattrs
from datasync.repository.manifest import stored_chunk
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot

READERS = 2
TRANSFERS = 4
BATCH_FILES = 64
BATCH_BYTES = 8 * MIB
QUEUE_ENTRIES = 65_536  # entries that wait for their packs before packs are sealed early
JOBS_AHEAD = 8  # batches submitted and not read yet
PROGRESS_SECONDS = 0.1


@dataclass(slots=True)
class _Waiting:
    """An entry in its turn: ready, or to come from a reader."""

    item: Item
    batch: Future[list[Outcome]] | None = None
    index: int = 0
    entry: Entry | None = None


@dataclass(slots=True)
class _Batch:
    files: list[Changed] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)
    size: int = 0


def push(
    dataset: OpenDataset,
    root: Path,
    record: Record,
    source: Source,
    options: PushOptions,
    report: Callable[[Progress], None],
) -> PushResult:
    """Push the tree at *root*; return what was done."""
    started = time.monotonic()
    with SourceTree.open(root) as tree:
        baseline = synchronise(dataset, record, root)
        run = _Run(dataset, tree, record, source, options, baseline, report)
        try:
            snapshot, created = run.dry() if options.dry_run else run.wet()
        finally:
            run.close()
        return PushResult(
            snapshot, created, run.totals, run.changes, run.progress(), run.skipped, time.monotonic() - started
        )


class _Run:
    def __init__(
        self,
        dataset: OpenDataset,
        tree: SourceTree,
        record: Record,
        source: Source,
        options: PushOptions,
        baseline: Baseline,
        report: Callable[[Progress], None],
    ) -> None:
        self._dataset, self._tree, self._record, self._source = dataset, tree, record, source
        self._options, self._baseline, self._report = options, baseline, report
        self.skipped: list[Skipped] = []
        self.changes = Changes()
        self.totals = Totals(0, 0, 0, 0, 0, 0, 0)
        self._scanned = time.time_ns()
        self._next_report = 0.0
        keyring = dataset.keyring
        self._pool = BufferPool()
        self._index = ChunkIndex(record)
        self._store = PackStore(dataset.history.store, dataset.id, record, self._pool, TRANSFERS)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="chunk")
        self._idle: SimpleQueue[tuple[FileReader, Packer]] = SimpleQueue()
        self._all: list[tuple[FileReader, Packer]] = []
        for _ in range(READERS):
            reader = FileReader(tree, self._cutter(), keyring.fixed.id_key, self._index)
            self._all.append((reader, self._packer(packs.DATA, self._index.stored)))
            self._idle.put(self._all[-1])
        self._links = LinkGroups(keyring.fixed.link)
        self._pages = PageWriter(
            keyring.fixed, record, self._packer(packs.METADATA), self._packer(packs.METADATA), self._scanned
        )
        self._queue: deque[_Waiting] = deque()
        self._jobs: deque[Future[list[Outcome]]] = deque()
        self._batch = _Batch()

    def _cutter(self) -> Cutter:
        return cdc(self._dataset.keyring.fixed.chunker_seed) if self._options.chunker == "cdc" else fixed()

    def _packer(self, type_: int, stored: Callable[[list[Placed]], None] = lambda _: None) -> Packer:
        return Packer(self._dataset.keyring.sealing(type_), type_, self._pool, self._store, stored)

    def close(self) -> None:
        self._pool.fail(UsageError("the push has ended"))
        for reader, _ in self._all:
            reader.stopped = True
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._store.close()

    def progress(self) -> Progress:
        read = sum(reader.read_bytes for reader, _ in self._all)
        new = sum(reader.new_bytes for reader, _ in self._all)
        return Progress(self.changes.found, read, new, self._store.sent_bytes)

    def _items(self) -> Iterator[Item]:
        rules = IgnoreRules(include=self._options.include, exclude=self._options.exclude)
        walk = scan(
            self._tree,
            rules,
            self.skipped.append,
            xattrs=self._options.xattrs,
            one_file_system=self._options.one_file_system,
        )
        return detect(walk, self._record.pages(), self.changes, checksum=self._options.checksum)

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + PROGRESS_SECONDS
            self._store.check()
            self._report(self.progress())

    # the two ways

    def dry(self) -> tuple[Snapshot | None, bool]:
        """Walk and compare only."""
        for _ in self._items():
            self._tick()
        self._check_loss()
        return self._baseline.newest, False

    def wet(self) -> tuple[Snapshot | None, bool]:
        self._dataset.history.require_writer()  # before anything is read or sent
        for item in self._items():
            self._take(item)
            self._drain()
            self._tick()
        self._check_loss()
        self._submit()
        self._settle()
        pages, manifest = self._pages.finish()
        self._wait_for_store()
        self._pages.keep_lists()
        self.totals = self._totals()
        self._report(self.progress())
        return self._commit(pages, manifest)

    def _check_loss(self) -> None:
        if not self._options.allow_empty:
            check_loss(self._baseline, self._record.mark, self.changes, self._tree, self.skipped)

    # in order: take, wait, page

    def _take(self, item: Item) -> None:
        waiting = _Waiting(item)
        self._queue.append(waiting)
        if isinstance(item, Changed):
            if item.found.kind != FILE:
                waiting.entry = plain_entry(item)
                return
            link = self._links.of(item.found)
            self._batch.files.append(item)
            self._batch.waiting.append(waiting)
            self._batch.size += item.found.size
            waiting.entry = None if not link else link_only(link)
            if self._batch.size >= BATCH_BYTES or len(self._batch.files) >= BATCH_FILES:
                self._submit()

    def _submit(self) -> None:
        batch, self._batch = self._batch, _Batch()
        if not batch.files:
            return
        while len(self._jobs) >= JOBS_AHEAD:
            self._wait(self._jobs.popleft())
        future = self._readers.submit(self._read, batch.files)
        self._jobs.append(future)
        for index, waiting in enumerate(batch.waiting):
            waiting.batch, waiting.index = future, index

    def _read(self, files: list[Changed]) -> list[Outcome]:
        reader, packer = pair = self._idle.get()
        try:
            return [reader.read(item, packer, checksum=self._options.checksum) for item in files]
        finally:
            self._idle.put(pair)

    def _wait(self, future: Future[list[Outcome]]) -> None:
        while True:
            try:
                future.result(PROGRESS_SECONDS)
            except TimeoutError:
                self._tick()
            else:
                return

    def _drain(self) -> None:
        """Page the entries at the front whose content has its place; when too many wait, seal packs early."""
        while self._queue and self._page(self._queue[0]):
            self._queue.popleft()
        if len(self._queue) >= QUEUE_ENTRIES:
            self._settle()

    def _settle(self) -> None:
        """Page every entry that was taken."""
        self._submit()
        while self._jobs:
            self._wait(self._jobs.popleft())
        for _, packer in self._all:
            packer.seal()
        while self._queue:
            if not self._page(self._queue[0]):
                raise AssertionError("an entry waits for a pack that nobody fills")
            self._queue.popleft()

    def _page(self, waiting: _Waiting) -> bool:
        item = waiting.item
        if isinstance(item, SamePage):
            self._same_page(item)
        elif isinstance(item, SameEntry):
            self._same_entry(item, item.entry, item.stat)
        elif item.found.kind != FILE:
            assert waiting.entry is not None
            self._pages.add(waiting.entry, [], [], FileStat(item.found.ctime, item.found.inode, b""))
        else:
            return self._file(waiting)
        return True

    def _same_page(self, item: SamePage) -> None:
        row = item.row
        if self._pages.at_border:
            self._pages.reuse(row)
            return
        for entry, stat in zip(row.page.entries, row.stats, strict=True):
            self._same_entry(SameEntry(entry, row.page, stat), entry, stat)

    def _same_entry(self, before: SameEntry, entry: Entry, stat: FileStat) -> None:
        chunks = [stored_chunk(chunk, before.page.packs) for chunk in before.entry.chunks]
        lists: list[tuple[ListRef, PackRef]] = [(item, before.page.packs[item.pack]) for item in before.entry.lists]
        self._pages.add(entry, chunks, lists, stat)

    def _file(self, waiting: _Waiting) -> bool:
        if waiting.batch is None or not waiting.batch.done():
            return False
        changed, outcome = waiting.item, waiting.batch.result()[waiting.index]
        assert isinstance(changed, Changed)
        if isinstance(outcome, Skipped):
            self.skipped.append(outcome)
            return True
        link = waiting.entry.link if waiting.entry else b""
        entry = with_link(outcome.entry, link) if link else outcome.entry
        if isinstance(outcome, SameContent):
            self._same_entry(outcome.before, entry, outcome.stat)
            return True
        return self._read_file(outcome, entry, changed.before)

    def _read_file(self, outcome: ReadFile, entry: Entry, before: SameEntry | None) -> bool:
        if any(chunk.pack is None for chunk in outcome.chunks):
            return False
        chunks: list[StoredChunk] = [chunk.settled() for chunk in outcome.chunks]
        self._pages.add(entry, chunks, [], outcome.stat)
        if before is not None and unchanged(entry, outcome, before.entry):
            self.changes.changed -= 1  # it was only read again to be sure
        return True

    # the end

    def _wait_for_store(self) -> None:
        for _, packer in self._all:
            packer.finish()
        self._store.finish()

    def _totals(self) -> Totals:
        t = self._pages.totals
        return Totals(t.entries, t.files, t.directories, t.symlinks, t.bytes, t.hole_bytes, len(self.skipped))

    def _commit(self, pages: list[tuple[PageRef, PackRef]], manifest: bytes) -> tuple[Snapshot | None, bool]:
        status = self._tree.root_stat
        xattrs = read_xattrs(self._tree.directory(b"").fd) if self._options.xattrs else ()
        root = Root(status.st_mode & 0o7777, status.st_mtime_ns, xattrs)
        history, newest = self._dataset.history, self._baseline.newest
        same = newest is not None and newest.body.manifest == manifest and newest.body.root == root
        if same and newest is not None:
            history.publish(newest)  # adopts a snapshot whose writer died before its head
            self._finish(pages, newest)
            return newest, False
        trusted, keyset, lists = self._dataset.trusted, self._dataset.keyset, write_page_lists(pages)
        body = Body(
            self._dataset.id,
            1,
            ZERO_ID,
            0,
            self._dataset.keyring.epoch,
            (keyset.keyset.version, keyset.digest),
            (trusted.root.version, trusted.digest),
            self._source,
            self._options.tool,
            self._options.message,
            "cdc" if self._options.chunker == "cdc" else "fixed",
            b"",
            root,
            self.totals,
            manifest,
            tuple(hash_bytes(item) for item in lists),
        )
        if time.time_ns() - self._scanned > GRACE_MS // 2 * 1_000_000:
            raise StorageUnavailable(
                "the push took more than half of prune's grace time: "
                "run the same line again, it goes on from its journal"
            )
        history.check_current()
        snapshot = history.commit(body, lists, lambda: self._baseline.check_condemned(pages, self._record))
        self._finish(pages, snapshot)
        return snapshot, True

    def _finish(self, pages: list[tuple[PageRef, PackRef]], snapshot: Snapshot) -> None:
        device, inode = self._tree.root_stat.st_dev, self._tree.root_stat.st_ino
        mark = SourceMark(snapshot.id, snapshot.body.seq, device, inode, self.totals.entries, int(time.time() * 1000))
        self._record.commit(pages, mark)
        self._dataset.history.evidence.save()
