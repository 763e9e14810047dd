"""Entries of a new manifest, before their chunks have places. Pure."""

from datasync.model.entries import FILE, Entry
from datasync.push.chunk import ReadFile
from datasync.push.detect import Changed


def plain_entry(item: Changed) -> Entry:
    found = item.found
    return Entry(found.path, found.kind, found.mode, found.mtime, 0, found.xattrs, found.target, b"", (), (), ())


def link_only(link: bytes) -> Entry:
    return Entry(b"", FILE, 0, 0, 0, (), b"", link, (), (), ())


def unchanged(entry: Entry, outcome: ReadFile, before: Entry) -> bool:
    if (entry.mode, entry.mtime, entry.size, entry.xattrs, entry.link) != (
        before.mode,
        before.mtime,
        before.size,
        before.xattrs,
        before.link,
    ):
        return False
    return [chunk.id for chunk in outcome.chunks] == [chunk.id for chunk in before.chunks]


def with_link(entry: Entry, link: bytes) -> Entry:
    return Entry(
        entry.path, entry.kind, entry.mode, entry.mtime, entry.size, entry.xattrs, b"", link, (), entry.holes, ()
    )
