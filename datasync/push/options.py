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
    xattrs: bool = False
    one_file_system: bool = False
    dry_run: bool = False
    message: str = ""
    chunker: str = "cdc"
    tool: str = "datasync"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a push is: entries walked, file bytes read, new bytes among them, bytes sent."""

    entries: int
    read_bytes: int
    new_bytes: int
    sent_bytes: int


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
