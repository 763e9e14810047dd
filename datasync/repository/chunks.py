"""Reading single chunks by ranged requests (`datasync.repository.ranges`), opened and verified by id."""

from collections.abc import Sequence

from datasync.crypto.hashing import keyed_hash
from datasync.errors import IntegrityError, NotFound
from datasync.format.names import pack_name
from datasync.format.pack import TAG_BYTES
from datasync.model.entries import PackRef
from datasync.repository.keyring import Keyring
from datasync.repository.opening import open_chunk
from datasync.repository.packs import opener_of
from datasync.repository.ranges import Range, Ref, plan_ranges
from datasync.storage.protocol import ObjectStore


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
