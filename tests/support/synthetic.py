"""A source of any number of files that exist on no disk: the walk and the reading of a push are replaced, all else of
it is real, so a push of ten million entries needs minutes and a few gigabytes for its pages alone.

Directories of 1,000 files, each file one chunk of its own in a data pack that is never stored; `store_packs` makes
sparse files in their place, so that `verify` finds every pack by name and size.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from datasync.format.names import pack_name
from datasync.format.pack import DERIVED
from datasync.model.entries import DIRECTORY, FILE, FORM_RAW, Entry, PackRef
from datasync.model.limits import PACK_BYTES
from datasync.push.chunk import FileReader, ReadFile
from datasync.push.detect import Changed
from datasync.push.index import Placed
from datasync.push.record import FileStat
from datasync.push.scan import Found

FILES_PER_DIRECTORY = 1_000
FILES_PER_PACK = 640
FILE_BYTES = 50_000
TAG_BYTES = 16
FIRST_OFFSET = 256  # behind a pack's header
OLD = 1_700_000_000_000_000_000  # a time in ns that is never racy


@dataclass(frozen=True)
class Forest:
    """*files* files; those numbered in *changed* have other content than in a forest without changes."""

    files: int
    changed: frozenset[int] = frozenset()

    @property
    def entries(self) -> int:
        return self.files + -(-self.files // FILES_PER_DIRECTORY)

    def walk(self, *_: object, **__: object) -> Iterator[Found]:
        """Yield what `scan` would."""
        for number in range(self.files):
            if number % FILES_PER_DIRECTORY == 0:
                yield _found(directory(number), DIRECTORY, stat.S_IRWXU, OLD, 0, 0)
            yield _found(path(number), FILE, stat.S_IRUSR, self._mtime(number), FILE_BYTES, number + 1)

    def read(self, _: FileReader, items: Sequence[Changed], __: object, *, checksum: bool) -> list[ReadFile]:
        """Return what `FileReader.read` would, had every chunk been stored before."""
        return [self._file(item.found) for item in items]

    def _mtime(self, number: int) -> int:
        return OLD + (number in self.changed)

    def _file(self, found: Found) -> ReadFile:
        number = found.inode - 1
        kind = b"changed" if number in self.changed else b"first"
        chunk = Placed(number.to_bytes(8, "big") + kind.ljust(24, b"\0"), FILE_BYTES)
        position = number % FILES_PER_PACK
        offset = FIRST_OFFSET + position * (FILE_BYTES + TAG_BYTES)
        chunk.at(pack(number // FILES_PER_PACK), FILE_BYTES, FORM_RAW, position, offset)
        entry = Entry(found.path, FILE, found.mode, found.mtime, FILE_BYTES, (), b"", b"", (), (), ())
        return ReadFile(entry, [chunk], FileStat(found.ctime, found.inode, bytes(16)))

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Make every push in this process one of this forest, whatever directory it is told to push."""

        def read(reader: FileReader, *arguments: Any, **options: Any) -> list[ReadFile]:
            return self.read(reader, *arguments, **options)

        with ExitStack() as stack:
            stack.enter_context(mock.patch("datasync.push.pipeline.scan", self.walk))
            stack.enter_context(mock.patch.object(FileReader, "read", read))
            yield

    def store_packs(self, repository: Path, dataset: bytes) -> int:
        """Make a sparse file for every pack that this forest's chunks lie in; return how many."""
        count = -(-self.files // FILES_PER_PACK)
        for number in range(count):
            place = repository / pack_name(dataset, pack(number).id)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
            os.truncate(place, PACK_BYTES)
        return count


def directory(number: int) -> bytes:
    """Return the path of the directory that file *number* is in."""
    return b"directory-%07d" % (number // FILES_PER_DIRECTORY)


def path(number: int) -> bytes:
    """Return the path of file *number*."""
    return directory(number) + b"/file-%03d.bin" % (number % FILES_PER_DIRECTORY)


def pack(number: int) -> PackRef:
    """Return the reference of data pack *number*; its id is spread as a hash would be."""
    spread = (number * 0x9E3779B97F4A7C15) % 2**64
    name = spread.to_bytes(8, "big") + bytes(24)
    return PackRef(name, PACK_BYTES, DERIVED, 1, bytes(32), bytes(32), b"")


def _found(name: bytes, kind: int, mode: int, mtime: int, size: int, inode: int) -> Found:
    return Found(name, kind, mode, mtime, OLD, size, inode, 1, 1, size // 512 + 1)
