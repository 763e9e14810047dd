"""Condemned packs: the newest list, on which no writer relies, and the next one (docs/format.md, section 12)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from datasync.crypto.signatures import SigningKey
from datasync.errors import AlreadyExists, IntegrityError, NotAuthorized
from datasync.format import pack as packs
from datasync.format.control import Condemned, read_condemned
from datasync.format.encoding import encode
from datasync.format.trust import OWNER, WRITER
from datasync.model.ids import ZERO_ID
from datasync.model.limits import PACK_BYTES
from datasync.repository import numbered
from datasync.repository.control import open_control, seal_control
from datasync.repository.numbered import NumberedObject
from datasync.repository.snapshots import COMMIT_TRIES, DAY_MS, History

GRACE_MS = 14 * DAY_MS  # a condemned pack is deleted after this time at the earliest
LISTED_PACKS = 80_000  # of one list: its body is one chunk of at most 4 MiB, 45 bytes a pack

NOBODY = Condemned(ZERO_ID, 0, ZERO_ID, 0, ())


class Listed(NamedTuple):
    """The number of a list (0 without one), the packs on it, and when it was stored (ms by the store's clock)."""

    number: int
    packs: frozenset[bytes]
    stored: int


def read_list(history: History) -> tuple[Condemned, bytes]:
    """Return the newest list and the hash of its stored bytes; number 0 before the first."""
    item = numbered.newest(history.store, history.prefix("condemned"))
    return _read(history, item) if item is not None else (NOBODY, ZERO_ID)


def _read(history: History, item: NumberedObject, *, old: bool = False) -> tuple[Condemned, bytes]:
    opened = open_control(
        history.keyring, packs.CONDEMNED, numbered.read(history.store, item, limit=PACK_BYTES), item.name
    )
    found = read_condemned(opened.body, item.name)
    history.trusted.require(opened.signers, OWNER | WRITER, item.name, at=found.created, removed=old)
    if found.number != item.number or found.dataset != history.dataset:
        raise IntegrityError(f"{item.name}: it says list {found.number} of dataset {found.dataset.hex()[:16]}")
    return found, opened.digest


def condemned_packs(history: History) -> Listed:
    """Return the newest list, whose packs a push-only writer can not read."""
    item = numbered.newest(history.store, history.prefix("condemned"))
    if item is None:
        return Listed(0, frozenset(), 0)
    listed = _read(history, item)[0].packs if history.reads else ()
    return Listed(item.number, frozenset(pack for pack, _ in listed), int(item.modified * 1000))


def listed_at(history: History, when: int) -> frozenset[bytes]:
    """Return the packs on the list that was the newest at *when* (ms by the store's clock), whatever times it names:
    those may be of a wrong clock.
    """
    for item in numbered.entries(history.store, history.prefix("condemned")):
        if item.modified * 1000 <= when:
            return frozenset(pack for pack, _ in _read(history, item, old=True)[0].packs)
    return frozenset()


def condemn(
    history: History, added: Iterable[bytes], removed: Iterable[bytes] = (), *, restarted: Iterable[bytes] = ()
) -> Condemned:
    """Write the next list and return it: the newest one with *added* from now on, with the time of those *restarted*
    begun anew, and without *removed*, which are gone.
    """
    new, again, gone = list(added), list(restarted), list(removed)
    for _ in range(COMMIT_TRIES):
        before, digest = read_list(history)
        now = history.now()
        room = max(0, LISTED_PACKS - len(before.packs))
        listed = dict.fromkeys(new[:room], now) | dict(before.packs)
        listed |= {pack: now for pack in again if pack in listed}
        for pack in gone:
            listed.pop(pack, None)
        if (made := _create(history, before.number + 1, digest, now, listed)) is not None:
            return made
    raise IntegrityError(f"condemned packs: lost {COMMIT_TRIES} races for the next list")


def set_times(history: History, packs_since: Iterable[tuple[bytes, int]]) -> Condemned:
    """Write the next list with other times (ms) for packs that are on it: those of the store's own clock."""
    wanted = dict(packs_since)
    for _ in range(COMMIT_TRIES):
        before, digest = read_list(history)
        listed = {pack: wanted.get(pack, since) for pack, since in before.packs}
        if (found := _create(history, before.number + 1, digest, history.now(), listed)) is not None:
            return found
    raise IntegrityError(f"condemned packs: lost {COMMIT_TRIES} races for the next list")


def _create(history: History, number: int, previous: bytes, now: int, listed: Mapping[bytes, int]) -> Condemned | None:
    """Create list *number*; None when another writer was first."""
    made = Condemned(history.dataset, number, previous, now, tuple(sorted(listed.items())))
    data = seal_control(
        history.keyring.sealing(packs.CONDEMNED), packs.CONDEMNED, encode(made), require_signer(history)
    )
    try:
        numbered.create(history.store, history.prefix("condemned"), number, data, hashed=history.hashed)
    except AlreadyExists:
        return None
    return made


def require_signer(history: History) -> SigningKey:
    """Return the key that signs lists; `NotAuthorized` for who neither owns nor writes."""
    signer = history.signer
    if signer is None or signer.public not in history.trusted.root.with_role(OWNER | WRITER, at=history.now()):
        raise NotAuthorized(
            f"dataset {history.dataset.hex()[:16]}: condemning packs needs an owner or writer, this identity is none: "
            "ask an owner"
        )
    return signer


def reissue(history: History) -> None:
    """Write the list anew in the present epoch, signed by this identity."""
    if read_list(history)[0].number:
        condemn(history, ())
