"""The newest list of condemned packs, on which no writer relies (docs/format.md, section 12)."""

from datasync.errors import IntegrityError
from datasync.format import pack as packs
from datasync.format.control import read_condemned
from datasync.format.trust import OWNER, WRITER
from datasync.model.limits import PACK_BYTES
from datasync.repository import numbered
from datasync.repository.control import open_control
from datasync.repository.snapshots import History


def condemned_packs(history: History) -> tuple[int, frozenset[bytes]]:
    """Return the number of the newest list (0 without one) and the pack ids on it."""
    item = numbered.newest(history.store, history.prefix("condemned"))
    if item is None:
        return 0, frozenset()
    opened = open_control(
        history.keyring, packs.CONDEMNED, numbered.read(history.store, item, limit=PACK_BYTES), item.name
    )
    found = read_condemned(opened.body, item.name)
    history.trusted.require(opened.signers, OWNER | WRITER, item.name)
    if found.number != item.number or found.dataset != history.dataset:
        raise IntegrityError(f"{item.name}: it says list {found.number} of dataset {found.dataset.hex()[:16]}")
    return found.number, frozenset(pack for pack, _ in found.packs)
