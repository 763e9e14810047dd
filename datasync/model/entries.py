"""What a manifest holds: entries, chunk references and page references (docs/format.md, section 10).

These are the wire structures themselves (array-like MessagePack), so a page of 4,096 entries decodes in one native
call. `pack` is an index into the pack table of the page that holds the reference; `StoredChunk` is the same with the
pack itself. Values only: docs/format.md's rules about paths, order and limits are enforced by `datasync.format.page`.
"""

from typing import NamedTuple

import msgspec

FILE = 1
DIRECTORY = 2
SYMLINK = 3

FORM_RAW = 0
FORM_ZSTD = 1


class PackRef(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A pack's id, its size in bytes and what its header holds, so one ranged read opens a chunk of it."""

    id: bytes
    size: int
    source: int
    epoch: int
    salt: bytes
    commitment: bytes
    sealed_key: bytes


class ChunkRef(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Where one chunk lies; lengths and offset in bytes."""

    id: bytes
    raw: int
    stored: int
    form: int
    pack: int
    position: int
    offset: int


class ListRef(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Where a chunk-list page lies, and how many file bytes its chunks cover."""

    id: bytes
    raw: int
    stored: int
    form: int
    pack: int
    position: int
    offset: int
    bytes: int


class Entry(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One file, directory or symbolic link. `mtime` is in nanoseconds, `size` in bytes."""

    path: bytes
    kind: int
    mode: int
    mtime: int
    size: int
    xattrs: tuple[tuple[bytes, bytes], ...]
    target: bytes
    link: bytes
    chunks: tuple[ChunkRef, ...]
    holes: tuple[tuple[int, int], ...]
    lists: tuple[ListRef, ...]


class StoredChunk(NamedTuple):
    """A chunk and its place, independent of any page."""

    id: bytes
    raw: int
    stored: int
    form: int
    pack: PackRef
    position: int
    offset: int


def sort_key(path: bytes) -> bytes:
    """Return the key that orders *path* by components: a depth-first walk with sorted names."""
    return path.replace(b"/", b"\0")
