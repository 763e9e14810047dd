"""Keysets: making the first one, reading the newest, opening it (docs/format.md, section 7)."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from datasync.crypto import slots
from datasync.crypto.hashing import hash_bytes
from datasync.crypto.kdf import EpochKeys, random_key
from datasync.crypto.signatures import SigningKey
from datasync.errors import IntegrityError, NotFound, WrongKey
from datasync.format import signed as plain
from datasync.format.keyset import SUITE, Keyset, Slot, read_keyset, write_keyset
from datasync.format.names import dataset_prefix
from datasync.format.signed import Signature, read_plain, read_signed, write_plain, write_signed
from datasync.model.ids import ZERO_ID
from datasync.repository import numbered
from datasync.repository.holders import Grantee, Secrets, make_slot, open_slot
from datasync.repository.keyring import Keyring, open_name, public_keys, unchain
from datasync.repository.local import LocalCopies
from datasync.repository.trust import PLAIN_BYTES, Trusted, check_signatures, require_threshold
from datasync.storage.protocol import ObjectStore

CLOCK_SLACK_MS = 5 * 60 * 1000  # clocks of two machines that both are right


class Closed(WrongKey):
    """A dataset of this holder's that does not open here and now, for the reason given."""


class Shredded(NotFound):
    """The dataset's keys were destroyed on purpose; nothing is made in its place. `keyset` is its last one."""

    def __init__(self, message: str, keyset: Keyset) -> None:
        super().__init__(message)
        self.keyset = keyset
        self.owners: frozenset[bytes] = frozenset()  # set by who knows the trust root


@dataclass(frozen=True, slots=True)
class ReadKeyset:
    """A keyset whose signatures hold, and the hash of its stored bytes."""

    keyset: Keyset
    digest: bytes


def first_keyset(
    dataset: bytes, name: str, trust_digest: bytes, owner: SigningKey, grantees: Sequence[Grantee], created: int
) -> bytes:
    """Return keyset version 1 with a fresh root key, wrapped for each of *grantees*."""
    keys = EpochKeys.from_root(1, random_key())
    keyring = Keyring(dataset, {1: keys}, 1)
    made = [make_slot(grantee, keyring, created, owner.public) for grantee in grantees]
    keyset = Keyset(
        dataset,
        1,
        ZERO_ID,
        (1, trust_digest),
        created,
        SUITE,
        1,
        keyring.seal_name(name),
        (),
        (public_keys(keys),),
        tuple(sorted(made, key=lambda slot: slot.id)),
    )
    body = write_keyset(keyset)
    return write_plain(plain.KEYSET, write_signed(body, [Signature(owner.public, owner.sign("keyset", body))]))


def load_keyset(
    store: ObjectStore, copies: LocalCopies, dataset: bytes, trusted: Trusted, version: int | None = None
) -> ReadKeyset:
    """Return the newest keyset, or *version* when that is known to be the newest; its signatures are checked."""
    prefix = dataset_prefix(dataset) + "keyset/"
    if version is None:
        found = numbered.newest(store, prefix)
        if found is None:
            raise NotFound(f"dataset {dataset.hex()[:16]}: no keyset in the repository")
        version = found.number
    fetch = partial(numbered.read_number, store, prefix, version, limit=PLAIN_BYTES)
    check = partial(_check_keyset, version=version, dataset=dataset, trusted=trusted)
    return copies.get(f"{prefix}{version}", fetch, check)


def _check_keyset(data: bytes, version: int, dataset: bytes, trusted: Trusted) -> ReadKeyset:
    what = f"keyset {version} of dataset {dataset.hex()[:16]}"
    signed = read_signed(read_plain(plain.KEYSET, data, what), what)
    signers = check_signatures(signed, "keyset", what)
    keyset = read_keyset(signed.body, what)
    if keyset.version != version or keyset.dataset != dataset:
        raise IntegrityError(f"{what}: it says version {keyset.version} of dataset {keyset.dataset.hex()[:16]}")
    if keyset.trust[0] > trusted.root.version or (
        keyset.trust[0] == trusted.root.version and keyset.trust[1] != trusted.digest
    ):
        raise IntegrityError(f"{what}: it names trust root {keyset.trust[0]}, which this repository does not have")
    require_threshold(signers, trusted.root, what, at=keyset.created)
    return ReadKeyset(keyset, hash_bytes(data))


def open_keyset(found: ReadKeyset, secrets: Secrets, now: int) -> tuple[Keyring, str]:
    """Return the keyring and the dataset's name.

    Raises `WrongKey` when nothing of *secrets* opens a slot that is valid at *now* (ms), `Shredded` for a dataset
    whose keys were destroyed.
    """
    keyset = found.keyset
    if keyset.shredded:
        raise Shredded(
            f"dataset {keyset.dataset.hex()[:16]}: it was shredded on {_day(keyset.created)}: "
            "its keys were destroyed, nothing opens it any more",
            keyset,
        )
    late: list[Closed] = []
    what = f"keyset {keyset.version} of dataset {keyset.dataset.hex()[:16]}"
    lent = (slot for dataset, slot in secrets.lent if dataset == keyset.dataset)
    for slot in sorted((*keyset.slots, *lent), key=lambda item: (-item.epoch, item.scope, item.kind)):
        if slot.epoch != keyset.epoch:
            continue  # an older epoch's slot opens neither the name nor new data
        with _naming(f"{what}: slot {slot.id.hex()}"):
            carried = open_slot(slot, keyset.dataset, secrets)
        if carried is None:
            continue
        refusal = _outside(slot, keyset.dataset, now)
        if refusal is not None:
            late.append(refusal)
            continue
        newest = (
            EpochKeys.from_root(slot.epoch, carried)
            if slot.scope == slots.SCOPE_ROOT
            else EpochKeys(slot.epoch, None, carried)
        )
        with _naming(what):
            keyring = Keyring(keyset.dataset, unchain(keyset, newest), keyset.epoch)
            return keyring, open_name(newest.metadata, keyset.dataset, keyset.name)
    if late:
        raise late[0]
    also = " or passphrase" if secrets.passphrase else ""
    raise WrongKey(f"dataset {keyset.dataset.hex()[:16]}: no slot for this identity{also}: ask its owner for access")


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Put the object's name before what it is refused for."""
    try:
        yield
    except IntegrityError as error:
        raise error if str(error).startswith(what) else type(error)(f"{what}: {error}") from None


def _outside(slot: Slot, dataset: bytes, now: int) -> Closed | None:
    """Return why *slot* is not valid at *now*, if so."""
    if now + CLOCK_SLACK_MS < slot.since:
        return Closed(
            f"dataset {dataset.hex()[:16]}: access begins at {_time(slot.since)}, this machine's clock says "
            f"{_time(now)}: set the clock"
        )
    if slot.until and now >= slot.until:
        return Closed(
            f"dataset {dataset.hex()[:16]}: access ended at {_time(slot.until)}: ask the owner for a new grant"
        )
    return None


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))


def _day(ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(ms / 1000))
