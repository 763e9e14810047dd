"""Pull and warm, all steps joined: plan -> fetch -> open -> place -> publish. The only module here
that starts threads' work.

Each thread fetches one range into a buffer, opens its chunks and places them; many small files are opened and placed
by processes of their own. A failure stops all. Nothing unverified is ever under a name that counts.
"""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from datasync.cache.beneath import Tree
from datasync.cache.layout import Cache, View
from datasync.cache.objects import Objects
from datasync.cache.ready import Ready, publish_view, stage_view, write_object_list
from datasync.cache.space import Limits, Reservation, Space
from datasync.cache.sums import Sums
from datasync.errors import NoSpace
from datasync.format.page import Page
from datasync.model.entries import FILE, ChunkRef, Entry, StoredChunk
from datasync.model.ids import DatasetId, SnapshotId
from datasync.pull.batch import Batch, Start
from datasync.pull.crew import Crew, size_for
from datasync.pull.directory import DirectoryDestination
from datasync.pull.fetch import Fetcher
from datasync.pull.fileid import file_id
from datasync.pull.place import Placer
from datasync.pull.plan import Job, Plan, small_files
from datasync.pull.select import Selection
from datasync.pull.slots import Slots
from datasync.pull.target import make_target
from datasync.pull.view import ViewDestination
from datasync.pull.writeback import WriteBack
from datasync.repository.manifest import ManifestReader
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot

WORKERS = 4  # ranges in flight, each with a buffer
PROGRESS_SECONDS = 0.1
BLOCK_BYTES = 4096  # a file takes whole blocks
SPACE_MARGIN_BYTES = 16 * 1024 * 1024  # metadata of the target file system


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a transfer is; the totals are known before the first byte is fetched."""

    total_files: int
    total_bytes: int
    files: int
    bytes: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a transfer did: files written, found in place or shared, and bytes fetched from the store."""

    files: int
    kept: int
    written_bytes: int
    fetched_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Planned:
    """What a transfer would do: of `files`, `kept` are there or links to others, `wanted` are to be fetched in `ranges`
    requests; `wanted_bytes` are their data, `needed_bytes` the space that a cache reserves.
    """

    entries: int
    files: int
    bytes: int
    kept: int
    wanted: int
    wanted_bytes: int
    ranges: int
    fetched_bytes: int
    needed_bytes: int


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What READY.json says beside the snapshot: where it came from, what made it, and the node's signature."""

    repository: bytes
    tool: str
    node: str
    sign: Callable[[bytes], bytes]


def pull_to_directory(dataset: OpenDataset, snapshot: Snapshot, target: Path, report: Report) -> PullResult:
    """Make the directory *target* hold what *snapshot* has."""
    started = time.monotonic()
    created = make_target(target)
    with Tree.open(target) as tree:
        destination = DirectoryDestination(tree, snapshot.id, created=created)
        run = _Run(dataset, snapshot, report)
        try:
            run.prepare(destination.accept, lambda entry, digest: False)
            run.check_space(target)
            run.transfer(destination, tree.sync)
            destination.complete(run.plan)
            destination.complete_root(snapshot.body.root)
            tree.sync()
        finally:
            run.close()
    return run.result(started)


def warm_view(
    dataset: OpenDataset,
    snapshot: Snapshot,
    cache: Cache,
    view: View,
    limits: Limits,
    receipt: Receipt,
    report: Report,
    waiting: Callable[[], None] | None = None,
    selection: Selection | None = None,
    *,
    lock_fd: int,
) -> PullResult:
    """Make *view* complete and ready; the caller holds its lock (*lock_fd*) and has found no receipt.

    Space is reserved before the first byte; *waiting* is called while other transfers have to end first.
    """
    started = time.monotonic()
    with Objects.open(cache) as objects, stage_view(cache, view) as tree, closing(Sums(cache.path)) as sums:
        space = Space(cache, limits, reflinks=objects.reflinks)
        destination = ViewDestination(tree, objects)
        run = _Run(dataset, snapshot, report, selection)
        try:
            run.prepare(destination.accept, destination.adopt, lambda count: run.hire(count, tree, objects, lock_fd))
            run.reserved = space.reserve(run.needed_bytes(), view, waiting)
            run.transfer(destination, objects.write_back, sums)
            destination.complete(run.plan)
            destination.complete_root(snapshot.body.root)
            if destination.ids is not None:
                write_object_list(cache, view, destination.ids)
            publish_view(cache, view, _ready(dataset, snapshot, receipt, run), objects.flush)
        finally:
            run.close()
    return run.result(started)


