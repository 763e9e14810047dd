"""What a report is made of: sections with a table each. Text that is translated is a `Words`, data is a plain value."""

from dataclasses import dataclass, field

from datasync.audit.retention import Hold
from datasync.audit.verify import Verified


class Words(str):
    """A sentence or heading of the report's own, in English; `words.CHINESE` has the other language."""

    __slots__ = ()


Cell = str | int


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a heading and a sentence that says what it is."""

    heading: Words
    note: Words
    columns: tuple[Words, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A report; *about* names what was asked for."""

    title: Words
    about: tuple[tuple[Words, Cell], ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """How long logs are kept: the setting, the hold, and for each log its events and what is older."""

    retention: str
    hold: Hold | None
    logs: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the report is about; `day` is YYYY-MM-DD in UTC."""

    dataset: str = ""
    day: str = ""
    person: str = ""
    year: str = ""
    verified: tuple[Verified, ...] = ()
    kept: Kept | None = None
    unknown: str = field(default="unknown")


READS = ("pull", "warm", "key.release")
"""Actions that give somebody a dataset's content."""
GRANTS = ("key.grant", "policy.grant")
SUCCESS = ("success", "partial")


def short_time(time: str) -> str:
    """Return an event's time for people, with its offset."""
    return f"{time[:10]} {time[11:19]}+00:00"


def proof_of(log: str, seq: int) -> str:
    """Return where the event is, for `datasync audit prove`."""
    return f"{log}/{seq}"
