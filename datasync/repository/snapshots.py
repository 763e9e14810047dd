"""Snapshots and heads of one dataset: reading with every check, committing in order
(docs/format.md, sections 11 to 13).

Write order: packs and pages are stored before `commit` is called; then the snapshot, then its head. Nothing is visible
before the snapshot. A lost race reads again and signs anew; it never just takes another number.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from datasync.crypto.hashing import hash_all, hash_bytes
from datasync.crypto.signatures import SigningKey
from datasync.errors import AlreadyExists, IntegrityError, NotAuthorized, NotFound, StorageUnavailable
from datasync.format import pack as packs
from datasync.format.control import Head
from datasync.format.encoding import decode, encode
from datasync.format.names import dataset_prefix
from datasync.format.names import numbered as numbered_name
from datasync.format.snapshot import Body, PageRef, read_body, read_page_list
from datasync.model.entries import PackRef
from datasync.model.ids import ZERO_ID
from datasync.model.limits import PACK_BYTES
from datasync.repository import forgotten, lineage, numbered
from datasync.repository.control import ControlObject, open_control, seal_control, signed_body
from datasync.repository.evidence import Evidence
from datasync.repository.forgotten_table import ForgottenTable
from datasync.repository.keyring import Keyring
from datasync.repository.keysets import ReadKeyset
from datasync.repository.numbered import NumberedObject
from datasync.repository.relocations import Relocations
from datasync.repository.trust import WRITERS, Trusted, Unlisted
from datasync.storage.protocol import ObjectStore

DAY_MS = 24 * 3600 * 1000
HEAD_LIFE_MS = 30 * DAY_MS
COMMIT_TRIES = 1000  # lost races; each means that another writer got through


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot whose signature, number and dataset hold."""

    id: bytes
    body: Body
    signer: bytes
    lists: list[bytes] = field(repr=False)
    stored: int
    signed: bytes = field(repr=False, default=b"")

    def pages(self) -> "list[tuple[PageRef, PackRef]]":
        """Return every page reference with its pack, in order."""
        found: list[tuple[PageRef, PackRef]] = []
        for data, _ in zip(self.lists, self.body.lists, strict=True):
            page_list = read_page_list(data, self.name)
            found += [(page, page_list.packs[page.pack]) for page in page_list.pages]
        if hash_all(page.id for page, _ in found) != self.body.manifest:
            raise IntegrityError(f"{self.name}: its pages do not hash to the root that was signed")
        return found

    @property
    def name(self) -> str:
        """Words for messages."""
        return f"snapshot {self.body.seq} ({self.id.hex()[:16]})"


class KeysMoved(StorageUnavailable):
    """Trust root or keyset are newer than those that the dataset was opened with: open it again."""


@dataclass(frozen=True, slots=True)
class FoundHead:
    """The newest head: its object's name, its content, the hash of its stored bytes, and its signed body."""

    name: str
    head: Head
    digest: bytes
    signed: bytes = field(repr=False)


