"""Bring the record in line with the repository before a push: what may be relied on,
and what must be read or asked for again.

The record may be relied on while the newest snapshot is the one it was made with, or its lists were checked within half
the grace time of prune; otherwise known chunks come from the newest snapshot's pages, and every file is read
(docs/format.md, sections 12 and 13). How long ago that was is told by this machine's clock and, since that may have
been set back, by when the store took the newest list; a time to come tells nothing. A push-only writer can not read
lists: it relies on its record while there is no new one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from datasync.errors import IntegrityError, NotFound, StorageUnavailable
from datasync.format.names import dataset_prefix, pack_name
from datasync.format.page import Page
from datasync.format.snapshot import PageRef
from datasync.model.entries import Entry, PackRef
from datasync.push.record import ChunkRow, Record, SourceMark
from datasync.repository.condemned import condemned_packs
from datasync.repository.manifest import ManifestReader
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import DAY_MS, Snapshot

FEW_PACKS = 16  # so many are asked for one by one
NAMES_LISTED = 1000  # of one request
GRACE_MS = 14 * DAY_MS  # prune deletes a condemned pack after this time
CLOCK_STEP_MS = 5 * 60_000  # by so much clocks are corrected while all is well


@dataclass(frozen=True, slots=True)
class Baseline:
    """The newest snapshot, how many entries it has of this source, the condemned list that was read, and since when
    (ms) this push relies on it.
    """

    dataset: OpenDataset
    newest: Snapshot | None
    entries_of_source: int
    condemned_number: int
    began: int

    def check_condemned(self, pages: Sequence[tuple[PageRef, PackRef]], record: Record) -> None:
        """Raise `StorageUnavailable` when a pack that this push relies on was condemned since it began, or may have
        been: the next try stores it anew.
        """
        self._check_list(pages, record)
        if _now() - self.began > GRACE_MS // 2:  # after the list: a machine may sleep at any moment before
            raise StorageUnavailable(
                "the push took more than half of prune's grace time: "
                "run the same line again, it goes on from its journal"
            )

    def _check_list(self, pages: Sequence[tuple[PageRef, PackRef]], record: Record) -> None:
        number, condemned, _ = condemned_packs(self.dataset.history)
        if number == self.condemned_number:
            return
        if not self.dataset.history.reads:  # what is on the list is not known: nothing of before is relied on
            record.forget(keep_journal=False)
            raise StorageUnavailable("a prune condemned packs since this push began: run the same line again")
        if not condemned:
            return
        own = any(pack.id in condemned for _, pack in pages)
        if own or record.relies_on(condemned, (page.id for page, _ in pages)):
            record.drop_packs(sorted(condemned))
            record.forget(keep_journal=True)
            raise StorageUnavailable("a prune condemned packs that this push relied on: run the same line again")


def synchronise(dataset: OpenDataset, record: Record, root: Path) -> Baseline:
    """Check the record against the repository and return what the push starts from."""
    history, now = dataset.history, _now()
    newest = history.latest()
    number, condemned, stored = condemned_packs(history)
    mark = record.mark
    fresh = mark is not None and _is_fresh(mark, max(now, stored))
    reliable = mark is not None and newest is not None and (mark.snapshot == newest.id or fresh)
    if mark is not None and not history.reads and mark.condemned != number:
        reliable = False
    stale = reliable and not fresh
    if not reliable:
        record.forget(keep_journal=history.reads)
    elif stale:  # the newest snapshot vouches for its own packs; others may have been condemned and deleted since
        record.forget_chunks()
    _check_journal(dataset, record, now)
    if condemned:
        record.drop_packs(sorted(condemned))
        if record.relies_on(condemned):
            record.forget(keep_journal=True)
            reliable = False
    if (stale or not reliable) and newest is not None and history.reads and not newest.body.id_key:
        _learn(dataset, newest, record, condemned)
    return Baseline(dataset, newest, _entries_of(newest, root), number, now)


def _now() -> int:
    return int(time.time() * 1000)


def _is_fresh(mark: SourceMark, now: int) -> bool:
    """Tell whether the lists were checked less than half the grace time ago."""
    return -CLOCK_STEP_MS <= now - mark.checked < GRACE_MS // 2


def _entries_of(newest: Snapshot | None, root: Path) -> int:
    if newest is None:
        return 0
    return (
        newest.body.totals.entries
        if newest.body.source.path == bytes(root.absolute())
        else min(1, newest.body.totals.entries)
    )


def _check_journal(dataset: OpenDataset, record: Record, now: int) -> None:
    """Ask the store for every pack of a push that did not commit; forget those that are too old, not there, or of an
    older epoch: who was revoked when it ended has that epoch's keys.
    """
    waiting, known = record.count_packs()
    listed = waiting > FEW_PACKS and waiting * NAMES_LISTED > known  # a listing takes fewer requests
    is_stored = _listed(dataset) if listed else partial(_has_pack, dataset)
    for some in record.journal():
        gone = [
            pack.id
            for pack, stored in some
            if now - stored > GRACE_MS // 2 or pack.epoch != dataset.keyring.epoch or not is_stored(pack.id)
        ]
        if gone:
            record.drop_packs(gone)


def _has_pack(dataset: OpenDataset, pack: bytes) -> bool:
    try:
        dataset.history.store.stat(pack_name(dataset.id, pack))
    except NotFound:
        return False
    return True


def _listed(dataset: OpenDataset) -> Callable[[bytes], bool]:
    """Return what tells whether a pack is stored, asked in ascending order: one listing beside the questions."""
    names = (item.name for item in dataset.history.store.list(dataset_prefix(dataset.id) + "packs/"))
    at = next(names, "")

    def is_stored(pack: bytes) -> bool:
        nonlocal at
        wanted = pack_name(dataset.id, pack)
        while at and at < wanted:
            at = next(names, "")
        return at == wanted

    return is_stored


def _learn(dataset: OpenDataset, newest: Snapshot, record: Record, condemned: frozenset[bytes]) -> None:
    """Fill the tables of known chunks, chunk lists and pages from the newest snapshot's pages."""
    reader = ManifestReader(dataset.history, newest)
    try:
        for ordinal, (ref, pack, page, _) in enumerate(reader.pages()):
            for entry in page.entries:
                _learn_file(reader, entry, page, record, condemned)
            if pack.id not in condemned:
                record.learn_page(ordinal, ref, pack)
    except (IntegrityError, NotFound) as error:
        raise IntegrityError(
            f"{newest.name}: its manifest cannot be read, so nothing is pushed on top of it: {error}"
        ) from None
    finally:
        record.learned()


def _learn_file(reader: ManifestReader, entry: Entry, page: Page, record: Record, condemned: frozenset[bytes]) -> None:
    for item, chunks in reader.chunk_lists(entry, page):
        record.learn(
            (chunk.id, ChunkRow(chunk.pack, chunk.raw, chunk.stored, chunk.form, chunk.position, chunk.offset))
            for chunk in chunks
            if chunk.pack.id not in condemned
        )
        used = {chunk.pack.id for chunk in chunks}
        if item is None:
            continue
        ref, pack = reader.list_place(item, page)
        if pack.id not in condemned and used.isdisjoint(condemned):
            record.learn_list(ref, pack, sorted(used))
