"""What an attacker builds out of the keys that it has and the objects that it can overwrite.

A provider overwrites objects and has no key. A reader has the symmetric keys and signs with its own. A removed writer
has those of older epochs. `reader.fresh` is the victim without memory, the one that sees most of what is offered.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from datasync.config import Flags, load_config
from datasync.crypto.identity_file import read_identity
from datasync.crypto.signatures import SigningKey
from datasync.format import signed as plain
from datasync.format.encoding import encode
from datasync.format.keyset import Keyset, Slot, read_keyset, write_keyset
from datasync.format.names import dataset_prefix
from datasync.format.names import numbered as numbered_name
from datasync.format.signed import Signature, read_plain, read_signed, write_plain, write_signed
from datasync.format.trust import TrustRoot, read_trust, write_trust
from datasync.repository.control import seal_control
from datasync.repository.repository import OpenDataset
from datasync.service.session import Session
from datasync.storage.memory import MemoryStore
from tests.support.copies import LIMIT, copy, names, replace
from tests.support.machine import Machine, Ran, contents
from tests.support.people import Person

DATASET = "scans"
KINDS = {"keyset": plain.KEYSET, "trust": plain.TRUST}


def signer(person: Person) -> SigningKey:
    """Return what *person* signs with."""
    return read_identity(person.machine.identity).signing_key


@contextmanager
def session(person: Person) -> Iterator[Session]:
    """Yield a session of *person* in this process."""
    with mock.patch.dict(os.environ, person.machine.environment(), clear=True):
        made = Session(load_config(Flags()))
        with mock.patch("datasync.service.session.open_store", return_value=person.store):
            assert made.store.url
        yield made


@contextmanager
def opened(person: Person) -> Iterator[OpenDataset]:
    """Yield the dataset as *person* opens it."""
    with session(person) as made:
        yield made.repository.open(DATASET)


def name_of(dataset: bytes, kind: str, number: int) -> str:
    """Return the name of a numbered object."""
    return f"{dataset_prefix(dataset)}{kind}/{numbered_name(number)}"


def newest(store: MemoryStore, kind: str) -> str:
    """Return the name of the newest object of *kind*."""
    return names(store, f"/{kind}/")[0]


def read_body(store: MemoryStore, kind: str, name: str | None = None) -> bytes:
    """Return the signed body of a trust root or keyset, by default the newest."""
    data = store.get(name or newest(store, kind), limit=LIMIT)
    return read_signed(read_plain(KINDS[kind], data, kind), kind).body


def keyset_in(store: MemoryStore, name: str | None = None) -> Keyset:
    """Return a keyset, by default the newest."""
    return read_keyset(read_body(store, "keyset", name), "keyset")


def trust_in(store: MemoryStore, name: str | None = None) -> TrustRoot:
    """Return a trust root, by default the newest."""
    return read_trust(read_body(store, "trust", name), "trust")


def sign_plain(kind: str, body: bytes, *signers: SigningKey) -> bytes:
    """Return a plain object whose *body* these signed."""
    made = [Signature(item.public, item.sign(kind, body)) for item in signers]
    return write_plain(KINDS[kind], write_signed(body, made))


def put_keyset(store: MemoryStore, keyset: Keyset, *signers: SigningKey) -> str:
    """Put *keyset* under its number, over what is there."""
    name = name_of(keyset.dataset, "keyset", keyset.version)
    replace(store, name, sign_plain("keyset", write_keyset(keyset), *signers))
    return name


def put_trust(store: MemoryStore, dataset: bytes, root: TrustRoot, *signers: SigningKey) -> str:
    """Put *root* under its number, over what is there."""
    name = name_of(dataset, "trust", root.version)
    replace(store, name, sign_plain("trust", write_trust(root), *signers))
    return name


def edit(store: MemoryStore, kind: str, change: Callable[[bytes], bytes]) -> str:
    """Change the body of the newest *kind* as a provider can: the signatures stay, and hold no more."""
    name = newest(store, kind)
    signed = read_signed(read_plain(KINDS[kind], store.get(name, limit=LIMIT), kind), kind)
    changed = change(signed.body)
    assert changed != signed.body
    replace(store, name, write_plain(KINDS[kind], write_signed(changed, list(signed.signatures))))
    return name


def put_control(
    store: MemoryStore,
    dataset: OpenDataset,
    kind: str,
    type_: int,
    number: int,
    body: Any,
    by: SigningKey,
    rest: list[bytes] | None = None,
) -> str:
    """Seal *body* with the dataset's keys, sign it with *by*, and put it under *number*."""
    name = name_of(dataset.id, kind, number)
    replace(store, name, seal_control(dataset.keyring.sealing(type_), type_, encode(body), by, rest))
    return name


