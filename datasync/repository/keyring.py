"""The keys of one dataset, as opened from its keyset (docs/format.md, sections 4 and 7).

A keyring never shows its keys by repr. Raises `WrongKey` for what its holder may not open, `IntegrityError` for a
keyset that is not consistent with the keys.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from datasync.crypto.aead import PackOpener, open_box, seal_box
from datasync.crypto.kdf import EpochKeys, FixedKeys, derive
from datasync.crypto.recipients import HYBRID, KEY_PAIR_SEED_BYTES, KeyPair
from datasync.errors import IntegrityError, WrongKey
from datasync.format import pack as packs
from datasync.format.keyset import EpochPublic, Keyset, Link
from datasync.format.labels import EPOCH_BYTES, HolderLabel, read_label, write_label
from datasync.format.names import is_name
from datasync.format.pack import PackHeader

OPENERS_KEPT = 1024  # derived pack keys remembered; 32 GiB worth of full packs


class UnknownEpoch(IntegrityError):
    """Sealed in an epoch that this keyset does not have: changed bytes, or a keyset that is not the newest."""


@dataclass(frozen=True, slots=True, repr=False)
class SealingKeys:
    """What sealing one type of pack needs."""

    dataset: bytes
    source: int
    epoch: int
    material: bytes
    sealed_key: bytes
    salt_key: bytes


class Keyring:
    """All epochs' keys of a dataset. Thread-safe."""

    def __init__(self, dataset: bytes, epochs: dict[int, EpochKeys], keyset_epoch: int) -> None:
        self.dataset = dataset
        self.epochs = epochs
        self.epoch = max(epochs)
        self.keyset_epoch = keyset_epoch
        self.fixed = FixedKeys.from_metadata(epochs[1].metadata)
        self._openers: OrderedDict[bytes, PackOpener] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def reads_data(self) -> bool:
        """False for who holds the metadata key alone."""
        return self.epochs[self.epoch].root is not None

    def require_data(self) -> None:
        """Raise `WrongKey` for who may not read files."""
        self.material(packs.DATA, self.epoch)

    def material(self, type_: int, epoch: int) -> bytes:
        """Return the epoch key that packs of *type_* derive from."""
        keys = self.epochs.get(epoch)
        if not 1 <= epoch <= self.keyset_epoch:
            raise UnknownEpoch(
                f"dataset {self.dataset.hex()[:16]}: epoch {epoch} does not exist, the keyset has {self.keyset_epoch}"
            )
        if keys is None:
            raise WrongKey(f"dataset {self.dataset.hex()[:16]}: this identity has no key for epoch {epoch}")
        key = keys.data if type_ == packs.DATA else keys.metadata
        if key is None:
            raise WrongKey(f"dataset {self.dataset.hex()[:16]}: this identity may read names and history, not data")
        return key

    def sealing(self, type_: int) -> SealingKeys:
        """Return what sealing a pack of *type_* in the current epoch needs."""
        material = self.material(type_, self.epoch)
        return SealingKeys(
            self.dataset, packs.DERIVED, self.epoch, material, b"", derive(material, b"datasync/v1/salt")
        )

    def opener(self, header: PackHeader, name: str) -> PackOpener:
        """Return what opens the chunks of the pack with *header*; its key commitment is checked here."""
        if header.dataset != self.dataset:
            raise IntegrityError(
                f"{name}: expected a pack of dataset {self.dataset.hex()[:16]}, "
                f"found one of {header.dataset.hex()[:16]}"
            )
        key = header.encode()
        with self._lock:
            opener = self._openers.get(key)
        if opener is None:
            bound = packs.bound_header(header.type, header.source, header.epoch, header.dataset)
            opener = PackOpener(
                self._header_material(header, bound), header.salt, _pack_info(bound), header.commitment, name
            )
            with self._lock:
                self._openers[key] = opener
                while len(self._openers) > OPENERS_KEPT:
                    self._openers.popitem(last=False)
        return opener

    def _header_material(self, header: PackHeader, bound: bytes) -> bytes:
        material = self.material(header.type, header.epoch)
        if header.source == packs.DERIVED:
            return material
        try:
            return key_pair(material).open(HYBRID, header.sealed_key, b"datasync/v1/sealed-pack\0" + bound)
        except WrongKey:
            raise IntegrityError("the sealed pack key was not made for this dataset, or was changed") from None

    def sealed_id_key(self) -> bytes:
        """Return the id key that a snapshot carries: none, ids are the dataset's."""
        return b""

    def seal_name(self, name: str) -> bytes:
        """Return the dataset's *name*, sealed for the keyset."""
        return seal_box(self.epochs[self.epoch].metadata, "name", self.dataset, name.encode())

    def seal_label(self, kind: str, context: bytes, label: HolderLabel) -> bytes:
        """Return the label of a slot or principal (*kind*), sealed under the current epoch."""
        box = seal_box(self.epochs[self.epoch].metadata, kind, context, write_label(label))
        return self.epoch.to_bytes(EPOCH_BYTES, "little") + box

    def open_label(self, kind: str, context: bytes, sealed: bytes) -> HolderLabel:
        """Return what `seal_label` sealed; an absent label is an empty one."""
        if not sealed:
            return HolderLabel("", b"", b"")
        keys = self.epochs.get(int.from_bytes(sealed[:EPOCH_BYTES], "little"))
        if keys is None:
            raise IntegrityError(f"the label of a {kind} was sealed in an epoch that the keyset does not have")
        return read_label(open_box(keys.metadata, kind, context, sealed[EPOCH_BYTES:]), f"label of a {kind}")