@dataclass(slots=True)
class History:
    """The snapshots of one dataset, as one process reads and writes them."""

    store: ObjectStore
    dataset: bytes
    keyring: Keyring
    trusted: Trusted
    keyset: ReadKeyset
    evidence: Evidence
    hashed: bool
    signer: SigningKey | None = None
    clock: Callable[[], float] = time.time
    relocations: Relocations | None = None
    forgotten: ForgottenTable = field(default_factory=ForgottenTable, repr=False)
    ancestors: dict[bytes, bytes] = field(default_factory=dict, repr=False)  # of marks of removed writers

    @property
    def reads(self) -> bool:
        """False for a push-only writer."""
        return True

    def now(self) -> int:
        """Return the later of the local clock and the newest verified signed time, in ms."""
        return max(int(self.clock() * 1000), self.evidence.known.time)

    def prefix(self, kind: str) -> str:
        """Return where the dataset's objects of *kind* lie."""
        return f"{dataset_prefix(self.dataset)}{kind}/"

    # reading

    def head(self) -> FoundHead | None:
        """Return the newest head, None before the first; refuse one older than this machine has seen."""
        found = numbered.newest(self.store, self.prefix("heads"))
        if found is None:
            if self.evidence.known.head:
                raise self.evidence.refusal(
                    f"dataset {self.dataset.hex()[:16]}: this machine has seen head {self.evidence.known.head}, "
                    "the store has none: it was emptied or rolled back",
                    {},
                )
            return None
        head = self._read_head(found)
        self.evidence.note_head(head.head.number, head.signed)
        self.evidence.note_time(head.head.issued)
        return head

    def _read_head(self, item: NumberedObject) -> FoundHead:
        data = numbered.read(self.store, item, limit=PACK_BYTES)
        opened = open_control(self.keyring, packs.HEAD, data, item.name)
        head = decode(Head, opened.body, item.name)
        self.trusted.require(opened.signers, WRITERS, item.name, at=head.issued)
        if head.number != item.number or head.dataset != self.dataset:
            raise IntegrityError(f"{item.name}: it says head {head.number} of dataset {head.dataset.hex()[:16]}")
        return FoundHead(item.name, head, opened.digest, opened.signed)

    def newest(self, *, fresh: bool = True) -> Snapshot | None:
        """Return the head's snapshot, None for a dataset without one.

        *fresh*: refuse an expired head on a machine that has no memory of the dataset.
        """
        found = self.head()
        if found is None:
            return None
        head = found.head
        memory = self.evidence.known.snapshot[0] > 0
        if fresh and not memory and head.expires < self.now():
            raise self.evidence.refusal(
                f"{found.name}: the newest head expired and this machine has never seen the dataset: it may be "
                f"a replay; push once to renew it, or name the exact snapshot: NAME@{head.snapshot.hex()[:16]}",
                {found.name: found.signed},
            )
        snapshot = self.find(head.seq, expected=head.snapshot)
        if snapshot is None:
            raise self.deleted(head.seq, head.snapshot)
        self._note(snapshot)
        return snapshot

    def read(self, seq: int, *, expected: bytes | None = None) -> Snapshot:
        """Return snapshot *seq*; with *expected* the one of that id, which also settles two commits of one number.

        Raises `Forgotten` for one that was forgotten.
        """
        gone = forgotten.refresh(self).find(seq, expected)
        if gone is not None and (expected is not None or not self.hashed):
            raise forgotten.refusal(self, gone)
        found = self.find(seq, expected=expected)
        if found is not None:
            return found
        if gone is not None:
            raise forgotten.refusal(self, gone)
        if expected is not None:  # something signed says that it was here
            raise self.deleted(seq, expected)
        raise NotFound(
            f"snapshot {seq} of dataset {self.dataset.hex()[:16]}: not in the repository: `datasync log` lists what is"
        )

    def deleted(self, seq: int, expected: bytes) -> IntegrityError:
        """Return the refusal of a store that lacks a snapshot which something signed names."""
        return IntegrityError(
            f"{self.prefix('snapshots')}{numbered_name(seq)}: expected snapshot {expected.hex()[:16]}, the store does "
            "not have it: it was deleted"
        )

    def find(self, seq: int, *, expected: bytes | None = None) -> Snapshot | None:
        """Return snapshot *seq* as `read` does, forgotten or not; None when the store does not have it."""
        prefix = self.prefix("snapshots")
        if not self.hashed:
            try:
                return self._read_known(NumberedObject(prefix + numbered_name(seq), seq, None, 0.0), expected)
            except NotFound:
                pass  # it may have been made while the repository's naming was the other
        found = [
            item
            for item in numbered.find(self.store, prefix, seq)
            if item.digest in (None, expected) or (expected is None and not self.forgotten.has(seq, item.digest))
        ]
        if len(found) > 1:
            raise numbered.conflict(found[0], found[1])
        return self._read_known(found[0], expected) if found else None

    def _read_known(self, item: NumberedObject, expected: bytes | None) -> Snapshot:
        snapshot = self._read(item, expected)
        if expected is None:
            lineage.check_removed(self, snapshot)
        return snapshot

    def _read(self, item: NumberedObject, expected: bytes | None = None) -> Snapshot:
        data = numbered.read(self.store, item, limit=PACK_BYTES)
        digest = hash_bytes(data)
        if expected is not None and digest != expected:
            raise IntegrityError(
                f"{item.name}: expected snapshot {expected.hex()[:16]}, found {digest.hex()[:16]}: "
                "it was changed or replaced"
            )
        opened = open_control(self.keyring, packs.SNAPSHOT, data, item.name)
        body = read_body(opened.body, item.name)
        if body.seq != item.number or body.dataset != self.dataset:
            raise IntegrityError(f"{item.name}: it says snapshot {body.seq} of dataset {body.dataset.hex()[:16]}")
        if body.epoch != opened.epoch:
            raise IntegrityError(f"{item.name}: it says epoch {body.epoch}, it was sealed in epoch {opened.epoch}")
        if [hash_bytes(data) for data in opened.rest] != list(body.lists):
            raise IntegrityError(f"{item.name}: its page lists are not those that were signed")
        return Snapshot(
            digest, body, self.writer_of(opened, body, digest, item.name), opened.rest, len(data), opened.signed
        )

    def writer_of(self, opened: ControlObject, body: Body, digest: bytes, what: str) -> bytes:
        """Return who signed the snapshot; raise `Unlisted` when that may not be."""
        self.trusted.require(opened.signers, WRITERS, what, at=body.created, removed=True)
        signer = opened.signers[0]
        removed = (
            self.trusted.root.with_role(WRITERS, removed=True)[signer].removed
            if len(opened.signers) == 1
            else (0, ZERO_ID)
        )
        if removed is not None and (body.seq > removed[0] or (body.seq == removed[0] and digest != removed[1])):
            raise Unlisted(
                f"{what}: its writer was removed after snapshot {removed[0]}, or it has several signers: an owner "
                "settles that: `datasync key settle`"
            )
        return signer

    def _note(self, snapshot: Snapshot) -> None:
        """Advance the high-water mark to *snapshot*, or refuse it."""
        lineage.note(self, snapshot)

    def latest(self) -> Snapshot | None:
        """Return the highest-numbered snapshot, with or without a head: what the next push follows."""
        head = self.newest(fresh=False)
        item = numbered.newest(self.store, self.prefix("snapshots"))
        if item is None:
            if head is not None:
                raise IntegrityError(f"{head.name}: the head names it, the store lists no snapshot: it was deleted")
            if self.evidence.known.snapshot[0]:
                raise self.evidence.refusal(
                    f"dataset {self.dataset.hex()[:16]}: this machine has seen snapshot "
                    f"{self.evidence.known.snapshot[0]}, the store has none: it was emptied or rolled back",
                    {},
                )
            return None
        if head is not None and item.number < head.body.seq:
            raise self.evidence.refusal(
                f"{item.name}: the store lists snapshot {item.number} as the newest, the head names {head.body.seq}",
                {head.name: head.signed},
            )
        if head is not None and item.number == head.body.seq:
            return head
        snapshot = self._read(item)
        self._note(snapshot)
        return snapshot

    def line(self) -> "list[NumberedObject]":
        """Return the objects of all snapshots but forgotten ones, newest first; several of one number are all there."""
        table = forgotten.refresh(self)
        found = numbered.entries(self.store, self.prefix("snapshots"))
        return [item for item in found if not table.has(item.number, item.digest)]

    def read_object(self, item: NumberedObject) -> Snapshot:
        """Return the snapshot in *item*."""
        snapshot = self._read(item, item.digest)
        lineage.check_removed(self, snapshot)
        return snapshot

    # writing

    def check_current(self) -> None:
        """Raise `KeysMoved` when the store has a newer trust root or keyset than this was opened with."""
        for kind, known in (("trust", self.trusted.root.version), ("keyset", self.keyset.keyset.version)):
            found = numbered.newest(self.store, self.prefix(kind))
            if found is None or found.number < known:
                raise self.evidence.refusal(
                    f"{self.prefix(kind)}: this machine has seen number {known}, "
                    f"the store offers {found.number if found else 'none'}",
                    {},
                )
            if found.number > known:
                raise KeysMoved(
                    f"{self.prefix(kind)}: number {found.number} was made meanwhile: run the same line again"
                )

    def commit(self, body: Body, lists: list[bytes], condemned: Callable[[], None]) -> Snapshot:
        """Create the snapshot after the newest one, then its head; return it.

        *body* is signed anew with the seq and previous hash of each try; *condemned* is called before each and raises
        when a pack that it relies on was condemned meanwhile.
        """
        signer = self.require_writer()
        for _ in range(COMMIT_TRIES):
            before, previous, then = self._before()
            number = before + 1
            condemned()
            ready = msgspec.structs.replace(body, seq=number, previous=previous, created=max(self.now(), then))
            data = seal_control(self.keyring.sealing(packs.SNAPSHOT), packs.SNAPSHOT, encode(ready), signer, lists)
            try:
                numbered.create(self.store, self.prefix("snapshots"), number, data, hashed=self.hashed)
            except AlreadyExists:
                continue
            signed = signed_body(packs.SNAPSHOT, encode(ready), signer)
            snapshot = Snapshot(hash_bytes(data), ready, signer.public, lists, len(data), signed)
            self._note(snapshot)
            self.publish(snapshot)
            return snapshot
        raise IntegrityError(f"dataset {self.dataset.hex()[:16]}: lost {COMMIT_TRIES} races for the next snapshot")

    def _before(self) -> tuple[int, bytes, int]:
        """Return seq, id and time of the snapshot that the next one follows; zeros before the first."""
        newest = self.latest()
        return (newest.body.seq, newest.id, newest.body.created) if newest else (0, ZERO_ID, 0)

    def publish(self, snapshot: Snapshot, *, anew: bool = False) -> None:
        """Write a head for *snapshot* unless a head names a later one, or names it and has half of its life left;
        *anew*: write one all the same, so that it is sealed in the present epoch and signed by this identity.
        """
        signer = self.require_writer()
        for _ in range(COMMIT_TRIES):
            found = self.head()
            if found is not None and (
                found.head.seq > snapshot.body.seq or (self._fresh(found.head, snapshot) and not anew)
            ):
                return
            number = found.head.number + 1 if found else 1
            previous = found.digest if found else ZERO_ID
            now = self.now()
            head = Head(self.dataset, number, previous, snapshot.body.seq, snapshot.id, now, now + HEAD_LIFE_MS)
            data = seal_control(self.keyring.sealing(packs.HEAD), packs.HEAD, encode(head), signer)
            try:
                numbered.create(self.store, self.prefix("heads"), number, data, hashed=self.hashed)
            except AlreadyExists:
                continue
            self.evidence.note_head(number, signed_body(packs.HEAD, encode(head), signer))
            return
        raise IntegrityError(f"dataset {self.dataset.hex()[:16]}: lost {COMMIT_TRIES} races for the next head")

    def _fresh(self, head: Head, snapshot: Snapshot) -> bool:
        return head.seq == snapshot.body.seq and head.expires - self.now() > HEAD_LIFE_MS // 2

    def require_writer(self) -> SigningKey:
        """Return the key that signs here; `NotAuthorized` when this identity may not write."""
        if self.signer is None:
            raise NotAuthorized(
                f"dataset {self.dataset.hex()[:16]}: writing needs an identity, a passphrase alone only reads"
            )
        if self.signer.public not in self.trusted.root.with_role(WRITERS, at=self.now()):
            ended = self.signer.public in self.trusted.root.with_role(WRITERS)
            why = "may not write any more: its time has ended" if ended else "is not a writer of it"
            raise NotAuthorized(f"dataset {self.dataset.hex()[:16]}: this identity {why}: ask the owner")
        return self.signer
