"""A repository at a URL: making one, finding its datasets, opening one of them by name.

Reads follow docs/format.md, section 13: the trust root is believed because its hash is the dataset id, and the id
because this identity owns it, or was told to (`TrustPins`), or a person said so. Raises `NoRepository`, `NotFound`,
`WrongKey`, `UntrustedError`, `IntegrityError`.
"""

import getpass
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.kdf import random_bytes
from datasync.errors import (
    AlreadyExists,
    IntegrityError,
    NoRepository,
    NotAuthorized,
    NotFound,
    RollbackError,
    UntrustedError,
    UsageError,
    WrongKey,
)
from datasync.format.marker import NAMINGS, Marker, read_marker, write_marker
from datasync.format.names import DATASETS, MARKER, check_name, dataset_prefix
from datasync.format.trust import OWNER
from datasync.model.limits import LABEL_NAME_BYTES, MARKER_BYTES
from datasync.repository import numbered
from datasync.repository.belief import Holder, believe, check_trust_time, may_deposit, was_told
from datasync.repository.evidence import Evidence
from datasync.repository.forgotten_table import ForgottenTable
from datasync.repository.holders import Grantee
from datasync.repository.keyring import Keyring
from datasync.repository.keysets import Closed, ReadKeyset, Shredded, first_keyset, load_keyset, open_keyset
from datasync.repository.known_names import KnownNames
from datasync.repository.local import LocalCopies
from datasync.repository.relocations import Relocations
from datasync.repository.snapshots import History
from datasync.repository.trust import Trusted, first_trust_root, load_trust
from datasync.storage.protocol import ObjectStore

_DATASET_ID = re.compile(r"[0-9a-f]{64}")
_THERE = "{}: expected no repository, a repository is there already: use it as it is, or choose another URL"


@dataclass(frozen=True, slots=True)
class LocalPaths:
    """`state`: copies and records, may be deleted. `evidence`: high-water marks. Both directories."""

    state: Path
    evidence: Path


@dataclass(frozen=True, slots=True)
class OpenDataset:
    """A dataset whose keys are at hand and whose trust root is believed."""

    id: bytes
    name: str
    keyring: Keyring
    trusted: Trusted
    keyset: ReadKeyset
    history: History


