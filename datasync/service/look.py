"""Look at a repository: datasets, entries, history, differences, sizes. Reads only."""

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from datasync.errors import NotAuthorized, NotFound
from datasync.format.page import Page
from datasync.format.signed import read_signed
from datasync.format.snapshot import Body, read_body
from datasync.model.entries import DIRECTORY, Entry, sort_key
from datasync.repository.forgotten import name_of, refresh
from datasync.repository.forgotten_table import Gone
from datasync.repository.id_set import IdSet
from datasync.repository.manifest import ManifestReader
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import HEAD_LIFE_MS, History, Snapshot
from datasync.repository.tags import read_all
from datasync.service.authorize import authorize
from datasync.service.record import recorded
from datasync.service.session import Session


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """One dataset; `expires` in ms, `stale` when more than half of its head's life is over; None without a snapshot."""

    name: str
    trust: str
    newest: Snapshot | None
    expires: int | None
    stale: bool
    tags: dict[str, int]
    writable: bool
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs: `added`, `removed`, `changed` (content) or `metadata`."""

    kind: str
    path: bytes
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Sizes in bytes: of the files, of their unique chunks, of the packs that hold them
    (padding and pages included).
    """

    snapshots: int
    raw: int
    deduplicated: int
    stored: int
    files: int
    packs: int


def status(session: Session) -> tuple[list[DatasetStatus], int]:
    """Return every dataset that opens, and how many do not."""
    with recorded(session, "look", durable=False) as event:
        found, closed = listed(session)
        event.note(datasets=len(found), closed=closed)
        return [_status(dataset) for dataset in found], closed


def listed(session: Session) -> tuple[list[OpenDataset], int]:
    """Return the datasets that open and that the policy in force lets this identity list, and how many do not open."""
    found, closed = session.repository.open_all()
    return [dataset for dataset in found if _listable(session, dataset)], closed


def _listable(session: Session, dataset: OpenDataset) -> bool:
    try:
        authorize(session, "ListDatasets", dataset)
    except NotAuthorized:
        return False
    return True


def _status(dataset: OpenDataset) -> DatasetStatus:
    history = dataset.history
    newest = history.newest(fresh=False)
    head = history.head()
    history.evidence.save()
    expires = head.head.expires if head else None
    stale = expires is not None and expires - history.now() < HEAD_LIFE_MS // 2
    tags = {name: item.seq for name, item in read_all(history).items()}
    writable = history.signer is not None and history.signer.public in dataset.trusted.root.with_role(2)
    forgotten = refresh(history).count()
    return DatasetStatus(dataset.name, dataset.id.hex(), newest, expires, stale, tags, writable, forgotten)


def entries(dataset: OpenDataset, snapshot: Snapshot, path: bytes, *, recursive: bool) -> Iterator[Entry]:
    """Yield the entries at and beneath *path* (empty: all), or only its direct children;
    `NotFound` when there are none.
    """
    reader = ManifestReader(dataset.history, snapshot)
    path = path.strip(b"/")
    low, high = sort_key(path), sort_key(path) + b"\1"
    refs = snapshot.pages()
    firsts = [sort_key(ref.first) for ref, _ in refs]
    start = max(0, bisect_right(firsts, low) - 1)
    end = bisect_right(firsts, high) if path else len(refs)
    found = not path
    for _, _, page, _ in reader.pages(start=start, end=end):
        for entry in page.entries:
            if not _beneath(entry.path, path):
                continue
            found = True
            rest = entry.path[len(path) :].strip(b"/") if path else entry.path
            if entry.path == path and entry.kind == DIRECTORY and not recursive:
                continue
            if recursive or b"/" not in rest:
                yield entry
    if not found:
        raise NotFound(f"{snapshot.name}: no entry {path.decode(errors='backslashreplace')!r}")


def _beneath(candidate: bytes, path: bytes) -> bool:
    return not path or candidate == path or candidate.startswith(path + b"/")


def log(dataset: OpenDataset) -> Iterator[Snapshot]:
    """Yield the dataset's snapshots, newest first."""
    dataset.history.newest(fresh=False)
    for item in dataset.history.line():
        yield dataset.history.read_object(item)


@dataclass(frozen=True, slots=True)
class ForgottenSnapshot:
    """A snapshot that is gone: what its signed header says, when it was forgotten (ms), and by whom."""

    id: bytes
    body: Body
    forgotten: int
    by: str


def log_all(dataset: OpenDataset) -> Iterator[Snapshot | ForgottenSnapshot]:
    """Yield the dataset's snapshots, newest first, those that were forgotten among them."""
    history = dataset.history
    above = history.newest(fresh=False)
    line = history.line()
    gone = history.forgotten.below(line[0].number if above is not None and line else 0)
    names: dict[bytes, str] = {}
    following = next(gone, None)
    for item in line:
        while following is not None and following.seq > item.number:
            yield _forgotten(history, following, names)
            following = next(gone, None)
        yield history.read_object(item)
    while following is not None:
        yield _forgotten(history, following, names)
        following = next(gone, None)


