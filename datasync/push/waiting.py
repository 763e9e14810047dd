"""Entries in their turn: what stands between the walk, which is ahead, and the pages, which need every place."""

from concurrent.futures import Future
from dataclasses import dataclass, field

from datasync.model.entries import Entry
from datasync.push.chunk import Outcome
from datasync.push.detect import Changed, SameEntry
from datasync.push.page import KnownPage


@dataclass(slots=True)
class Waiting:
    """An entry in its turn: ready, or to come from a reader."""

    item: SameEntry | Changed | KnownPage
    batch: Future[list[Outcome]] | None = None
    index: int = 0
    entry: Entry | None = None


@dataclass(slots=True)
class Batch:
    """Files that one reader reads in one go."""

    files: list[Changed] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    size: int = 0
