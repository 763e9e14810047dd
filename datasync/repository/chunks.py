"""Reading single chunks by ranged requests: coalesced, widened to 64 KiB borders, opened and verified by id.

A range begins behind the pack's header, which its reference carries: some servers hash a whole object when it is read
from its first byte.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from datasync.crypto.hashing import keyed_hash
from datasync.errors import IntegrityError, NotFound
from datasync.format.names import pack_name
from datasync.format.pack import FIXED_HEADER_BYTES, TAG_BYTES
from datasync.format.snapshot import PageRef
from datasync.model.entries import ChunkRef, ListRef, PackRef
from datasync.model.limits import KIB, RANGE_BORDER_BYTES
from datasync.repository.keyring import Keyring
from datasync.repository.packs import open_chunk, opener_of
from datasync.storage.protocol import ObjectStore

MAX_GAP_BYTES = 256 * KIB  # read through holes up to this size rather than ask again
Ref = ChunkRef | ListRef | PageRef


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
    if end > pack.size:
        raise IntegrityError(f"pack {pack.id.hex()}: a chunk is said to end at {end}, the pack has {pack.size} bytes")
    border = RANGE_BORDER_BYTES
    header = FIXED_HEADER_BYTES + len(pack.sealed_key)  # is known already
    first = min(start, max(start // border * border, header))
    return Range(pack, first, min(pack.size, -(-end // border) * border), inside)


def missing(name: str) -> IntegrityError:
    """Return the refusal of a snapshot whose pack *name* is gone."""
    return IntegrityError(f"{name}: the snapshot refers to this pack, the store does not have it: it was deleted")


def read_range(store: ObjectStore, keyring: Keyring, type_: int, id_key: bytes, part: Range) -> list[tuple[int, bytes]]:
    """Fetch one range and return (index, raw bytes) of each chunk wanted from it, verified."""
    name = pack_name(keyring.dataset, part.pack.id)
    buffer = memoryview(bytearray(part.end - part.start))
    opener, head = opener_of(keyring, part.pack, type_)
    try:
        store.get_range(name, part.start, buffer)
    except NotFound:
        raise missing(name) from None
    found = []
    for index, ref in part.wanted:
        at = ref.offset - part.start
        sealed = buffer[at : at + ref.stored + TAG_BYTES]
        raw = bytes(open_chunk(opener, head, ref, ref.position, sealed, memoryview(bytearray(ref.stored)), name))
        if keyed_hash(id_key, raw) != ref.id:
            raise IntegrityError(f"{name}: the chunk at position {ref.position} does not hash to its id")
        found.append((index, raw))
    return found


def read_chunks(
    store: ObjectStore, keyring: Keyring, type_: int, id_key: bytes, wanted: Sequence[tuple[PackRef, Ref]]
) -> list[bytes]:
    """Return the raw bytes of each wanted chunk, in order; meant for a handful of pages, not for file data."""
    found: dict[int, bytes] = {}
    for part in plan_ranges((index, pack, ref) for index, (pack, ref) in enumerate(wanted)):
        found.update(read_range(store, keyring, type_, id_key, part))
    return [found[index] for index in range(len(wanted))]
