"""A push-only writer: adds snapshots, reads nothing, not even its own earlier data (docs/format.md, sections 4, 8, 11).

It holds no slot. Each pack and control object is sealed with a key of its own to the dataset's public keys, ids come
from the writer's own id key, which its snapshots carry sealed. It can not open heads, tags, condemned lists or the
snapshots of others: it numbers by what the store lists, follows the stored bytes of the snapshot before by their hash,
and after any new condemned list sends everything again. Readers check all of that with keys. What it needs of its own
last snapshot lies in one local file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from datasync.crypto.aead import PackOpener
from datasync.crypto.hashing import hash_bytes
from datasync.crypto.kdf import FixedKeys, derive, random_key
from datasync.crypto.recipients import HYBRID, Recipient
from datasync.errors import AlreadyExists, FormatError, IntegrityError, WrongKey
from datasync.format import pack as packs
from datasync.format.control import Head
from datasync.format.encoding import Record, decode, encode
from datasync.format.keyset import Keyset
from datasync.format.pack import PackHeader
from datasync.format.snapshot import Body
from datasync.model.ids import ZERO_ID
from datasync.model.limits import PACK_BYTES
from datasync.repository import numbered
from datasync.repository.control import seal_control, signed_body
from datasync.repository.keyring import Keyring, SealingKeys
from datasync.repository.local import replace_file
from datasync.repository.snapshots import COMMIT_TRIES, HEAD_LIFE_MS, History, Snapshot


class DepositKeyring(Keyring):
    """The public keys of the newest epoch, and the writer's own id key."""

    def __init__(self, keyset: Keyset, signing_seed: bytes) -> None:
        self.dataset = keyset.dataset
        self.epochs = {}
        self.epoch = self.keyset_epoch = keyset.epoch
        self._public = keyset.public[-1]
        self._id_key = derive(signing_seed, b"datasync/v1/own-id-key\0" + keyset.dataset)
        own = FixedKeys.from_metadata(self._id_key)
        self.fixed = FixedKeys(self._id_key, own.chunker_seed, own.page_cut, own.link)

    @property
    def reads_data(self) -> bool:
        """It reads nothing."""
        return False

    def material(self, type_: int, epoch: int) -> NoReturn:
        """Refuse: there is no key here that opens anything."""
        raise WrongKey(f"dataset {self.dataset.hex()[:16]}: this identity may push into it and reads nothing of it")

    def sealing(self, type_: int) -> SealingKeys:
        """Return the keys of one pack: a fresh one, sealed to the dataset."""
        key = random_key()
        bound = packs.bound_header(type_, packs.SEALED, self.epoch, self.dataset)
        public = self._public.data if type_ == packs.DATA else self._public.metadata
        sealed = Recipient(HYBRID, public).seal(key, b"datasync/v1/sealed-pack\0" + bound)
        return SealingKeys(self.dataset, packs.SEALED, self.epoch, key, sealed, derive(key, b"datasync/v1/salt"))

    def open_label(self, kind: str, context: bytes, sealed: bytes) -> NoReturn:
        """Refuse, as `material` does."""
        self.material(packs.METADATA, self.epoch)

    def opener(self, header: PackHeader, name: str) -> PackOpener:
        """Refuse, as `material` does."""
        return self.material(header.type, header.epoch)

    def sealed_id_key(self) -> bytes:
        """Return the id key for the dataset's readers."""
        return Recipient(HYBRID, self._public.metadata).seal(self._id_key, b"datasync/v1/id-key\0" + self.dataset)


class _Kept(Record, frozen=True):
    """What the local file holds of the last snapshot, and the condemned list that was the newest then."""

    id: bytes
    condemned: int
    stored: int
    body: Body
    lists: tuple[bytes, ...]


