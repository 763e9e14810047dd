"""What a push may be told, and what it tells."""

from dataclasses import dataclass

from datasync.format.snapshot import Totals
from datasync.push.detect import Changes
from datasync.push.source import Skipped
from datasync.repository.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class PushOptions:
    """What a push may be told."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    checksum: bool = False
    allow_empty: bool = False
    max_loss: float = 0.5  # share of the known entries that a push may lose
    source_change: bool = False
    settle_seconds: float = 0.0  # a file written later than this before the scan waits for the next push
    xattrs: bool = False
    one_file_system: bool = False
    dry_run: bool = False
    count_ahead: bool = False  # walk the source twice, so that a progress has totals
    message: str = ""
    chunker: str = "cdc"
    tool: str = "datasync"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a push is: entries walked, file bytes read, new bytes among them, bytes sent; bytes of files that need no
    reading; entries and bytes altogether, None until they are known; a file that is being read.
    """

    entries: int
    read_bytes: int
    new_bytes: int
    sent_bytes: int
    kept_bytes: int = 0
    total_entries: int | None = None
    total_bytes: int | None = None
    stage: str = ""
    reading: bytes = b""


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push did; `snapshot` is the newest one, made by this push when `created`."""

    snapshot: Snapshot | None
    created: bool
    totals: Totals
    changes: Changes
    progress: Progress
    skipped: list[Skipped]
    seconds: float
    unsettled: int = 0
    """Files still being written: kept as they were in the last push, new ones left out."""