def only_slot(keyset: Keyset, person: Person) -> Slot:
    """Return the slot of *person* in the current epoch."""
    mine = read_identity(person.machine.identity).recipient.fingerprint
    (found,) = [slot for slot in keyset.slots if slot.fingerprint == mine and slot.epoch == keyset.epoch]
    return found


def with_slot(keyset: Keyset, slot: Slot) -> tuple[Slot, ...]:
    """Return the slots of *keyset*, with *slot* in place of the one of its id."""
    return tuple(slot if item.id == slot.id else item for item in keyset.slots)


@dataclass(slots=True)
class Cast:
    """Who owns, writes and reads the dataset; what they push; and fresh machines of theirs."""

    olga: Person
    will: Person
    rita: Person
    store: MemoryStore
    folder: Path
    source: Path
    made: int = 0
    dataset: str = ""

    def push(self, who: Person, words: str = "") -> dict[str, Any]:
        """Push something new; return the result."""
        self.made += 1
        (self.source / f"new{self.made}").write_bytes(f"{words} {self.made} ".encode() * 500)
        done = who.must("push", self.source, "--dataset", DATASET)
        self.dataset = str(done["trust"])
        return done

    def copied(self, folder: Path) -> "Cast":
        """Return the same state under *folder*, with a store of its own."""
        store = copy(self.store)
        olga, will, rita = (
            Person(who.name, who.machine.clone(folder / f"home-{who.name}"), store)
            for who in (self.olga, self.will, self.rita)
        )
        for path in self.source.iterdir():  # at the same place: a push from elsewhere would be another source
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.folder / "pristine", self.source, dirs_exist_ok=True)
        return Cast(olga, will, rita, store, folder, self.source, self.made, self.dataset)

    def person(self, name: str) -> Person:
        """Return somebody new."""
        return Person.make(self.folder, name, self.olga.machine.repository, self.store)

    def place(self) -> Path:
        """Return a path that is not there yet."""
        self.made += 1
        return self.folder / f"place{self.made}"

    def fresh(self, who: Person) -> Machine:
        """Return a machine of *who* that has never seen the dataset."""
        return who.machine.sibling(self.place())

    def pull(self, machine: Machine, reference: str = DATASET, store: MemoryStore | None = None) -> Ran:
        """Pull on *machine*."""
        target = self.place()
        ran = machine.run("pull", reference, target, store=store if store is not None else self.store)
        whole = contents(self.source)
        for name, item in (contents(target) if target.exists() else {}).items():
            assert whole.get(name, item) == item, "bytes that were not verified"
        return ran

    def refused(self, *words: str, who: Person | None = None, reference: str = DATASET, code: int = 7) -> None:
        """Check that a fresh machine, by default of the reader, refuses with *code* in one line that has *words*."""
        told(self.pull(self.fresh(who or self.rita), reference), *words, code=code)

    def accepted(self, who: Person | None = None, reference: str = DATASET) -> None:
        """Check that a fresh machine reads the dataset: without it a refusal would prove nothing."""
        ran = self.pull(self.fresh(who or self.rita), reference)
        assert ran.code == 0, ran


def told(ran: Ran, *words: str, code: int = 7) -> None:
    """Check that a command was refused with *code*, in one line that has *words*."""
    assert ran.code == code, ran
    for word in words:
        assert word in ran.message, (word, ran)
