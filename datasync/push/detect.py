"""What changed since the last push of this source: a merge of the walk with the record, page by page.

A page whose every entry is as before is passed on whole, so an unchanged million files costs no encoding. A file counts
as unchanged when size, mtime, ctime, inode and mode are those of the record, and neither time lies within 2 s of that
record's scan or after it (racy: such a file is read again). What moved within the source is counted, so that a rename
is no loss. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from datasync.format.page import Page
from datasync.model.entries import FILE, Entry, sort_key
from datasync.push.moves import Moves
from datasync.push.record import FileStat, PageRow
from datasync.push.scan import Found

RACY_NS = 2_000_000_000  # the coarsest timestamps in use are FAT's, 2 s


@dataclass(frozen=True, slots=True)
class SamePage:
    """A page of the last snapshot that is still true."""

    row: PageRow


@dataclass(frozen=True, slots=True)
class SameEntry:
    """An entry that is still true, in a page that is not."""

    entry: Entry
    page: Page
    stat: FileStat


@dataclass(frozen=True, slots=True)
class Changed:
    """An entry that is new, or not surely the same; `before` is what the record has under its path."""

    found: Found
    before: SameEntry | None


@dataclass(slots=True)
class Changes:
    """Counts, complete when the iteration ends."""

    found: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    known: int = field(default=0)
    moves: Moves = field(default_factory=Moves)


Item = SamePage | SameEntry | Changed


def detect(
    walk: Iterable[Found], pages: Iterable[PageRow], changes: Changes, *, checksum: bool = False
) -> Iterator[Item]:
    """Yield the items of the new manifest in order; *checksum*: trust no file's times."""
    merge = _Merge(iter(walk), changes, checksum=checksum)
    rows = iter(pages)
    row = next(rows, None)
    while row is not None:
        following = next(rows, None)
        yield from merge.page(row, None if following is None else sort_key(following.page.entries[0].path))
        row = following
    yield from merge.rest()


class _Merge:
    def __init__(self, walk: Iterator[Found], changes: Changes, *, checksum: bool) -> None:
        self._walk = walk
        self._changes = changes
        self._checksum = checksum
        self._next: Found | None = None
        self._key = b""
        self._step()

    def _step(self) -> None:
        self._next = next(self._walk, None)
        if self._next is not None:
            self._key = sort_key(self._next.path)
            self._changes.found += 1

    def rest(self) -> Iterator[Item]:
        """Yield what comes after the last page."""
        while self._next is not None:
            yield self._new()

    def _new(self) -> Changed:
        found = self._next
        assert found is not None
        self._changes.added += 1
        if self._changes.known:
            self._came(found)
        self._step()
        return Changed(found, None)

    def _came(self, found: Found) -> None:
        self._changes.moves.came(found.inode, found.mtime, found.size, found.kind)

    def page(self, row: PageRow, following: bytes | None) -> Iterator[Item]:
        """Yield the items in the range of *row*, which ends before the key *following*."""
        entries, stats = row.page.entries, row.stats
        self._changes.known += len(entries)
        racy = row.scanned - RACY_NS
        index = 0
        while index < len(entries) and self._next is not None and self._next.path == entries[index].path:
            if not self._same(self._next, entries[index], stats[index], racy):
                break
            self._step()
            index += 1
        untouched = self._next is None or (following is not None and self._key >= following)
        if index == len(entries) and untouched:
            yield SamePage(row)
            return
        for done in range(index):
            yield SameEntry(entries[done], row.page, stats[done])
        yield from self._remainder(row, index, following, racy)

    def _remainder(self, row: PageRow, index: int, following: bytes | None, racy: int) -> Iterator[Item]:
        entries, stats = row.page.entries, row.stats
        while index < len(entries):
            entry = entries[index]
            key = sort_key(entry.path)
            if self._next is None or self._key > key:
                self._changes.removed += 1
                self._changes.moves.gone(stats[index].inode, entry.mtime, entry.size, entry.kind)
                index += 1
            elif self._key < key:
                yield self._new()
            else:
                yield self._both(self._next, SameEntry(entry, row.page, stats[index]), racy)
                index += 1
        while self._next is not None and (following is None or self._key < following):
            yield self._new()

    def _both(self, found: Found, before: SameEntry, racy: int) -> Item:
        same = self._same(found, before.entry, before.stat, racy)
        self._step()
        if same:
            return before
        self._changes.changed += 1
        if found.inode != before.stat.inode:  # renamed to a path that was taken
            self._came(found)
        return Changed(found, before)

    def _same(self, found: Found, entry: Entry, stat: FileStat, racy: int) -> bool:
        if (
            found.kind != entry.kind
            or found.mtime != entry.mtime
            or found.mode != entry.mode
            or found.target != entry.target
            or found.xattrs != entry.xattrs
        ):
            return False
        if found.kind != FILE:
            return True
        return (
            found.size == entry.size
            and found.ctime == stat.ctime
            and found.inode == stat.inode
            and found.mtime < racy
            and found.ctime < racy
            and not self._checksum
        )