def own_name() -> str:
    """Return what this identity is called in the slots that it makes for itself."""
    return f"{getpass.getuser()}@{socket.gethostname()}"[: LABEL_NAME_BYTES // 4]


def marker_copies(paths: LocalPaths, store: ObjectStore) -> LocalCopies:
    """Return the copies that belong to a URL, not to a repository: its marker."""
    return LocalCopies(paths.state / "markers" / hash_bytes(store.url.encode()).hex()[:16])


def create_repository(
    store: ObjectStore, paths: LocalPaths, *, conditional: bool, clock: Callable[[], float] = time.time
) -> Marker:
    """Make the repository's marker; `UsageError` when there is one already."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock()))
    marker = Marker(random_bytes(16).hex(), created, NAMINGS[0] if conditional else NAMINGS[1])
    try:
        store.stat(MARKER)
    except NotFound:
        pass
    else:
        raise UsageError(_THERE.format(store.url))
    try:
        store.put_if_absent(MARKER, write_marker(marker, hash_bytes))
    except AlreadyExists:
        raise UsageError(_THERE.format(store.url)) from None
    marker_copies(paths, store).drop(MARKER)  # of a repository that was here before
    return marker


class Repository:
    """An existing repository, as one holder sees it."""

    def __init__(
        self, store: ObjectStore, holder: Holder, paths: LocalPaths, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.holder = holder
        self._clock = clock
        self._paths = paths
        self.marker = self._read_marker()
        self.state = paths.state / self.marker.repository
        self._evidence = paths.evidence
        self._copies = LocalCopies(self.state / "objects")
        self.names = KnownNames(self.state / "names.json")

    def _read_marker(self) -> Marker:
        copies = marker_copies(self._paths, self.store)
        try:
            return copies.get(
                MARKER,
                lambda: self.store.get(MARKER, limit=MARKER_BYTES),
                lambda data: read_marker(data, hash_bytes),
            )
        except NotFound:
            raise NoRepository(
                f"{self.store.url}: expected a repository, found no {MARKER}: "
                f"run `datasync init {self.store.url}`, or correct the URL"
            ) from None
        except IntegrityError as error:
            raise IntegrityError(f"{self.store.url}: {error}") from None

    def _require_marker(self) -> None:
        """Raise `NoRepository` when the marker is gone too: an unmounted disk or a wrong URL, not a rollback."""
        try:
            self.store.stat(MARKER)
        except NotFound:
            raise NoRepository(
                f"{self.store.url}: the repository is gone: is its disk mounted, is the URL right?"
            ) from None

    def dataset_ids(self) -> list[bytes]:
        """Return the ids of all datasets, openable or not."""
        found = []
        for name in self.store.list_directories(DATASETS):
            try:
                dataset = bytes.fromhex(name)
            except ValueError:
                dataset = b""
            if len(dataset) != 32 or dataset.hex() != name:
                raise IntegrityError(f"{self.store.url}: {DATASETS}{name}: expected a dataset id of 64 hex digits")
            found.append(dataset)
        return found

    def _told(self) -> list[bytes]:
        """Return the ids that this holder was told to trust."""
        identity = self.holder.identity
        told = self.holder.trust | frozenset(identity.trust if identity else ())
        return [bytes.fromhex(dataset) for dataset in sorted(told) if _DATASET_ID.fullmatch(dataset)]

    # opening

    def open(self, name: str, *, newest: bool = True) -> OpenDataset:
        """Open the dataset called *name*; two openable ones of that name are refused, both named.

        *newest* False trusts the keyset and trust root that this machine accepted last: no request is made for them.
        """
        remembered = self.names.all().get(name)
        if remembered is not None:
            opened = self._open(remembered, name, newest=newest)
            if opened is not None:
                return opened
        found, closed, strangers = self._open_each(name)
        if len(found) > 1:
            ids = " and ".join(item.id.hex() for item in found)
            raise IntegrityError(
                f"dataset {name!r}: two datasets have that name: {ids}: somebody added one; "
                "revoke or shred the one that is not wanted"
            )
        if not found:
            raise strangers[0] if strangers else self._not_found(name, closed)
        self.names.keep(name, found[0].id)
        return found[0]

    def open_known(self, dataset: bytes, name: str) -> OpenDataset | None:
        """Open the dataset whose trust root a person vouches for, and remember it as *name*; None when it is another's
        name.
        """
        self.holder = replace(self.holder, trust=self.holder.trust | {dataset.hex()})
        opened = self._open(dataset, name, newest=True)
        if opened is not None:
            self.names.keep(name, dataset)
        return opened

    def reload(self, dataset: bytes) -> OpenDataset | None:
        """Open the dataset anew, nothing of it remembered; raise as opening does."""
        return self._open(dataset, None, newest=True)

    def forget_dataset(self, dataset: bytes, name: str) -> int:
        """Remove this machine's copies and records of *dataset*, evidence excepted; return how many files."""
        self.names.forget(name)
        short = dataset.hex()[:32]
        copies = (self.state / "objects").glob(f"*{dataset.hex()}*")
        found = [*self.state.glob(f"{short}*"), *copies]
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)

    def _not_found(self, name: str, closed: list[WrongKey]) -> NotFound | WrongKey:
        late = [error for error in closed if isinstance(error, Closed)]
        if late:
            return WrongKey(f"dataset {name!r}: not among those that open in {self.store.url}; {late[0]}")
        others = f"; {len(closed)} datasets here have no slot for this identity" if closed else ""
        text = f"dataset {name!r}: not in {self.store.url}{others}"
        return (
            WrongKey(f"{text}: ask the owner for access, or set DATASYNC_IDENTITY")
            if closed
            else NotFound(f"{text}: push it first, or see `datasync ls`")
        )

    def open_all(self) -> tuple[list[OpenDataset], int]:
        """Return every dataset that this holder opens and trusts, and how many it does not open or trust; raise
        `UntrustedError` when it opens some and trusts none.
        """
        found, closed, strangers = self._open_each(None)
        if strangers and not found:
            raise strangers[0]
        self._check_remembered({item.id for item in found})
        return sorted(found, key=lambda item: item.name), len(closed) + len(strangers)

    def _check_remembered(self, found: set[bytes]) -> None:
        """Refuse a listing that lacks a dataset which this machine has opened."""
        known = {name: dataset for name, dataset in self.names.all().items() if dataset not in found}
        listed = self.dataset_ids() if known else []
        for name, dataset in known.items():
            if dataset not in listed:
                raise RollbackError(
                    f"dataset {name!r} ({dataset.hex()[:16]}): this machine has seen it in {self.store.url}: it was "
                    f"deleted or rolled back (if that is meant, remove {self.names.path})"
                )

    def _open_each(self, name: str | None) -> tuple[list[OpenDataset], list[WrongKey], list[UntrustedError]]:
        """Return what opens, why others are closed, and those that open and that nothing vouches for: anybody who may
        write to the store can plant such a one, which must not stand in the way of the others. A credential for a part
        of the repository lists no datasets: then those are tried that this holder was told of.
        """
        refused: NotAuthorized | None = None
        try:
            ids = self.dataset_ids()
        except NotAuthorized as error:
            ids, refused = self._told(), error
        found: list[OpenDataset] = []
        closed: list[WrongKey] = []
        strangers: list[UntrustedError] = []
        for dataset in ids:
            try:
                opened = self._open(dataset, name, newest=True)
            except WrongKey as error:
                closed.append(error)
            except UntrustedError as error:
                strangers.append(error)
            except NotFound:
                # its maker died between trust root and keyset, or somebody planted a name: there is nothing to open
                continue
            else:
                found += [opened] if opened is not None else []
        if refused is not None and not (found or closed or strangers):
            raise refused
        return found, closed, strangers

    def _open(self, dataset: bytes, wanted: str | None, *, newest: bool) -> OpenDataset | None:
        """Open *dataset*; None when *wanted* is another's name. Trust is asked for only when the name fits."""
        evidence = Evidence(self._evidence / f"{dataset.hex()}.json")
        known = evidence.known
        quick = not newest and known.trust[0] > 0 and known.keyset[0] > 0
        try:
            trusted = load_trust(self.store, self._copies, dataset, known.trust[0] if quick else None)
            evidence.note_trust(trusted.root.version, trusted.digest)
            keyset = load_keyset(self.store, self._copies, dataset, trusted, known.keyset[0] if quick else None)
            evidence.note_keyset(keyset.keyset.version, keyset.digest)
        except NotFound as error:
            if known.trust[0]:
                self._require_marker()
                raise evidence.refusal(
                    f"{error}: this machine has seen the dataset {known.name!r} "
                    f"in repository {self.marker.repository}: it was deleted or rolled back "
                    f"(if the repository was made anew, remove {self._paths.state / 'markers'})",
                    {},
                ) from None
            raise
        now = max(int(self._clock() * 1000), known.time)
        try:
            keyring, name = open_keyset(keyset, self.holder.secrets, now)
        except WrongKey:
            if wanted is None or not may_deposit(self.holder, dataset, trusted, now):
                raise
            if not was_told(self.holder, dataset, wanted, evidence):
                raise Closed(
                    f"this identity may push into {dataset.hex()[:16]}… and can not read its name: run the line "
                    "that its owner's grant printed (`datasync key accept`)"
                ) from None
            check_trust_time(self.holder, wanted, trusted, now)
            return self._open_deposits(dataset, wanted, trusted, keyset, evidence)
        except Shredded as error:
            error.owners = frozenset(trusted.root.with_role(OWNER, at=now))
            if known.pinned:
                evidence.save()  # so that no older keyset is believed later
            raise
        if wanted is not None and name != wanted:
            return None
        believe(self.holder, dataset, name, trusted, evidence)
        check_trust_time(self.holder, name, trusted, now)
        if evidence.known != known:
            evidence.save()
        return OpenDataset(
            dataset, name, keyring, trusted, keyset, self._history(dataset, keyring, trusted, keyset, evidence)
        )

    def _history(
        self, dataset: bytes, keyring: Keyring, trusted: Trusted, keyset: ReadKeyset, evidence: Evidence
    ) -> History:
        signer = self.holder.identity.signing_key if self.holder.identity else None
        hashed = self.marker.naming == "hashed"
        moved = Relocations(self.state / f"{dataset.hex()[:32]}.relocations.db")
        gone = ForgottenTable(self.state / f"{dataset.hex()[:32]}.forgotten.db")
        return History(
            self.store, dataset, keyring, trusted, keyset, evidence, hashed, signer, self._clock, moved, gone
        )

    def _open_deposits(
        self, dataset: bytes, name: str, trusted: Trusted, keyset: ReadKeyset, evidence: Evidence
    ) -> OpenDataset:
        identity = self.holder.identity
        if identity is None:
            raise WrongKey(f"dataset {name!r}: pushing into it needs the identity that it was granted to")
        evidence.pin(name)
        evidence.save()
        from datasync.repository.deposits import DepositKeyring, Deposits  # for push-only writers alone

        keyring = DepositKeyring(keyset.keyset, identity.signing_seed)
        hashed = self.marker.naming == "hashed"
        history = Deposits(
            self.store,
            dataset,
            keyring,
            trusted,
            keyset,
            evidence,
            hashed,
            identity.signing_key,
            self._clock,
            kept=self.state / f"{dataset.hex()[:32]}-{identity.signing_key.public.hex()[:16]}.deposit",
        )
        return OpenDataset(dataset, name, keyring, trusted, keyset, history)

    # making

    def create_dataset(self, name: str) -> OpenDataset:
        """Make the dataset *name*, owned and written by this identity and its recovery identity, if there is one;
        a passphrase that is at hand gets a slot too.
        """
        check_name(name, "dataset")
        identity = self.holder.identity
        if identity is None:
            raise WrongKey(
                f"dataset {name!r}: making it needs an identity: run `datasync init`, or set DATASYNC_IDENTITY"
            )
        created = int(self._clock() * 1000)
        me, recovery = identity.signing_key.public, identity.recovery
        root = first_trust_root(identity.signing_key, [recovery.signer] if recovery else [], created)
        dataset = hash_bytes(root)
        grantees = [Grantee(own_name(), identity.recipient, signer=me)]
        if recovery is not None:
            grantees.append(Grantee("recovery", recovery.recipient, signer=recovery.signer))
        if self.holder.secrets.passphrase is not None:
            grantees.append(Grantee("passphrase", passphrase=self.holder.secrets.passphrase))
        keyset = first_keyset(dataset, name, dataset, identity.signing_key, grantees, created)
        hashed = self.marker.naming == "hashed"
        numbered.create(self.store, dataset_prefix(dataset) + "trust/", 1, root, hashed=hashed)
        numbered.create(self.store, dataset_prefix(dataset) + "keyset/", 1, keyset, hashed=hashed)
        self.names.keep(name, dataset)
        opened = self._open(dataset, name, newest=True)
        if opened is None:
            raise IntegrityError(f"dataset {name!r}: it was made and does not open under its name")
        return opened
