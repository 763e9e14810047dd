"""Count what a push will come by, in a thread beside it, so that its progress can name a total (as restic does).

The walk of a push goes only as far ahead as its readers follow. This one walks the same tree by the same rules with
directory fds of its own, opens no file and reports nothing: what it can not read, the push itself names. What changes
meanwhile makes the total an estimate; it is told as one until the push's own walk has ended.
"""

import threading
from pathlib import Path

from datasync.errors import DatasyncError
from datasync.push.ignore import IgnoreRules
from datasync.push.options import PushOptions
from datasync.push.scan import Found, scan
from datasync.push.source import SourceTree

SECTOR_BYTES = 512


def data_bytes(found: Found) -> int:
    """Return about how many bytes of *found* are data: holes are not read."""
    return min(found.size, found.blocks * SECTOR_BYTES)


class Census:
    """Counts entries and bytes; `total` is None until all are counted."""

    def __init__(self, root: Path, options: PushOptions) -> None:
        self.total: tuple[int, int] | None = None
        self._root = root
        self._options = options
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="census", daemon=True)

    def start(self) -> None:
        """Begin to count, unless it goes on already."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """End the counting, if it goes on."""
        self._stopped = True
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.total = self._count()
        except DatasyncError:  # the push meets it too, and says so
            self.total = None

    def _count(self) -> tuple[int, int] | None:
        options, entries, size = self._options, 0, 0
        rules = IgnoreRules(include=options.include, exclude=options.exclude)
        with SourceTree.open(self._root) as tree:
            for found in scan(tree, rules, lambda _: None, one_file_system=options.one_file_system):
                entries += 1
                size += data_bytes(found)
                if self._stopped:
                    return None
        return entries, size
