"""Pull into a person's directory: exact modes, times and hard links; what is there already and the same is left alone.

A file is written under a temporary name beside its own and renamed when it is whole, its times set: so a file with the
right size and time is complete, and the same pull again goes on where it stopped. Nothing that the snapshot does not
have is removed.
"""

import os
import stat

from datasync.cache.beneath import Tree
from datasync.cache.faults import shown
from datasync.crypto.hashing import hash_bytes
from datasync.errors import UsageError
from datasync.format.snapshot import Root
from datasync.model.entries import DIRECTORY, FILE, Entry
from datasync.pull.plan import Plan, PlannedFile

EXACT = 0o1777  # set-id bits are never restored (design §8.4)


class DirectoryDestination:
    """Places entries beneath a directory fd."""

    def __init__(self, tree: Tree, snapshot: bytes, *, created: bool) -> None:
        self._tree = tree
        self._snapshot = snapshot
        self._created = created

    def _temporary(self, file: PlannedFile) -> bytes:
        """Return a name that no entry of this snapshot has, the same in every pull of it:
        so a killed one's is found.
        """
        parent, slash, _ = file.path.rpartition(b"/")
        return parent + slash + b".datasync-part-" + hash_bytes(self._snapshot + file.path)[:16].hex().encode()

    # the Destination of `place`

    def create(self, file: PlannedFile, mode: int) -> int:
        """Return a fd for the temporary name."""
        temporary = self._temporary(file)
        if not self._created:
            self._tree.remove(temporary)  # of a killed pull
        return self._tree.create(temporary, mode)

    def reopen(self, file: PlannedFile) -> int:
        """Open the temporary name again."""
        return self._tree.open_file(self._temporary(file), os.O_WRONLY)

    def mode(self, file: PlannedFile) -> int:
        """Return the snapshot's mode without set-id bits."""
        return file.mode & EXACT

    def finish(self, file: PlannedFile) -> None:
        """Rename over whatever had the name."""
        self._tree.rename(self._temporary(file), file.path)

    # the steps around it

    def accept(self, entry: Entry, plan: Plan) -> bool:
        """Make or plan everything but a file's content; return whether that has to be fetched."""
        if entry.kind == DIRECTORY:
            self._directory(entry)
            plan.directory(entry)
            return False
        status = self._tree.lstat(entry.path) if not self._created else None
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise UsageError(
                f"{shown(entry.path)}: a directory is in the way of a file: pull into another directory, or remove it"
            )
        if entry.kind != FILE:
            if status is not None:
                self._tree.remove(entry.path)
            self._tree.symlink(entry.path, entry.target)
            self._tree.set_mtime(entry.path, entry.mtime)
            return False
        if entry.link and not plan.first_of_group(entry):
            return False
        return status is None or not _same(status, entry)

    def _directory(self, entry: Entry) -> None:
        if not self._created:
            status = self._tree.lstat(entry.path)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                raise UsageError(
                    f"{shown(entry.path)}: a file is in the way of a directory: "
                    "pull into another directory, or remove it"
                )
            if status is not None:
                self._tree.set_mode(entry.path, 0o700)
                return
        self._tree.make_directory(entry.path, 0o700)

    def complete(self, plan: Plan) -> None:
        """Make the hard links, then give directories their modes and times, children first."""
        for path, first in plan.links():
            if not self._created:
                self._tree.remove(path)
            if not self._tree.link_within(first, path):
                raise UsageError(
                    f"{shown(path)}: this file system makes no further hard link to {shown(first)}: pull elsewhere"
                )
        for path, mode, mtime, xattrs in plan.directories():
            if xattrs:
                self._tree.set_xattrs(path, xattrs)
            self._tree.finish_directory(path, mode & EXACT, mtime)

    def complete_root(self, root: Root) -> None:
        """Give a directory that this pull made the root's attributes, mode and time."""
        if self._created:
            self._tree.set_xattrs(b"", root.xattrs)
            self._tree.set_mode(b"", root.mode & EXACT)
            self._tree.set_mtime(b"", root.mtime)


def _same(status: os.stat_result, entry: Entry) -> bool:
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_size == entry.size
        and status.st_mtime_ns == entry.mtime
        and stat.S_IMODE(status.st_mode) == entry.mode & EXACT
    )
