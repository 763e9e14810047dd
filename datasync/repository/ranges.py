"""Which ranges of packs to ask for: few requests that cover the wanted chunks, coalesced and widened to 64 KiB borders.

A range begins behind the pack's header, which its reference carries: some servers hash a whole object when it is read
from its first byte. Pure. Raises `IntegrityError` for a reference that points behind its pack.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from datasync.errors import IntegrityError
from datasync.format.pack import FIXED_HEADER_BYTES, TAG_BYTES
from datasync.model.entries import ChunkRef, ListRef, PackRef
from datasync.model.limits import KIB, RANGE_BORDER_BYTES

if TYPE_CHECKING:  # the workers of a transfer start with little more than this module
    from datasync.format.snapshot import PageRef

MAX_GAP_BYTES = 256 * KIB  # read through holes up to this size rather than ask again
Ref: TypeAlias = "ChunkRef | ListRef | PageRef"


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes start … end of one pack, and the wanted references inside, by their index."""

    pack: PackRef
    start: int
    end: int
    wanted: list[tuple[int, Ref]]


def plan_ranges(wanted: Iterable[tuple[int, PackRef, Ref]]) -> list[Range]:
    """Return few ranges that cover every wanted chunk, pack by pack in order of first use."""
    by_pack: dict[bytes, tuple[PackRef, list[tuple[int, Ref]]]] = {}
    for index, pack, ref in wanted:
        by_pack.setdefault(pack.id, (pack, []))[1].append((index, ref))
    ranges: list[Range] = []
    for pack, refs in by_pack.values():
        ranges += _coalesce(pack, sorted(refs, key=lambda item: item[1].offset))
    return ranges


def _coalesce(pack: PackRef, refs: list[tuple[int, Ref]]) -> Iterator[Range]:
    start, end = -1, -1
    inside: list[tuple[int, Ref]] = []
    for index, ref in refs:
        first, last = ref.offset, ref.offset + ref.stored + TAG_BYTES
        if inside and first - end > MAX_GAP_BYTES:
            yield _widen(pack, start, end, inside)
            inside = []
        if not inside:
            start = end = first
        inside.append((index, ref))
        end = max(end, last)
    if inside:
        yield _widen(pack, start, end, inside)


def _widen(pack: PackRef, start: int, end: int, inside: list[tuple[int, Ref]]) -> Range:
    return Range(pack, *widen(pack, start, end), inside)


def widen(pack: PackRef, start: int, end: int) -> tuple[int, int]:
    """Return the borders of the range that is asked for when start … end is wanted."""
    if end > pack.size:
        raise IntegrityError(f"pack {pack.id.hex()}: a chunk is said to end at {end}, the pack has {pack.size} bytes")
    border = RANGE_BORDER_BYTES
    header = FIXED_HEADER_BYTES + len(pack.sealed_key)  # is known already
    first = min(start, max(start // border * border, header))
    return first, min(pack.size, -(-end // border) * border)