@dataclass(slots=True)
class Deposits(History):
    """The dataset's snapshots as a push-only writer sees them."""

    kept: Path = Path()

    @property
    def reads(self) -> bool:
        """A push-only writer opens nothing."""
        return False

    def head(self) -> NoReturn:
        """Refuse: heads are sealed to readers."""
        raise WrongKey(f"dataset {self.dataset.hex()[:16]}: this identity may push into it and reads nothing of it")

    def _numbers(self, kind: str) -> int:
        found = numbered.newest(self.store, self.prefix(kind))
        return found.number if found else 0

    def latest(self) -> Snapshot | None:
        """Return this writer's own last snapshot while the store has it and nothing was condemned since; else None."""
        kept = self._load()
        newest = self._numbers("snapshots")
        seen = self.evidence.known.snapshot[0]
        if newest < seen:
            raise self.evidence.refusal(
                f"dataset {self.dataset.hex()[:16]}: this machine has made or seen snapshot {seen}, the store offers "
                f"{newest} as the newest: it was rolled back",
                {},
            )
        if kept is None or kept.condemned != self._numbers("condemned"):
            return None
        found = numbered.find(self.store, self.prefix("snapshots"), kept.body.seq)
        if not found and newest > kept.body.seq and self._numbers("forgotten"):
            return None  # it may have been forgotten; which ones were is sealed to readers
        if not any(hash_bytes(numbered.read(self.store, item, limit=PACK_BYTES)) == kept.id for item in found):
            raise self.evidence.refusal(
                f"snapshot {kept.body.seq}: this machine made it, the store has another or none there", {}
            )
        signer = self.require_writer()
        signed = signed_body(packs.SNAPSHOT, encode(kept.body), signer)
        return Snapshot(kept.id, kept.body, signer.public, list(kept.lists), kept.stored, signed)

    def _before(self) -> tuple[int, bytes, int]:
        item = numbered.newest(self.store, self.prefix("snapshots"))
        if item is None:
            return 0, ZERO_ID, 0
        return item.number, hash_bytes(numbered.read(self.store, item, limit=PACK_BYTES)), 0

    def commit(self, body: Body, lists: list[bytes], condemned: Callable[[], None]) -> Snapshot:
        """Create the snapshot after the newest one, then its head; remember it here."""
        snapshot = super(Deposits, self).commit(body, lists, condemned)
        self._save(_Kept(snapshot.id, self._numbers("condemned"), snapshot.stored, snapshot.body, tuple(lists)))
        return snapshot

    def _note(self, snapshot: Snapshot) -> None:
        self.evidence.note_snapshot(snapshot.body.seq, snapshot.id, snapshot.signed)

    def publish(self, snapshot: Snapshot, *, anew: bool = False) -> None:
        """Write a head unless the store lists a later snapshot, whose writer writes it."""
        signer = self.require_writer()
        for _ in range(COMMIT_TRIES):
            if self._numbers("snapshots") > snapshot.body.seq:
                return
            item = numbered.newest(self.store, self.prefix("heads"))
            kept = self._load()
            if item is not None and kept is not None and kept.id == snapshot.id and not self._stale(kept):
                return  # its head was written when it was made
            previous = hash_bytes(numbered.read(self.store, item, limit=PACK_BYTES)) if item else ZERO_ID
            number, now = item.number + 1 if item else 1, self.now()
            head = Head(self.dataset, number, previous, snapshot.body.seq, snapshot.id, now, now + HEAD_LIFE_MS)
            data = seal_control(self.keyring.sealing(packs.HEAD), packs.HEAD, encode(head), signer)
            try:
                numbered.create(self.store, self.prefix("heads"), number, data, hashed=self.hashed)
            except AlreadyExists:
                continue
            return
        raise IntegrityError(f"dataset {self.dataset.hex()[:16]}: lost {COMMIT_TRIES} races for the next head")

    def _stale(self, kept: _Kept) -> bool:
        return self.now() - kept.body.created > HEAD_LIFE_MS // 2

    def _load(self) -> _Kept | None:
        try:
            return decode(_Kept, self.kept.read_bytes(), str(self.kept))
        except (FileNotFoundError, FormatError):
            return None  # the next push sends everything again

    def _save(self, kept: _Kept) -> None:
        replace_file(self.kept, encode(kept))
