"""Relocation objects: reading the new ones into the local table, and publishing what was re-sealed
(docs/format.md, section 12).
"""

from collections.abc import Sequence

from datasync.crypto.hashing import hash_bytes
from datasync.errors import AlreadyExists, IntegrityError, NotFound
from datasync.format import pack as packs
from datasync.format.control import (
    EmptiedPage,
    Relocation,
    RelocationPage,
    RelocationsHeader,
    is_emptied_page,
    read_emptied_page,
    read_relocation_page,
)
from datasync.format.encoding import decode, encode
from datasync.format.names import pack_name
from datasync.format.trust import OWNER, WRITER
from datasync.model.entries import PackRef
from datasync.model.ids import ZERO_ID
from datasync.model.limits import EMPTIED_PACKS, PACK_BYTES
from datasync.repository import numbered
from datasync.repository.condemned import condemned_packs
from datasync.repository.control import open_control, seal_control
from datasync.repository.numbered import NumberedObject
from datasync.repository.relocations import Moved, Relocations
from datasync.repository.snapshots import History

PAGE_ENTRIES = 8_192  # of one relocation page: about 400 KiB
OBJECT_ENTRIES = 32 * PAGE_ENTRIES


def refresh(history: History) -> Relocations | None:
    """Bring the local table up to the newest relocation object; None where nothing was ever moved."""
    table = history.relocations
    if table is None:
        return None
    missing: list[NumberedObject] = []
    for item in numbered.entries(history.store, history.prefix("relocations")):
        if item.number <= table.number:
            break
        missing.append(item)
    for item in reversed(missing):
        moved, emptied = _read(history, item)
        table.add(moved, number=item.number, emptied=emptied)
    return None if table.is_empty() else table


def newest_epoch(history: History) -> int:
    """Return the epoch of the newest relocation object, 0 without one."""
    item = numbered.newest(history.store, history.prefix("relocations"))
    return _open(history, item)[0].epoch if item else 0


def _open(history: History, item: NumberedObject) -> tuple[RelocationsHeader, list[bytes], bytes]:
    data = numbered.read(history.store, item, limit=PACK_BYTES)
    opened = open_control(history.keyring, packs.RELOCATIONS, data, item.name)
    header = decode(RelocationsHeader, opened.body, item.name)
    history.trusted.require(opened.signers, OWNER | WRITER, item.name, at=header.created, removed=True)
    if header.number != item.number or header.dataset != history.dataset:
        raise IntegrityError(f"{item.name}: it says object {header.number} of dataset {header.dataset.hex()[:16]}")
    if [hash_bytes(page) for page in opened.rest] != list(header.pages):
        raise IntegrityError(f"{item.name}: its pages are not those that were signed")
    return header, opened.rest, opened.digest


def _read(history: History, item: NumberedObject) -> tuple[list[Moved], list[bytes]]:
    _, pages, _ = _open(history, item)
    moved: list[Moved] = []
    emptied: list[bytes] = []
    for number, data in enumerate(pages):
        what = f"{item.name}: page {number}"
        if is_emptied_page(data):
            emptied += read_emptied_page(data, what).packs
            continue
        page = read_relocation_page(data, what)
        moved += [
            Moved(row.chunk, page.packs[row.pack], row.stored, row.form, row.position, row.offset)
            for row in page.entries
        ]
    return moved, emptied


def publish(history: History, emptied: Sequence[bytes] = ()) -> None:
    """Write relocation objects for all places of the local table that none tells yet and that can be relied on, then
    for the packs *emptied* by them.
    """
    table = history.relocations
    if table is None:
        raise AssertionError("a history without a table of relocations publishes none")
    drop_unreliable(history)
    while moved := _unpublished(history, table):
        pages = [_page(moved[start : start + PAGE_ENTRIES]) for start in range(0, len(moved), PAGE_ENTRIES)]
        if (number := _create(history, table.number, pages)) is not None:
            table.add(moved, number=number)
    ids = sorted(emptied)
    while ids:
        pages = [encode(EmptiedPage(tuple(ids[:EMPTIED_PACKS])))]
        refresh(history)
        if (number := _create(history, table.number, pages)) is not None:
            table.add((), number=number, emptied=ids[:EMPTIED_PACKS])
            ids = ids[EMPTIED_PACKS:]


def _unpublished(history: History, table: Relocations) -> list[Moved]:
    """Return places to publish, once those that others have told meanwhile are known: the newest ones win."""
    refresh(history)
    return table.unpublished(OBJECT_ENTRIES)


def _create(history: History, known: int, pages: list[bytes]) -> int | None:
    """Create the object after number *known*; None when another writer was first: read again, then."""
    item = numbered.newest(history.store, history.prefix("relocations"))
    number, previous = (item.number + 1, _open(history, item)[2]) if item else (1, ZERO_ID)
    if number != known + 1:
        return None
    header = RelocationsHeader(
        history.dataset, number, previous, history.now(), history.keyring.epoch, tuple(map(hash_bytes, pages))
    )
    keys, signer = history.keyring.sealing(packs.RELOCATIONS), history.require_writer()
    data = seal_control(keys, packs.RELOCATIONS, encode(header), signer, pages)
    try:
        numbered.create(history.store, history.prefix("relocations"), number, data, hashed=history.hashed)
    except AlreadyExists:
        return None
    return number


def drop_unreliable(history: History) -> None:
    """Forget unpublished places in packs that are condemned or gone: a run that was interrupted long ago left them."""
    table = history.relocations
    packs_of_places = table.unpublished_packs() if table is not None else []
    condemned = condemned_packs(history).packs if packs_of_places else frozenset()
    for pack in packs_of_places:
        try:
            reliable = pack not in condemned and history.store.stat(pack_name(history.dataset, pack)).size > 0
        except NotFound:
            reliable = False
        if not reliable and table is not None:
            table.drop_unpublished(pack)


def _page(moved: Sequence[Moved]) -> bytes:
    table: dict[bytes, int] = {}
    refs: list[PackRef] = []
    entries = []
    for item in moved:
        if item.pack.id not in table:
            table[item.pack.id] = len(refs)
            refs.append(item.pack)
        row = Relocation(item.id, item.stored, item.form, table[item.pack.id], item.position, item.offset)
        entries.append(row)
    return encode(RelocationPage(tuple(refs), tuple(entries)))