def _pack_info(bound: bytes) -> bytes:
    return b"datasync/v1/pack\0" + bound


def pack_info(type_: int, source: int, epoch: int, dataset: bytes) -> bytes:
    """Return the HKDF info that a pack's key is derived with."""
    return _pack_info(packs.bound_header(type_, source, epoch, dataset))


def key_pair(material: bytes) -> KeyPair:
    """Return the dataset's key pair that belongs to a data or metadata key."""
    return KeyPair(derive(material, b"datasync/v1/key-pair", KEY_PAIR_SEED_BYTES))


def public_keys(keys: EpochKeys) -> EpochPublic:
    """Return the public keys of an epoch, which push-only writers seal to."""
    data = keys.data
    if data is None:
        raise WrongKey("public keys of an epoch are made from its root key")
    return EpochPublic(key_pair(data).recipient.public, key_pair(keys.metadata).recipient.public)


def open_name(metadata: bytes, dataset: bytes, box: bytes) -> str:
    """Return the dataset's name from its keyset."""
    try:
        name = open_box(metadata, "name", dataset, box).decode()
    except UnicodeDecodeError:
        raise IntegrityError("keyset: the dataset's name is not UTF-8") from None
    if not is_name(name):
        raise IntegrityError("keyset: the dataset's name breaks the rule for names")
    return name


def chain_context(dataset: bytes, epoch: int) -> bytes:
    """Return the context that a chain link's boxes are bound to."""
    return dataset + epoch.to_bytes(4, "little")


def link_epochs(dataset: bytes, older: EpochKeys, newer: EpochKeys) -> Link:
    """Wrap *older*'s keys under *newer*'s."""
    if older.root is None or newer.root is None:
        raise WrongKey("linking epochs needs both root keys")
    context = chain_context(dataset, older.epoch)
    root = seal_box(derive(newer.root, b"datasync/v1/chain"), "chain", context, older.root)
    metadata = seal_box(
        derive(newer.metadata, b"datasync/v1/metadata-chain"), "metadata-chain", context, older.metadata
    )
    return Link(older.epoch, root, metadata)


def unchain(keyset: Keyset, newest: EpochKeys) -> dict[int, EpochKeys]:
    """Return the keys of *newest* and of every older epoch, and check them against the keyset's public keys."""
    epochs = {newest.epoch: newest}
    current = newest
    for link in reversed(keyset.chain[: newest.epoch - 1]):
        context = chain_context(keyset.dataset, link.epoch)
        metadata = open_box(
            derive(current.metadata, b"datasync/v1/metadata-chain"), "metadata-chain", context, link.metadata
        )
        if current.root is None:
            current = EpochKeys(link.epoch, None, metadata)
        else:
            root = open_box(derive(current.root, b"datasync/v1/chain"), "chain", context, link.root)
            current = EpochKeys.from_root(link.epoch, root)
            if current.metadata != metadata:
                raise IntegrityError(
                    f"keyset {keyset.version}: epoch {link.epoch} has a metadata key that is not its root key's"
                )
        epochs[link.epoch] = current
    for epoch, keys in epochs.items():
        listed = keyset.public[epoch - 1]
        if key_pair(keys.metadata).recipient.public != listed.metadata or (
            keys.root is not None and public_keys(keys) != listed
        ):
            raise IntegrityError(f"keyset {keyset.version}: the public keys of epoch {epoch} are not the dataset's")
    return epochs
