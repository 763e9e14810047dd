"""How long a log is kept: whole segments go, the oldest first, and the tree keeps their place.

What is left of a removed segment is the frontier of the tree before the next one, so every later proof still holds.
The floor is 6 months (China's Cybersecurity Law, article 21, asks for network logs of at least six months); who goes
below says so, and an event tells it. What was removed is told by an `audit.retain` event, without which a log that
begins late does not verify. A legal hold stops all removal. Raises `UsageError`.
"""

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from datasync.audit.event import decode, time_value
from datasync.audit.merkle import Frontier, leaf_hash
from datasync.audit.primitives import Primitives
from datasync.audit.segments import BASE, SEGMENTS, Base, LogFiles, is_note, lines, segment_name
from datasync.errors import UsageError

FLOOR = timedelta(days=183)
HOLD = "hold"
RETAIN = "audit.retain"  # the event that tells of a removal, in its detail:
FIRST_KEPT = "first_kept."  # and the log's id: the first event that stays
_SPAN = re.compile(r"([0-9]+)([dmy])")
_DAYS = {"d": 1, "m": 31, "y": 366}


class Hold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A legal hold: since when, and for what."""

    since: str
    matter: str


@dataclass(frozen=True, slots=True)
class Old:
    """What is older than the retention: the events before *first_kept* in these segments."""

    segments: tuple[int, ...]
    first_kept: int
    last_time: str


def parse_retention(text: str, *, override: bool = False) -> timedelta:
    """Return how long *text* (`3y`, `18m`, `200d`) is; below the floor only with *override*."""
    match = _SPAN.fullmatch(text)
    if match is None or not int(match[1]):
        raise UsageError(f"audit.retention {text!r}: expected days, months or years, like 3y, 18m or 200d")
    span = timedelta(days=int(match[1]) * _DAYS[match[2]])
    if span < FLOOR and not override:
        raise UsageError(
            f"audit.retention {text}: the law's floor is 6 months: --override-legal-floor goes below, and is recorded"
        )
    return span


def read_hold(root: Path) -> Hold | None:
    """Return the legal hold on the logs in *root*, None when there is none."""
    try:
        return msgspec.json.decode((root / HOLD).read_bytes(), type=Hold)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        return Hold("", "the hold's file does not parse")  # what can not be read holds


def write_hold(root: Path, hold: Hold | None) -> None:
    """Set the hold, or lift it."""
    path = root / HOLD
    if hold is None:
        path.unlink(missing_ok=True)
        return
    aside = root / f".{HOLD}.{os.getpid()}"
    aside.write_bytes(msgspec.json.encode(hold))
    os.replace(aside, path)


def find_old(files: LogFiles, keep: timedelta, now: datetime | None = None) -> Old:
    """Return which segments hold only events older than *keep*; the newest segment is never one of them."""
    limit = (now or datetime.now(UTC)) - keep
    old, first_kept, newest = list[int](), files.pieces[0].first if files.pieces else files.base.size, ""
    for piece, following in zip(files.pieces, files.pieces[1:], strict=False):
        with piece.open() as file:
            times = [decode(line).time for line in lines(file, piece.name) if not is_note(line)]
        if times and time_value(times[-1]) >= limit:
            break
        old.append(piece.first)
        first_kept, newest = following.first, times[-1] if times else newest
    return Old(tuple(old), first_kept, newest)


def remove_old(p: Primitives, directory: Path, files: LogFiles, old: Old) -> None:
    """Remove the old segments. The base comes first: a kill between leaves segments that the base makes superfluous."""
    tree: Frontier = files.frontier(p)
    for piece in files.pieces:
        if piece.first in old.segments:
            with piece.open() as file:
                for line in lines(file, piece.name):
                    if not is_note(line):
                        tree.append(leaf_hash(p.sha256, line))
    base = Base(tree.size, tuple(item.hex() for item in tree.hashes))
    aside = directory / f".{BASE}.{os.getpid()}"
    with open(aside, "wb") as file:
        file.write(msgspec.json.encode(base))
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, directory / BASE)
    for first in old.segments:
        (directory / SEGMENTS / segment_name(first)).unlink(missing_ok=True)
