"""Find events without reading all of them: a segment is searched for the bytes that a match must hold.

Only lines that hold them are parsed, and then compared with everything that was asked for. Segments outside the wanted
time are not opened. Nothing is verified here. Raises `FormatError`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from datasync.audit.event import Event, Sealed, decode
from datasync.audit.segments import LINE_BYTES, LogFiles, Piece, is_note
from datasync.errors import FormatError

Tags = frozenset[tuple[str, str]]
"""Persons: (month, tag); an empty month means any."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find; empty means any. Times as the log writes them."""

    actors: Tags | None = None
    concerned: Tags | None = None
    dataset: str = ""
    action: str = ""
    outcome: str = ""
    request: str = ""
    since: str = ""
    until: str = ""
    seqs: tuple[int, int] = field(default=(0, 2**63))

    def matches(self, event: Event) -> bool:
        """Tell whether *event* is wanted; `action` also means everything beneath it."""
        return (
            _person(self.actors, event.who, event.time[:7])
            and _person(self.concerned, event.whom, event.time[:7])
            and self.dataset in ("", event.dataset)
            and (not self.action or event.action == self.action or event.action.startswith(self.action + "."))
            and self.outcome in ("", event.outcome)
            and self.request in ("", event.request)
            and event.time >= self.since
            and (not self.until or event.time < self.until)
            and self.seqs[0] <= event.seq < self.seqs[1]
        )

    def needles(self, month: str) -> list[bytes] | None:
        """Return byte strings of which a match in *month* holds one, of the rarest kind asked for; None: read all."""
        tags = self.actors if self.actors is not None else self.concerned
        if tags is not None:
            return [tag.encode() for at, tag in sorted(tags) if at in ("", month)]
        for name in ("request", "dataset"):
            if getattr(self, name):
                return [b'"' + name.encode() + b'":' + msgspec.json.encode(getattr(self, name))]
        if self.action:
            return [b'"action":"' + self.action.encode()]
        return [b'"outcome":"' + self.outcome.encode() + b'"'] if self.outcome else None

    @property
    def nobody(self) -> bool:
        """Tell whether no event can match: a person of whom no key is left."""
        return self.actors == frozenset() or self.concerned == frozenset()


def _person(tags: Tags | None, sealed: Sealed | None, month: str) -> bool:
    return tags is None or (sealed is not None and ((month, sealed.tag) in tags or ("", sealed.tag) in tags))


def select(files: LogFiles, wanted: Wanted) -> Iterator[Event]:
    """Yield the wanted events of one log, in order."""
    if wanted.nobody:
        return
    for piece in _in_time(files.pieces, wanted):
        yield from _search(piece, wanted)


def last(files: LogFiles, wanted: Wanted, count: int) -> list[Event]:
    """Return the last *count* wanted events, in order."""
    found: list[Event] = []
    if wanted.nobody or count <= 0:
        return found
    for piece in reversed(_in_time(files.pieces, wanted)):
        found = [*deque(_search(piece, wanted), maxlen=count - len(found)), *found]
        if len(found) == count:
            break
    return found


def _in_time(pieces: tuple[Piece, ...], wanted: Wanted) -> list[Piece]:
    """Return the pieces that may hold wanted events; a piece ends where the next one begins."""
    following = [item.first for item in pieces[1:]] + [2**63]
    first, end = wanted.seqs
    chosen = [item for item, after in zip(pieces, following, strict=True) if item.first < end and after > first]
    if not (wanted.since or wanted.until):
        return chosen
    begins = [_first_time(item) for item in chosen]
    ends = [*begins[1:], "~"]
    return [
        piece
        for piece, begin, end in zip(chosen, begins, ends, strict=True)
        if end >= wanted.since and (not wanted.until or begin < wanted.until)
    ]


def _first_time(piece: Piece) -> str:
    with piece.open() as file:
        line = file.readline(LINE_BYTES)
    return decode(line.rstrip(b"\n")).time if line else "~"


def _search(piece: Piece, wanted: Wanted) -> Iterator[Event]:
    needles = wanted.needles(_first_time(piece)[:7])  # a piece holds one month
    if needles == []:
        return
    with piece.open() as file:
        if needles is None:
            for line in file:
                yield from _match(line.rstrip(b"\n"), piece, wanted)
            return
        data = file.read()
    for start, end in _hits(data, needles):
        yield from _match(data[start:end], piece, wanted)


def _match(line: bytes, piece: Piece, wanted: Wanted) -> Iterator[Event]:
    if is_note(line) or not line:
        return
    try:
        event = decode(line)
    except FormatError as error:
        raise FormatError(f"{piece.name}: a line {error}: run datasync audit verify") from None
    if wanted.matches(event):
        yield event


def _hits(data: bytes, needles: list[bytes]) -> Iterator[tuple[int, int]]:
    """Yield where the lines lie that hold a needle, in order, each once."""
    at = 0
    upcoming = {needle: data.find(needle) for needle in needles}
    while True:
        for needle, place in upcoming.items():
            if 0 <= place < at:
                upcoming[needle] = data.find(needle, at)
        places = [place for place in upcoming.values() if place >= 0]
        if not places:
            return
        place = min(places)
        start = data.rfind(b"\n", 0, place) + 1
        end = data.find(b"\n", place)
        end = len(data) if end < 0 else end
        yield start, end
        at = end
