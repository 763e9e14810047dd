"""Warm into a view of the node's cache: objects that are there are shared, the rest is fetched once (design §5)."""

import os
from typing import TYPE_CHECKING

from datasync.cache.beneath import Tree
from datasync.cache.objects import Objects, read_only
from datasync.model.entries import DIRECTORY, FILE, Entry
from datasync.model.ids import FileId
from datasync.pull.plan import Plan, PlannedFile

if TYPE_CHECKING:
    from datasync.format.snapshot import Root


class ViewDestination:
    """Places entries in a staged view."""

    def __init__(self, tree: Tree, objects: Objects) -> None:
        self._tree = tree
        self._objects = objects
        self.ids = bytearray() if objects.reflinks else None

    def create(self, file: PlannedFile, mode: int) -> int:
        """Return a fd for the file in the staged view; the view itself has no name yet."""
        return self._tree.create(file.path, mode)

    def reopen(self, file: PlannedFile) -> int:
        """Open it again."""
        return self._tree.open_file(file.path, os.O_WRONLY)

    def mode(self, file: PlannedFile) -> int:
        """Return the snapshot's mode without write bits."""
        return read_only(file.mode)

    def finish(self, file: PlannedFile) -> None:
        """Share the file with other views."""
        self._objects.publish(self._tree, file.path, FileId(file.id), (file.size, read_only(file.mode)))

    def accept(self, entry: Entry, plan: Plan) -> bool:
        """Make or plan everything but a file's content; return whether that may have to be fetched."""
        if entry.kind == DIRECTORY:
            self._tree.make_directory(entry.path, 0o700)
            plan.directory(entry)
            return False
        if entry.kind != FILE:
            self._tree.symlink(entry.path, entry.target)
            self._tree.set_mtime(entry.path, entry.mtime)
            return False
        return True

    def adopt(self, entry: Entry, file_id: bytes) -> bool:
        """Take the file from the objects; False when it has to be fetched."""
        if self.ids is not None:
            self.ids += file_id
        found = FileId(file_id)
        if not self._objects.may_have(found):
            return False
        return self._objects.has(found, entry.size) and self._objects.adopt(found, self._tree, entry.path)

    def complete(self, plan: Plan) -> None:
        """Give directories their modes and times, children first."""
        for path, mode, mtime, xattrs in plan.directories():
            if xattrs:
                self._tree.set_xattrs(path, xattrs)
            self._tree.finish_directory(path, read_only(mode), mtime)

    def complete_root(self, root: "Root") -> None:
        """Give the view the root's attributes and time; its mode is the gate for readers."""
        self._tree.set_xattrs(b"", root.xattrs)
        self._tree.set_mtime(b"", root.mtime)
