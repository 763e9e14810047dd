"""Push, all steps joined: scan -> detect -> chunk -> seal -> pack -> store -> commit. The only module here
that starts threads' work.

Two readers chunk and seal, a few senders store; entries wait in order until their packs are sealed, so memory is the
buffer pool, the entries of the packs in it, and one page. Nothing is visible before `commit`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from datasync.chunker import Cutter, cdc, fixed
from datasync.errors import UsageError
from datasync.format import pack as packs
from datasync.format.snapshot import PageRef, Source, Totals, write_page_lists
from datasync.model.entries import FILE, Entry, ListRef, PackRef, StoredChunk
from datasync.model.limits import MIB
from datasync.push.buffers import BufferPool
from datasync.push.census import Census, data_bytes
from datasync.push.chunk import FileReader, Outcome, ReadFile, SameContent
from datasync.push.commit import body_of, root_of
from datasync.push.detect import Changed, Changes, Item, SameEntry, SamePage, detect
from datasync.push.entry import link_only, plain_entry, unchanged, with_link
from datasync.push.guard import check_loss, check_source
from datasync.push.ignore import IgnoreRules
from datasync.push.index import ChunkIndex, Placed
from datasync.push.links import LinkGroups
from datasync.push.options import Progress, PushOptions, PushResult
from datasync.push.pack import Packer
from datasync.push.page import KnownPage, PageWriter
from datasync.push.record import FileStat, Record, SourceMark
from datasync.push.scan import Skipped, scan
from datasync.push.source import SourceTree
from datasync.push.store import PackStore
from datasync.push.sync import Baseline, synchronise
from datasync.push.waiting import Batch, Waiting
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
CENSUS_SECONDS = 2.0  # a push that takes no longer needs no total
SCAN, READ, SEND, COMMIT = "scanning", "reading", "sending", "committing"


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
        known = record.mark is not None  # asked before the record may be forgotten
        baseline = synchronise(dataset, record, root)
        if not (options.source_change or known):
            check_source(dataset, baseline.newest, source)
        run = _Run(dataset, tree, record, source, options, baseline, report)
        try:
            snapshot, created = run.dry() if options.dry_run else run.wet()
        finally:
            run.close()
        return PushResult(
            snapshot,
            created,
            run.totals,
            run.changes,
            run.progress(),
            run.skipped,
            time.monotonic() - started,
            run.unsettled,
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
        self.unsettled = 0
        self.changes = Changes()
        self.totals = Totals(0, 0, 0, 0, 0, 0, 0)
        self._scanned = time.time_ns()
        self._next_report = 0.0
        self._started = time.monotonic()
        self._stage = SCAN
        self._kept_bytes = self._changed_bytes = 0
        self._census = Census(tree.root, options) if options.count_ahead else None
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
            keyring.fixed,
            record,
            self._packer(packs.METADATA),
            self._packer(packs.METADATA, lambda lists: self._pages.lists_stored(lists)),
            self._scanned,
        )
        self._queue: deque[Waiting] = deque()
        self._jobs: deque[Future[list[Outcome]]] = deque()
        self._batch = Batch()

    def _cutter(self) -> Cutter:
        return cdc(self._dataset.keyring.fixed.chunker_seed) if self._options.chunker == "cdc" else fixed()

    def _packer(self, type_: int, stored: Callable[[list[Placed]], None] = lambda _: None) -> Packer:
        return Packer(self._dataset.keyring, type_, self._pool, self._store, stored)

    def close(self) -> None:
        if self._census is not None:
            self._census.stop()
        self._pool.fail(UsageError("the push has ended"))
        for reader, _ in self._all:
            reader.stopped = True
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._store.close()

    def progress(self) -> Progress:
        read = sum(reader.read_bytes for reader, _ in self._all)
        new = sum(reader.new_bytes for reader, _ in self._all)
        sent, found, kept = self._store.sent_bytes, self.changes.found, self._kept_bytes
        reading = next((path for reader, _ in self._all if (path := reader.reading)), b"")
        return Progress(found, read, new, sent, kept, *self._total(), self._stage, reading)

    def _total(self) -> tuple[int | None, int | None]:
        """Return entries and bytes altogether, once the walk has ended or the census has."""
        if self._stage != SCAN:
            return self.changes.found, self._kept_bytes + self._changed_bytes
        counted = self._census.total if self._census is not None else None
        return counted or (None, None)

    def _items(self) -> Iterator[Item]:
        rules = IgnoreRules(include=self._options.include, exclude=self._options.exclude)
        walk = scan(
            self._tree,
            rules,
            self.skipped.append,
            xattrs=self._options.xattrs,
            one_file_system=self._options.one_file_system,
        )
        items = detect(walk, self._record.pages(), self.changes, checksum=self._options.checksum)
        return self._settled(items) if self._options.settle_seconds else items

    def _settled(self, items: Iterator[Item]) -> Iterator[Item]:
        """Keep a file that is still being written as it was, leave a new one out; the next push takes both."""
        horizon = self._scanned - int(self._options.settle_seconds * 1e9)
        for item in items:
            written = isinstance(item, Changed) and item.found.kind == FILE and item.found.mtime
            if not written or not horizon < written <= time.time_ns():  # a time to come says nothing
                yield item
                continue
            self.unsettled += 1
            before = item.before if isinstance(item, Changed) else None
            if before is not None and before.entry.kind == FILE:
                yield before

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._next_report:
            if self._census is not None and now > self._started + CENSUS_SECONDS:
                self._census.start()
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
        self._stage = READ
        self._submit()
        self._settle()
        self._stage = SEND
        pages, manifest = self._pages.finish()
        self._wait_for_store()
        self.totals = self._totals()
        self._stage = COMMIT
        self._report(self.progress())
        return self._commit(pages, manifest)

    def _check_loss(self) -> None:
        if not self._options.allow_empty:
            check_loss(
                self._baseline, self._record.mark, self.changes, self._tree, self.skipped, self._options.max_loss
            )

    # in order: take, wait, page

    def _take(self, item: Item) -> None:
        if isinstance(item, SamePage):
            totals = item.row.totals
            self._kept_bytes += totals.bytes - totals.hole_bytes
            self._queue.append(Waiting(KnownPage(item.row.ref, item.row.pack, totals)))
            return
        waiting = Waiting(item)
        self._queue.append(waiting)
        if isinstance(item, SameEntry):
            self._kept_bytes += item.entry.size
        else:
            if item.found.kind != FILE:
                waiting.entry = plain_entry(item)
                return
            self._changed_bytes += data_bytes(item.found)
            link = self._links.of(item.found)
            self._batch.files.append(item)
            self._batch.waiting.append(waiting)
            self._batch.size += item.found.size
            waiting.entry = None if not link else link_only(link)
            if self._batch.size >= BATCH_BYTES or len(self._batch.files) >= BATCH_FILES:
                self._submit()

    def _submit(self) -> None:
        batch, self._batch = self._batch, Batch()
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
            return reader.read(files, packer, checksum=self._options.checksum)
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

    def _page(self, waiting: Waiting) -> bool:
        item = waiting.item
        if isinstance(item, KnownPage):
            self._same_page(item)
        elif isinstance(item, SameEntry):
            self._same_entry(item, item.entry, item.stat)
        elif item.found.kind != FILE:
            assert waiting.entry is not None
            self._pages.add(waiting.entry, [], [], FileStat(item.found.ctime, item.found.inode, b""))
        else:
            return self._file(waiting)
        return True

    def _same_page(self, known: KnownPage) -> None:
        if self._pages.at_border:
            self._pages.reuse(known)
            return
        page, stats = self._record.content(known.ref.id)
        for entry, stat in zip(page.entries, stats, strict=True):
            self._same_entry(SameEntry(entry, page, stat), entry, stat)

    def _same_entry(self, before: SameEntry, entry: Entry, stat: FileStat) -> None:
        chunks = [stored_chunk(chunk, before.page.packs) for chunk in before.entry.chunks]
        lists: list[tuple[ListRef, PackRef]] = [(item, before.page.packs[item.pack]) for item in before.entry.lists]
        self._pages.add(entry, chunks, lists, stat)

    def _file(self, waiting: Waiting) -> bool:
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
        self._store.finish(self._tick)

    def _totals(self) -> Totals:
        t = self._pages.totals
        return Totals(t.entries, t.files, t.directories, t.symlinks, t.bytes, t.hole_bytes, len(self.skipped))

    def _commit(self, pages: list[tuple[PageRef, PackRef]], manifest: bytes) -> tuple[Snapshot | None, bool]:
        root = root_of(self._tree, xattrs=self._options.xattrs)
        history, newest = self._dataset.history, self._baseline.newest
        same = newest is not None and newest.body.manifest == manifest and newest.body.root == root
        if same and newest is not None:
            history.publish(newest)  # adopts a snapshot whose writer died before its head
            self._finish(pages, newest)
            return newest, False
        lists = write_page_lists(pages)
        body = body_of(self._dataset, self._source, self._options, root, self.totals, manifest, lists)
        history.check_current()
        snapshot = history.commit(body, lists, lambda: self._baseline.check_condemned(pages, self._record))
        self._finish(pages, snapshot)
        return snapshot, True

    def _finish(self, pages: list[tuple[PageRef, PackRef]], snapshot: Snapshot) -> None:
        device, inode = self._tree.root_stat.st_dev, self._tree.root_stat.st_ino
        now, number = int(time.time() * 1000), self._baseline.condemned_number
        mark = SourceMark(snapshot.id, snapshot.body.seq, device, inode, self.totals.entries, now, number)
        self._record.commit(pages, mark)
        self._dataset.history.evidence.save()
