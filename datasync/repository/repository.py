"""A repository at a URL: making one, finding its datasets, opening one of them by name.

Reads follow docs/format.md, section 13: the trust root is believed because its hash is the dataset id, and the id
because this identity owns it, or was told to (`TrustPins`), or a person said so. Raises `NoRepository`, `NotFound`,
`WrongKey`, `UntrustedError`, `IntegrityError`.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.identity import Identity
from datasync.crypto.kdf import random_bytes
from datasync.crypto.recipients import Recipient
from datasync.errors import (
    AlreadyExists,
    IntegrityError,
    NoRepository,
    NotFound,
    RollbackError,
    UntrustedError,
    UsageError,
    WrongKey,
)
from datasync.format.marker import NAMINGS, Marker, read_marker, write_marker
from datasync.format.names import DATASETS, MARKER, check_name, dataset_prefix
from datasync.model.ids import ID_BYTES
from datasync.model.limits import MARKER_BYTES
from datasync.repository import numbered
from datasync.repository.evidence import Evidence
from datasync.repository.keyring import Keyring
from datasync.repository.keysets import ReadKeyset, first_keyset, load_keyset, open_keyset
from datasync.repository.local import LocalCopies
from datasync.repository.snapshots import History
from datasync.repository.trust import Trusted, first_trust_root, load_trust
from datasync.storage.protocol import ObjectStore

Ask = Callable[[str, str], bool]
"""Asks a person whether a dataset (name, id in hex) is to be trusted."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who opens the repository: an identity, a passphrase or both; dataset ids told to trust; and whom to ask."""

    identity: Identity | None = None
    passphrase: str | None = field(default=None, repr=False)
    trust: frozenset[str] = frozenset()
    ask: Ask | None = None


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
        raise UsageError(f"{store.url}: a repository is there already")
    try:
        store.put_if_absent(MARKER, write_marker(marker, hash_bytes))
    except AlreadyExists:
        raise UsageError(f"{store.url}: a repository is there already") from None
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

    # opening

    def open(self, name: str, *, newest: bool = True) -> OpenDataset:
        """Open the dataset called *name*; two openable ones of that name are refused, both named.

        *newest* False trusts the keyset and trust root that this machine accepted last: no request is made for them.
        """
        remembered = self._remembered().get(name)
        if remembered is not None:
            opened = self._open(remembered, name, newest=newest)
            if opened is not None:
                return opened
        found, closed = self._open_each(name)
        if len(found) > 1:
            ids = " and ".join(item.id.hex() for item in found)
            raise IntegrityError(
                f"dataset {name!r}: two datasets have that name: {ids}: somebody added one; "
                "revoke or shred the one that is not wanted"
            )
        if not found:
            raise self._not_found(name, closed)
        self._remember(name, found[0].id)
        return found[0]

    def _not_found(self, name: str, closed: int) -> NotFound | WrongKey:
        others = f"; {closed} datasets here have no slot for this identity" if closed else ""
        text = f"dataset {name!r}: not in {self.store.url}{others}"
        return (
            WrongKey(f"{text}: ask the owner for access, or set DATASYNC_IDENTITY")
            if closed
            else NotFound(f"{text}: push it first, or see `datasync ls`")
        )

    def open_all(self) -> tuple[list[OpenDataset], int]:
        """Return every dataset that this holder opens and trusts, and how many it does not open."""
        found, closed = self._open_each(None)
        self._check_remembered({item.id for item in found})
        return sorted(found, key=lambda item: item.name), closed

    def _check_remembered(self, found: set[bytes]) -> None:
        """Refuse a listing that lacks a dataset which this machine has opened."""
        for name, dataset in self._remembered().items():
            if dataset not in found and dataset not in self.dataset_ids():
                raise RollbackError(
                    f"dataset {name!r} ({dataset.hex()[:16]}): this machine has seen it in {self.store.url}: it was "
                    f"deleted or rolled back (if that is meant, remove {self._names_path()})"
                )

    def _open_each(self, name: str | None) -> tuple[list[OpenDataset], int]:
        found, closed = [], 0
        for dataset in self.dataset_ids():
            try:
                opened = self._open(dataset, name, newest=True)
            except WrongKey:
                closed += 1
            except NotFound:
                # its maker died between trust root and keyset, or somebody planted a name: there is nothing to open
                continue
            else:
                found += [opened] if opened is not None else []
        return found, closed

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
                raise RollbackError(
                    f"{error}: this machine has seen the dataset {known.name!r} "
                    f"in repository {self.marker.repository}: it was deleted or rolled back "
                    f"(if the repository was made anew, remove {self._paths.state / 'markers'})"
                ) from None
            raise
        keyring, name = open_keyset(keyset, self.holder.identity, self.holder.passphrase)
        if wanted is not None and name != wanted:
            return None
        self._believe(dataset, name, trusted, evidence)
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
        return History(self.store, dataset, keyring, trusted, keyset, evidence, hashed, signer, self._clock)

    def _believe(self, dataset: bytes, name: str, trusted: Trusted, evidence: Evidence) -> None:
        identity = self.holder.identity
        told = self.holder.trust | set(identity.trust if identity else ())
        own = identity is not None and identity.signing_key.public in trusted.founders
        if evidence.known.pinned and evidence.known.name == name:
            return
        if own or dataset.hex() in told or (self.holder.ask is not None and self.holder.ask(name, dataset.hex())):
            evidence.pin(name)
            return
        raise UntrustedError(
            f"dataset {name!r}: nothing on this machine vouches for its trust root {dataset.hex()}: "
            "compare that with what the owner told you, then pass --trust or set DATASYNC_TRUST"
        )

    # making

    def create_dataset(self, name: str, recipients: list[Recipient], passphrase: str | None) -> OpenDataset:
        """Make the dataset *name*, owned and written by this identity."""
        check_name(name, "dataset")
        identity = self.holder.identity
        if identity is None:
            raise WrongKey(
                f"dataset {name!r}: making it needs an identity: run `datasync init`, or set DATASYNC_IDENTITY"
            )
        created = int(self._clock() * 1000)
        root = first_trust_root(identity.signing_key, created)
        dataset = hash_bytes(root)
        everyone = [identity.recipient, *(item for item in recipients if item != identity.recipient)]
        keyset = first_keyset(dataset, name, dataset, identity.signing_key, everyone, passphrase, created)
        hashed = self.marker.naming == "hashed"
        numbered.create(self.store, dataset_prefix(dataset) + "trust/", 1, root, hashed=hashed)
        numbered.create(self.store, dataset_prefix(dataset) + "keyset/", 1, keyset, hashed=hashed)
        self._remember(name, dataset)
        opened = self._open(dataset, name, newest=True)
        if opened is None:
            raise IntegrityError(f"dataset {name!r}: it was made and does not open under its name")
        return opened

    # names

    def _names_path(self) -> Path:
        return self.state / "names.json"

    def _remembered(self) -> dict[str, bytes]:
        try:
            found = {
                str(name): bytes.fromhex(dataset)
                for name, dataset in json.loads(self._names_path().read_text()).items()
            }
        except (FileNotFoundError, ValueError, AttributeError, TypeError):
            return {}  # only a cache: a damaged one is made anew
        return {name: dataset for name, dataset in found.items() if len(dataset) == ID_BYTES}

    def _remember(self, name: str, dataset: bytes) -> None:
        names = {key: value.hex() for key, value in self._remembered().items()} | {name: dataset.hex()}
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._names_path().with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(names))
        os.replace(temporary, self._names_path())
