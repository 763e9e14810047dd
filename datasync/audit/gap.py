"""The page that remembers events that could not be recorded, until one can be that says so.

It is written in place, into blocks that the file has had since the log was made, so a full disk does not stop it.
"""

import os

import msgspec

from datasync.audit.head import write_page


class Gap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Since when, how many events were lost, and the class of the last error."""

    since: str
    count: int
    error: str

    @property
    def text(self) -> str:
        """What the gap event says."""
        return f"{self.count} events since {self.since} could not be recorded"


def read_gap(page: bytes) -> Gap | None:
    """Return the gap in *page*, None when there is none."""
    if not page.strip(b"\0"):
        return None
    try:
        return msgspec.json.decode(page, type=Gap)
    except msgspec.DecodeError:
        return Gap("an unknown time", 0, "FormatError")


def write_gap(fd: int, gap: Gap) -> None:
    """Keep *gap*."""
    write_page(fd, gap)
    os.fdatasync(fd)
