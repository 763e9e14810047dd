"""The typed Python API; the same service that the CLI uses (README, "Python").

repository = datasync.open("s3://bucket/prefix")
repository.push("./data", dataset="data")
path = repository.warm("data:prod")
for snapshot in repository.snapshots("data"): ...
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from datasync.config import Flags, load_config
from datasync.pull import pipeline as pulling
from datasync.push import options as pushing
from datasync.repository.snapshots import Snapshot as StoredSnapshot
from datasync.service import look, warm
from datasync.service.push import push_directory
from datasync.service.references import open_dataset
from datasync.service.session import TOOL, Session


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One immutable version of a dataset; sizes in bytes."""

    dataset: str
    seq: int
    id: str
    created: datetime
    message: str
    entries: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Push:
    """What a push did: the newest snapshot, whether this push made it, bytes sent,
    and (path, reason) of what was skipped.
    """

    snapshot: Snapshot
    created: bool
    sent_bytes: int
    skipped: tuple[tuple[bytes, str], ...]


class Repository:
    """An open repository. A context manager; methods raise the errors of `datasync.errors`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def push(
        self,
        path: str | os.PathLike[str],
        *,
        dataset: str | None = None,
        tag: str | None = None,
        message: str = "",
        checksum: bool = False,
        allow_empty: bool = False,
        source_change: bool = False,
        progress: Callable[[pushing.Progress], None] | None = None,
    ) -> Push:
        """Push the directory *path*; *progress* is called about ten times a second.

        What was skipped is in the result. *source_change*: the tree may come from elsewhere than the newest snapshot.
        """
        options = pushing.PushOptions(
            message=message,
            checksum=checksum,
            allow_empty=allow_empty,
            source_change=source_change,
            chunker=self._session.config.chunker,
            tool=TOOL,
        )
        done = push_directory(self._session, Path(path), dataset, options, tag=tag, report=progress or _quiet)
        assert done.result.snapshot is not None  # a push that is no dry run ends with one
        skipped = tuple((item.path, item.reason) for item in done.result.skipped)
        return Push(
            _snapshot(done.dataset, done.result.snapshot), done.result.created, done.result.progress.sent_bytes, skipped
        )

    def pull(
        self,
        reference: str,
        target: str | os.PathLike[str],
        *,
        progress: Callable[[pulling.Progress], None] | None = None,
    ) -> Snapshot:
        """Make the directory *target* hold what *reference* means."""
        done = warm.pull(self._session, reference, Path(target), progress or _quiet)
        return _snapshot(done.dataset, done.snapshot)

    def warm(self, reference: str, *, progress: Callable[[pulling.Progress], None] | None = None) -> Path:
        """Return the directory of the node's cache that holds what *reference* means, complete and verified."""
        return warm.warm(self._session, reference, progress or _quiet).path

    def snapshots(self, dataset: str) -> Iterator[Snapshot]:
        """Yield the dataset's snapshots, newest first."""
        opened = open_dataset(self._session, dataset)
        for snapshot in look.log(opened):
            yield _snapshot(dataset, snapshot)

    def datasets(self) -> list[str]:
        """Return the names of the datasets that this identity opens."""
        return [item.name for item in look.listed(self._session)[0]]

    def close(self) -> None:
        """Give back the connections."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _quiet(_: object) -> None:
    return


def _snapshot(dataset: str, stored: StoredSnapshot) -> Snapshot:
    body = stored.body
    created = datetime.fromtimestamp(body.created / 1000, UTC)
    totals = body.totals
    return Snapshot(
        dataset, body.seq, stored.id.hex(), created, body.message, totals.entries, totals.files, totals.bytes
    )


def open(url: str | None = None, *, cache: str | os.PathLike[str] | None = None) -> Repository:
    """Open the repository at *url* (default: the configured one);
    identity and other settings as for the command line.
    """
    config = load_config(Flags(repository=url, caches=(Path(cache),) if cache is not None else ()))
    session = Session(config)
    _ = session.repository
    return Repository(session)
