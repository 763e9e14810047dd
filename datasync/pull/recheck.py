"""Check a view, file by file, against the signed snapshot: every name, attribute and byte.

Holes are not read where the file has them.

Yields what is wrong and goes on. Raises only when the manifest itself can not be read.
"""

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from datasync.cache.beneath import Tree
from datasync.cache.faults import shown
from datasync.cache.kernel import entries_in
from datasync.cache.objects import read_only
from datasync.crypto.hashing import keyed_hash
from datasync.errors import DatasyncError
from datasync.model.entries import DIRECTORY, FILE, Entry, StoredChunk
from datasync.model.limits import CHUNK_BYTES, MIB
from datasync.pull.fileid import file_id
from datasync.pull.select import Selection
from datasync.repository.manifest import ManifestReader
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot

HOLE_READ_BYTES = 1 * MIB
Read = Callable[[int, int, int], memoryview]
"""fd, length, position: returns what is there."""
_FORMATS = {FILE: stat.S_IFREG, DIRECTORY: stat.S_IFDIR}


class Damage(NamedTuple):
    """One path that is not what the snapshot has; `object` is the file's id in the cache, empty for other entries."""

    path: bytes
    what: str
    object: bytes


def recheck(
    dataset: OpenDataset,
    snapshot: Snapshot,
    tree: Tree,
    *,
    subset: tuple[str, ...] = (),
    clean: frozenset[int] = frozenset(),
    pace: Callable[[int], None] = lambda _: None,
) -> Iterator[Damage]:
    """Yield everything in the view *tree* that differs from *snapshot*, or from the *subset* of it that the view has.

    Files whose inode is in *clean* were compared with their record just now: their bytes are not read again.
    *pace* is called with the bytes of each read before it, and may wait.
    """
    reader = ManifestReader(dataset.history, snapshot)
    buffer = memoryview(bytearray(CHUNK_BYTES))

    def read(fd: int, length: int, position: int) -> memoryview:
        pace(length)
        return buffer[: os.preadv(fd, [buffer[:length]], position)]

    selection, wanted = Selection(subset), 0
    for listed, page in reader.entries():
        for entry in selection.chosen(listed):
            wanted += 1
            found = list(reader.chunks(entry, page)) if entry.kind == FILE else []
            why = _entry(tree, entry, found, reader.id_key, read, clean)
            if why:
                digest = file_id(reader.id_key, entry, (c.id for c in found)) if entry.kind == FILE else b""
                yield Damage(entry.path, why, digest)
    extra = _count(tree) - wanted
    if extra:
        yield Damage(b"", f"the view has {extra:+d} entries beside the snapshot's {wanted}", b"")


def _entry(
    tree: Tree,
    entry: Entry,
    chunks: list[StoredChunk],
    id_key: bytes,
    read: Read,
    clean: frozenset[int],
) -> str:
    try:
        status = tree.lstat(entry.path)
        if status is None:
            return "it is missing"
        if stat.S_IFMT(status.st_mode) != _FORMATS.get(entry.kind, stat.S_IFLNK):
            return "it is another kind of entry"
        if status.st_mtime_ns != entry.mtime:
            return f"expected mtime {entry.mtime}, found {status.st_mtime_ns}"
        if entry.kind not in _FORMATS:
            return ""
        if stat.S_IMODE(status.st_mode) != read_only(entry.mode):
            return f"expected mode {read_only(entry.mode):04o}, found {stat.S_IMODE(status.st_mode):04o}"
        if entry.kind != FILE or (status.st_ino in clean and status.st_size == entry.size):
            return ""
        return _file(tree, entry, status, chunks, id_key, read)
    except DatasyncError as error:
        return str(error)


def _file(
    tree: Tree, entry: Entry, status: os.stat_result, chunks: list[StoredChunk], id_key: bytes, read: Read
) -> str:
    if status.st_size != entry.size:
        return f"expected {entry.size} bytes, found {status.st_size}"
    fd = tree.open_file(entry.path)
    try:
        return _content(fd, entry, chunks, id_key, read)
    except OSError as error:
        return f"it cannot be read: {error.strerror} ({shown(entry.path)})"
    finally:
        os.close(fd)


def _content(fd: int, entry: Entry, chunks: list[StoredChunk], id_key: bytes, read: Read) -> str:
    position, holes = 0, list(entry.holes)
    for chunk in chunks:
        while holes and holes[0][0] == position:
            position += holes.pop(0)[1]
        view = read(fd, chunk.raw, position)
        if len(view) != chunk.raw or keyed_hash(id_key, view) != chunk.id:
            return f"its bytes from {position} on are not the snapshot's"
        position += chunk.raw
    for offset, length in entry.holes:
        if not _is_zero(fd, offset, offset + length):
            return f"expected a hole at {offset}, found data"
    return ""


def _is_zero(fd: int, position: int, end: int) -> bool:
    while position < end:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
        except OSError:
            return True  # nothing but hole up to the end
        part = os.pread(fd, max(0, min(HOLE_READ_BYTES, end - position)), position)
        if part.count(0) != len(part):
            return False
        position += max(len(part), 1)
    return True


def _count(tree: Tree) -> int:
    """Return the number of entries beneath *tree*, without following links."""
    count, pending = 0, [b""]
    while pending:
        path = pending.pop()
        with tree.subtree(path) as directory, entries_in(directory.root_fd) as found:
            for item in found:
                count += 1
                if item.is_dir(follow_symlinks=False):
                    name = os.fsencode(item.name)
                    pending.append(path + b"/" + name if path else name)
    return count