def _forgotten(history: History, gone: Gone, names: dict[bytes, str]) -> ForgottenSnapshot:
    what = f"snapshot {gone.seq} (forgotten)"
    if gone.by not in names:
        names[gone.by] = name_of(history, gone.by)
    body = read_body(read_signed(gone.header, what).body, what)
    return ForgottenSnapshot(gone.id, body, gone.forgotten, names[gone.by])


def difference(dataset: OpenDataset, before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    """Yield what differs between two snapshots, in order; pages that both have are not read."""
    pages = [[ref.id for ref, _ in snapshot.pages()] for snapshot in (before, after)]
    shared = frozenset(pages[0]) & frozenset(pages[1])
    old = _entries_outside(dataset, before, shared)
    new = _entries_outside(dataset, after, shared)
    left, right = next(old, None), next(new, None)
    while left is not None or right is not None:
        if right is None or (left is not None and sort_key(left[0].path) < sort_key(right[0].path)):
            assert left is not None
            yield Difference("removed", left[0].path, left[0], None)
            left = next(old, None)
        elif left is None or sort_key(right[0].path) < sort_key(left[0].path):
            yield Difference("added", right[0].path, None, right[0])
            right = next(new, None)
        else:
            kind = _compare(left, right)
            if kind:
                yield Difference(kind, right[0].path, left[0], right[0])
            left, right = next(old, None), next(new, None)


Keyed = tuple[Entry, tuple[object, ...]]


def _entries_outside(dataset: OpenDataset, snapshot: Snapshot, shared: frozenset[bytes]) -> Iterator[Keyed]:
    reader = ManifestReader(dataset.history, snapshot)
    for _, _, page, _ in reader.pages(skip=shared):
        for entry in page.entries:
            content = tuple(chunk.id for chunk in entry.chunks) + tuple(item.id for item in entry.lists)
            yield entry, (entry.kind, entry.size, entry.target, entry.holes, content)


def _compare(left: Keyed, right: Keyed) -> str:
    if left[1] != right[1]:
        return "changed"
    one, other = left[0], right[0]
    same = (one.mode, one.mtime, one.xattrs, one.link) == (other.mode, other.mtime, other.xattrs, other.link)
    return "" if same else "metadata"


def _chunks(reader: ManifestReader, page: Page, used: dict[bytes, int]) -> Iterator[tuple[bytes, int]]:
    """Yield id and length of each chunk of *page*; enter the size of each pack that holds one, or a chunk list."""
    for entry in page.entries:
        for chunk in reader.chunks(entry, page):
            used[chunk.pack.id] = chunk.pack.size
            yield chunk.id, chunk.raw
        for item in entry.lists:
            pack = reader.list_place(item, page)[1]
            used[pack.id] = pack.size


def usage(dataset: OpenDataset, snapshots: list[Snapshot]) -> Usage:
    """Return the sizes of *snapshots* together: what they share counts once in all but `raw`."""
    db = sqlite3.connect("")
    db.executescript(
        "PRAGMA journal_mode = OFF; PRAGMA cache_size = -16384;"
        "CREATE TABLE chunks (id BLOB, raw INTEGER);"  # sorted at the end: at once is cheaper than one by one
        "CREATE TABLE packs (id BLOB PRIMARY KEY, size INTEGER) WITHOUT ROWID;"
    )
    seen = IdSet()
    raw = files = stored = 0
    for snapshot in snapshots:
        raw += snapshot.body.totals.bytes
        files += snapshot.body.totals.files
        stored += snapshot.stored
        reader = ManifestReader(dataset.history, snapshot)
        for ref, pack, page, _ in reader.pages(skip=seen):
            seen.add(ref.id)
            db.execute("INSERT OR IGNORE INTO packs VALUES (?, ?)", (pack.id, pack.size))
            used: dict[bytes, int] = {}
            db.executemany("INSERT INTO chunks VALUES (?, ?)", _chunks(reader, page, used))
            db.executemany("INSERT OR IGNORE INTO packs VALUES (?, ?)", used.items())
    unique = db.execute("SELECT coalesce(sum(raw), 0) FROM (SELECT max(raw) raw FROM chunks GROUP BY id)").fetchone()[0]
    packs, size = db.execute("SELECT count(*), coalesce(sum(size), 0) FROM packs").fetchone()
    db.close()
    seen.close()
    return Usage(len(snapshots), raw, unique, stored + size, files, packs)