def plan_transfer(
    dataset: OpenDataset,
    snapshot: Snapshot,
    accept: Callable[[Entry, Plan], bool],
    adopt: Callable[[Entry, bytes], bool],
    selection: Selection | None = None,
    room: Path | None = None,
) -> Planned:
    """Return what a transfer would do with these *accept* and *adopt*, which change nothing; only the manifest is
    read. With *room* there is to be space for it at that place.
    """
    run = _Run(dataset, snapshot, lambda _: None, selection)
    try:
        run.prepare(accept, adopt)
        if room is not None:
            run.check_space(room)
        return run.planned()
    finally:
        run.close()


class _Run:
    def __init__(
        self, dataset: OpenDataset, snapshot: Snapshot, report: Report, selection: Selection | None = None
    ) -> None:
        self.plan = Plan()
        self.selection = selection or Selection()
        self.entries = self.files = self.bytes = 0
        self._report = report
        store = dataset.history.store
        self._reader = ManifestReader(dataset.history, snapshot)
        self._fetcher = Fetcher(store, dataset.keyring, self._reader.id_key)
        self._next_report = 0.0
        self._kept = 0
        self._sums: Sums | None = None
        self._placer: Placer | None = None
        self._slots = Slots(WORKERS)
        self._crew: Crew | None = None
        self._hired = False
        self.reserved: Reservation | None = None

    def close(self) -> None:
        """Drop the plan and what is left of the reserved space; unfinished files stay under names that do not count."""
        if self._crew is not None:
            self._crew.close()
        self._slots.close()
        if self.reserved is not None:
            self.reserved.release()
        if self._placer is not None:
            self._placer.close()
        self.plan.close()

    def prepare(
        self,
        accept: Callable[[Entry, Plan], bool],
        adopt: Callable[[Entry, bytes], bool],
        hire: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Read the manifest; make what needs no fetch and plan the rest.

        *hire* is told how many small files are planned so far: workers start while the rest is planned.
        """
        for _, _, page, _ in self._reader.pages():
            for entry in page.entries:
                for chosen in self.selection.chosen(entry):
                    self._prepare(chosen, page, accept, adopt)
                self._tick()
            hire(self.plan.small_files)

    def _prepare(
        self, entry: Entry, page: Page, accept: Callable[[Entry, Plan], bool], adopt: Callable[[Entry, bytes], bool]
    ) -> None:
        self.entries += 1
        self.files += entry.kind == FILE
        self.bytes += entry.size
        if not accept(entry, self.plan):
            self._kept += entry.kind == FILE
            return
        digest = file_id(self._reader.id_key, entry, self._chunk_ids(entry, page))
        if adopt(entry, digest):
            self._kept += 1
            return
        chunks = self._reader.chunks(entry, page) if entry.lists else self._reader.own_chunks(entry, page)
        self.plan.want(entry, digest, chunks, self.selection.priority(entry.path))

    def _chunk_ids(self, entry: Entry, page: Page) -> Iterable[bytes]:
        """Return the ids of a file's chunks; those in chunk lists come one by one, are read twice and never held."""
        chunks: Iterable[ChunkRef | StoredChunk] = self._reader.chunks(entry, page) if entry.lists else entry.chunks
        return (chunk.id for chunk in chunks)

    def needed_bytes(self) -> int:
        """Return what is reserved in a cache for the files that are to be fetched."""
        return self.plan.bytes + BLOCK_BYTES * self.plan.files

    def planned(self) -> Planned:
        """Return what `transfer` would do."""
        ranges = fetched = 0
        for job in self.plan.jobs(WORKERS):
            ranges += 1
            fetched += job.end - job.start
        found = (self.entries, self.files, self.bytes, self._kept)
        return Planned(*found, self.plan.files, self.plan.bytes, ranges, fetched, self.needed_bytes())

    def check_space(self, where: Path) -> None:
        """Raise `NoSpace` before anything is fetched that can not be kept."""
        status = os.statvfs(where if where.exists() else where.parent)
        free = status.f_bavail * status.f_frsize
        if self.plan.bytes + SPACE_MARGIN_BYTES > free:
            raise NoSpace(
                f"{where}: {self.plan.bytes} bytes are to be written, {free} are free: "
                "make room, or choose another disk"
            )

    def hire(self, small_files: int, staging: Tree, objects: Objects, lock_fd: int) -> None:
        """Start processes for so many *small_files*, if they are worth it and not there yet."""
        size = size_for(small_files)
        if size and not self._hired:
            self._hired = True
            fds = (self._slots.fd, staging.root_fd, objects.fd, lock_fd)
            with contextlib.suppress(OSError):  # no process can be started here: threads do the work
                self._crew = Crew(size, fds, Start(self._fetcher.id_key, objects.reflinks))

    def transfer(
        self,
        destination: DirectoryDestination | ViewDestination,
        write_back: Callable[[], None],
        sums: Sums | None = None,
    ) -> None:
        """Fetch, open and place everything that was planned; *write_back* writes out what is there so far."""
        self._sums = sums
        self._placer = placer = Placer(destination, sums)
        for file in self.plan.empty_files():
            placer.empty(file)
        with (
            closing(WriteBack(write_back)) as written_back,
            ThreadPoolExecutor(WORKERS, thread_name_prefix="fetch") as threads,
        ):
            running: deque[Future[None]] = deque()
            try:
                for job in self.plan.jobs(WORKERS):
                    running.append(threads.submit(self._work, job, placer))
                    while len(running) > 2 * WORKERS:
                        self._take(running, written_back)
                while running:
                    self._take(running, written_back)
            finally:
                for future in running:
                    future.cancel()
        if self._crew is not None:
            self._crew.close()  # before the flush: a worker's marker is then a dead one's, and goes with it
        self._report(self._progress())

    def _work(self, job: Job, placer: Placer) -> None:
        with self._slots.take() as slot:
            sealed = self._fetcher.fetch(job, slot.buffer)
            if job.small and self._crew is not None:
                self._give(self._crew, job, slot.start, placer)
            elif job.small:
                self._place_small(job, sealed, placer)
            if job.wanted:
                raws = self._fetcher.chunks(job, sealed, [ref for ref, _ in job.wanted])
                for (_, targets), raw in zip(job.wanted, raws, strict=True):
                    for file, at in targets:
                        placer.write(file, at, raw)

    def _place_small(self, job: Job, sealed: memoryview, placer: Placer) -> None:
        files = small_files(job.small)
        for small, raw in zip(files, self._fetcher.chunks(job, sealed, [s.chunk for s in files]), strict=True):
            placer.write(small.file, small.at, raw)

    def _give(self, crew: Crew, job: Job, start: int, placer: Placer) -> None:
        """Have the small files of *job* placed by a worker."""
        opener, head = self._fetcher.opener(job)
        batch = Batch(self._fetcher.name(job), opener.hand_over(), head, start - job.start, job.small)
        done = crew.place(batch)
        placer.placed(done.files, done.bytes)
        if self._sums is not None:
            self._sums.note_all(done.placed)

    def _take(self, running: deque[Future[None]], written_back: WriteBack) -> None:
        done, _ = wait(running, PROGRESS_SECONDS, FIRST_COMPLETED)
        for future in done:
            running.remove(future)
            future.result()
        if self._placer is not None:
            written_back.note(self._placer.bytes)
        self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + PROGRESS_SECONDS
            if self.reserved is not None and self._placer is not None:
                self.reserved.written(self._placer.finished_bytes)
            self._report(self._progress())

    def _progress(self) -> Progress:
        done = self._placer
        return Progress(
            self.plan.files,
            self.plan.bytes,
            done.files if done else 0,
            done.bytes if done else 0,
            self._fetcher.fetched_bytes,
        )

    def result(self, started: float) -> PullResult:
        """Return what was done."""
        written = self._placer.bytes if self._placer else 0
        return PullResult(self.plan.files, self._kept, written, self._fetcher.fetched_bytes, time.monotonic() - started)


def _ready(dataset: OpenDataset, snapshot: Snapshot, receipt: Receipt, run: _Run) -> Ready:
    ready = Ready(
        dataset.name,
        DatasetId(dataset.id),
        receipt.repository,
        snapshot.body.seq,
        SnapshotId(snapshot.id),
        snapshot.body.manifest,
        run.entries,
        run.files,
        run.bytes,
        datetime.now(UTC).replace(microsecond=0),
        receipt.tool,
        run.selection.subset,
        receipt.node,
    )
    return ready.signed(receipt.sign)
