"""Forgotten snapshots: reading what the repository says of them, and saying it (docs/format.md, section 12).

Each object of the series is signed by an owner; the newest by one who was not removed, and it vouches for those before
it by their hash. What is read is kept in a local table, its number and hash in the evidence: a store that offers less
is refused. Raises `Forgotten` for a snapshot that is gone, `IntegrityError` for objects that do not hold.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.signatures import SigningKey, signer_text
from datasync.errors import AlreadyExists, IntegrityError, NotAuthorized, NotFound
from datasync.format import pack as packs
from datasync.format.control import ForgottenEntry, ForgottenHeader, ForgottenPage, read_forgotten_page
from datasync.format.encoding import decode, encode
from datasync.format.signed import read_signed
from datasync.format.snapshot import read_body
from datasync.format.trust import OWNER
from datasync.model.ids import ZERO_ID
from datasync.model.limits import MIB, PACK_BYTES
from datasync.repository import numbered
from datasync.repository.control import open_control, seal_control
from datasync.repository.forgotten_table import ForgottenTable, Gone
from datasync.repository.numbered import NumberedObject
from datasync.repository.trust import WRITERS, check_signatures

if TYPE_CHECKING:
    from datasync.repository.snapshots import History

KIND = "forgotten"
PAGE_BYTES = 1 * MIB  # of headers in one page, about 1,500 of them
OBJECT_PAGES = 16
TRIES = 1000  # lost races; each means that another owner got through


class Forgotten(NotFound):
    """The snapshot was forgotten."""


def refusal(history: "History", gone: Gone) -> Forgotten:
    """Return the refusal of a forgotten snapshot: when it was forgotten, and by whom."""
    when = datetime.fromtimestamp(gone.forgotten / 1000, UTC)
    return Forgotten(
        f"snapshot {gone.seq} ({gone.id.hex()[:16]}): it was forgotten on {when:%Y-%m-%d %H:%M} UTC by "
        f"{name_of(history, gone.by)}: take another one (`datasync log` lists them)"
    )


def name_of(history: "History", signer: bytes) -> str:
    """Return what people call *signer*: its holder's name, or the first digits of its text form."""
    keyring = history.keyring
    labels = [keyring.open_label("principal", p.signer, p.label) for p in history.trusted.root.principals if p.label]
    labels += [
        keyring.open_label("slot", slot.id, slot.label)
        for slot in history.keyset.keyset.slots
        if slot.epoch == keyring.epoch
    ]
    return next((label.name for label in labels if label.signer == signer and label.name), signer_text(signer)[:16])


# reading


def refresh(history: "History") -> ForgottenTable:
    """Bring the local table up to the newest object; refuse a series that is shorter than this machine has seen."""
    table, prefix = history.forgotten, history.prefix(KIND)
    number, digest = table.newest
    missing: list[NumberedObject] = []
    newest = 0
    for item in numbered.entries(history.store, prefix):
        newest = max(newest, item.number)
        if item.number <= number:
            break
        missing.append(item)
    _refuse_less(history, newest, max(number, history.evidence.known.forgotten[0]))
    if missing:
        _read_all(history, list(reversed(missing)), number, digest)
    return table


def _refuse_less(history: "History", found: int, known: int) -> None:
    if found < known:
        raise history.evidence.refusal(
            f"{history.prefix(KIND)}: this machine has seen number {known}, the store offers {found or 'none'}: "
            "what was forgotten came back: it was rolled back",
            {},
        )


def _read_all(history: "History", items: Sequence[NumberedObject], number: int, digest: bytes) -> None:
    """Enter *items*, the oldest first, which follow object *number*; none of them before all are verified."""
    found: list[tuple[int, bytes, list[Gone]]] = []
    for item in items:
        if item.number != number + 1:
            raise _gap(items, item, number, history.prefix(KIND))
        gone, digest = _read(history, item, digest, newest=item is items[-1])
        number = item.number
        found.append((number, digest, gone))
    history.evidence.note_forgotten(number, digest)
    for number, digest, gone in found:
        history.forgotten.add(gone, number=number, digest=digest)
    history.evidence.save()


def _gap(items: Sequence[NumberedObject], item: NumberedObject, number: int, prefix: str) -> IntegrityError:
    twin = next((other for other in items if other.number == item.number and other is not item), None)
    if item.number == number and twin is not None:
        return numbered.conflict(twin, item)
    return IntegrityError(f"{prefix}: object {number + 1} of what was forgotten is not there: it was deleted")


