"""Relocation objects: reading the new ones into the local table, and publishing what was re-sealed
(docs/format.md, section 12).
"""

from collections.abc import Sequence

from datasync.crypto.hashing import hash_bytes
from datasync.errors import AlreadyExists, IntegrityError
from datasync.format import pack as packs
from datasync.format.control import Relocation, RelocationPage, RelocationsHeader, read_relocation_page
from datasync.format.encoding import decode, encode
from datasync.format.trust import OWNER, WRITER
from datasync.model.entries import PackRef
from datasync.model.ids import ZERO_ID
from datasync.model.limits import PACK_BYTES
from datasync.repository import numbered
from datasync.repository.control import open_control, seal_control
from datasync.repository.numbered import NumberedObject
from datasync.repository.relocations import Moved, Relocations
from datasync.repository.snapshots import COMMIT_TRIES, History

PAGE_ENTRIES = 8_192  # of one relocation page: about 400 KiB
OBJECT_ENTRIES = 32 * PAGE_ENTRIES


def refresh(history: History) -> Relocations | None:
    """Bring the local table up to the newest relocation object; None for a dataset that never began a new epoch.

    In the first epoch nothing can have been re-sealed, so nothing is asked for then.
    """
    table = history.relocations
    if table is None or history.keyring.epoch == 1:
        return None
    missing: list[NumberedObject] = []
    for item in numbered.entries(history.store, history.prefix("relocations")):
        if item.number <= table.number:
            break
        missing.append(item)
    for item in reversed(missing):
        table.add(_read(history, item), number=item.number)
    return table


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


def _read(history: History, item: NumberedObject) -> list[Moved]:
    _, pages, _ = _open(history, item)
    moved: list[Moved] = []
    for number, data in enumerate(pages):
        page = read_relocation_page(data, f"{item.name}: page {number}")
        moved += [
            Moved(row.chunk, page.packs[row.pack], row.stored, row.form, row.position, row.offset)
            for row in page.entries
        ]
    return moved


def publish(history: History) -> None:
    """Write relocation objects for all places of the local table that none tells yet."""
    table, signer = history.relocations, history.require_writer()
    if table is None:
        raise AssertionError("a history without a table of relocations publishes none")
    while moved := table.unpublished(OBJECT_ENTRIES):
        pages = [_page(moved[start : start + PAGE_ENTRIES]) for start in range(0, len(moved), PAGE_ENTRIES)]
        for _ in range(COMMIT_TRIES):
            refresh(history)
            item = numbered.newest(history.store, history.prefix("relocations"))
            number, previous = (item.number + 1, _open(history, item)[2]) if item else (1, ZERO_ID)
            header = RelocationsHeader(
                history.dataset, number, previous, history.now(), history.keyring.epoch, tuple(map(hash_bytes, pages))
            )
            keys = history.keyring.sealing(packs.RELOCATIONS)
            data = seal_control(keys, packs.RELOCATIONS, encode(header), signer, pages)
            try:
                numbered.create(history.store, history.prefix("relocations"), number, data, hashed=history.hashed)
            except AlreadyExists:
                continue
            table.add(moved, number=number)
            break
        else:
            raise IntegrityError(f"relocations: lost {COMMIT_TRIES} races for the next object")


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
