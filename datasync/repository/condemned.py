"""Condemned packs: the newest list, on which no writer relies, and the next one (docs/format.md, section 12)."""

from collections.abc import Iterable

from datasync.errors import AlreadyExists, IntegrityError, NotAuthorized
from datasync.format import pack as packs
from datasync.format.control import Condemned, read_condemned
from datasync.format.encoding import encode
from datasync.format.trust import OWNER, WRITER
from datasync.model.ids import ZERO_ID
from datasync.model.limits import PACK_BYTES
from datasync.repository import numbered
from datasync.repository.control import open_control, seal_control
from datasync.repository.snapshots import COMMIT_TRIES, History

NOBODY = Condemned(ZERO_ID, 0, ZERO_ID, 0, ())


def read_list(history: History) -> tuple[Condemned, bytes]:
    """Return the newest list and the hash of its stored bytes; number 0 before the first."""
    item = numbered.newest(history.store, history.prefix("condemned"))
    if item is None:
        return NOBODY, ZERO_ID
    opened = open_control(
        history.keyring, packs.CONDEMNED, numbered.read(history.store, item, limit=PACK_BYTES), item.name
    )
    found = read_condemned(opened.body, item.name)
    history.trusted.require(opened.signers, OWNER | WRITER, item.name, at=found.created)
    if found.number != item.number or found.dataset != history.dataset:
        raise IntegrityError(f"{item.name}: it says list {found.number} of dataset {found.dataset.hex()[:16]}")
    return found, opened.digest


def condemned_packs(history: History) -> tuple[int, frozenset[bytes]]:
    """Return the number of the newest list (0 without one) and the pack ids on it, which a push-only writer can not
    read.
    """
    if not history.reads:
        item = numbered.newest(history.store, history.prefix("condemned"))
        return item.number if item else 0, frozenset()
    found, _ = read_list(history)
    return found.number, frozenset(pack for pack, _ in found.packs)


def condemn(history: History, added: Iterable[bytes], removed: Iterable[bytes] = ()) -> None:
    """Write the next list: the newest one with *added* from now on, and without *removed*, which are deleted."""
    signer = history.signer
    if signer is None:
        raise NotAuthorized("condemned packs: listing them needs an identity")
    for _ in range(COMMIT_TRIES):
        before, digest = read_list(history)
        now = history.now()
        listed = dict.fromkeys(added, now) | dict(before.packs)
        for pack in removed:
            listed.pop(pack, None)
        body = encode(Condemned(history.dataset, before.number + 1, digest, now, tuple(sorted(listed.items()))))
        data = seal_control(history.keyring.sealing(packs.CONDEMNED), packs.CONDEMNED, body, signer)
        try:
            numbered.create(history.store, history.prefix("condemned"), before.number + 1, data, hashed=history.hashed)
        except AlreadyExists:
            continue
        return
    raise IntegrityError(f"condemned packs: lost {COMMIT_TRIES} races for the next list")


def reissue(history: History) -> None:
    """Write the list anew in the present epoch, signed by this identity."""
    if read_list(history)[0].number:
        condemn(history, ())