def _read(history: "History", item: NumberedObject, previous: bytes, *, newest: bool) -> tuple[list[Gone], bytes]:
    data = numbered.read(history.store, item, limit=PACK_BYTES)
    opened = open_control(history.keyring, packs.FORGOTTEN, data, item.name)
    header = decode(ForgottenHeader, opened.body, item.name)
    history.trusted.require(opened.signers, OWNER, item.name, at=header.created, removed=not newest)
    if (header.number, header.dataset) != (item.number, history.dataset):
        raise IntegrityError(f"{item.name}: it says object {header.number} of dataset {header.dataset.hex()[:16]}")
    if header.previous != previous:
        raise IntegrityError(f"{item.name}: it does not follow the object before it: one of them was replaced")
    if [hash_bytes(page) for page in opened.rest] != list(header.pages):
        raise IntegrityError(f"{item.name}: its pages are not those that were signed")
    gone = [
        _gone(history, entry, header.created, opened.signers[0], f"{item.name}: snapshot {entry.seq}")
        for page in opened.rest
        for entry in read_forgotten_page(page, item.name).snapshots
    ]
    history.evidence.note_time(header.created)
    return gone, opened.digest


def _gone(history: "History", entry: ForgottenEntry, when: int, by: bytes, what: str) -> Gone:
    signed = read_signed(entry.header, what)
    signers, body = check_signatures(signed, "snapshot", what), read_body(signed.body, what)
    history.trusted.require(signers, WRITERS, what, at=body.created, removed=True)
    if len(signers) != 1 or (body.seq, body.dataset) != (entry.seq, history.dataset):
        raise IntegrityError(f"{what}: its header says snapshot {body.seq} of dataset {body.dataset.hex()[:16]}")
    return Gone(body.seq, entry.snapshot, body.previous, body.created, when, by, entry.header)


# writing


def require_owner(history: "History") -> SigningKey:
    """Return the key that signs what is forgotten; `NotAuthorized` when this identity does not own the dataset."""
    signer = history.signer
    if signer is None or signer.public not in history.trusted.root.with_role(OWNER, at=history.now()):
        raise NotAuthorized(
            f"dataset {history.dataset.hex()[:16]}: forgetting needs an owner, this identity is none: ask an owner"
        )
    return signer


def declare(history: "History", entries: Sequence[ForgottenEntry]) -> None:
    """Say that *entries* are forgotten: one object, or several where they do not fit into one."""
    rest = sorted(entries, key=lambda item: (item.seq, item.snapshot))
    for pages in _objects(rest):
        _write(history, pages)
    refresh(history)


def reissue(history: "History") -> None:
    """Write an object without pages, signed by this identity, which vouches for all before it."""
    if numbered.newest(history.store, history.prefix(KIND)) is not None:
        _write(history, [])


def _objects(entries: Sequence[ForgottenEntry]) -> Iterator[list[bytes]]:
    pages: list[bytes] = []
    some: list[ForgottenEntry] = []
    used = 0
    for entry in entries:
        if some and used + len(entry.header) > PAGE_BYTES:
            pages.append(encode(ForgottenPage(tuple(some))))
            some, used = [], 0
            if len(pages) == OBJECT_PAGES:
                yield pages
                pages = []
        some.append(entry)
        used += len(entry.header)
    if some:
        pages.append(encode(ForgottenPage(tuple(some))))
    if pages:
        yield pages


def _write(history: "History", pages: list[bytes]) -> None:
    signer = require_owner(history)
    for _ in range(TRIES):
        number, previous = _last(history)
        header = ForgottenHeader(
            history.dataset, number + 1, previous, history.now(), tuple(hash_bytes(page) for page in pages)
        )
        keys = history.keyring.sealing(packs.FORGOTTEN)
        data = seal_control(keys, packs.FORGOTTEN, encode(header), signer, pages)
        try:
            numbered.create(history.store, history.prefix(KIND), number + 1, data, hashed=history.hashed)
        except AlreadyExists:
            continue
        return
    raise IntegrityError(f"dataset {history.dataset.hex()[:16]}: lost {TRIES} races for the next forgotten object")


def _last(history: "History") -> tuple[int, bytes]:
    """Return number and hash of the newest object, by whomever it was signed."""
    item = numbered.newest(history.store, history.prefix(KIND))
    if item is None:
        return 0, ZERO_ID
    return item.number, hash_bytes(numbered.read(history.store, item, limit=PACK_BYTES))
