"""Which entries of a snapshot are wanted, and which first: `--subset` and `--order`. Pure.

A pattern without `/` is matched with an entry's last name, one with `/` with its whole path; `*` also matches `/`. A
directory that matches is wanted with all that it holds; the parents of what is wanted come along. In `--order` the
first pattern that matches a file decides.
"""

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from datasync.model.entries import DIRECTORY, Entry

Patterns = list[tuple[bool, re.Pattern[bytes]]]


def _compile(globs: tuple[str, ...]) -> Patterns:
    found = []
    for glob in globs:
        raw = glob.strip("/").encode("utf-8", "surrogateescape")
        found.append((b"/" in raw, re.compile(fnmatch.translate(raw.decode("latin-1")).encode("latin-1"), re.DOTALL)))
    return found


def _position(patterns: Patterns, path: bytes) -> int | None:
    name = path.rpartition(b"/")[2]
    for at, (whole, pattern) in enumerate(patterns):
        if pattern.match(path if whole else name):
            return at
    return None


@dataclass(slots=True)
class Selection:
    """The choice for one transfer; entries are shown to it in the manifest's order."""

    subset: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    _subset: Patterns = field(init=False, repr=False)
    _order: Patterns = field(init=False, repr=False)
    _inside: bytes = field(init=False, default=b"")
    _parents: list[Entry] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._subset = _compile(self.subset)
        self._order = _compile(self.order)

    def chosen(self, entry: Entry) -> Iterator[Entry]:
        """Yield what comes along now: nothing, or *entry* after those of its parents that were held back."""
        if not self._subset:
            yield entry
            return
        while self._parents and not entry.path.startswith(self._parents[-1].path + b"/"):
            self._parents.pop()
        inside = bool(self._inside) and entry.path.startswith(self._inside)
        if not inside and _position(self._subset, entry.path) is None:
            if entry.kind == DIRECTORY:
                self._parents.append(entry)
            return
        if entry.kind == DIRECTORY and not inside:
            self._inside = entry.path + b"/"
        yield from self._parents
        self._parents.clear()
        yield entry

    def priority(self, path: bytes) -> int:
        """Return when *path* is to be fetched: smaller is earlier."""
        found = _position(self._order, path) if self._order else None
        return len(self._order) if found is None else found
