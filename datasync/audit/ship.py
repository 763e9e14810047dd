"""Ship a log to the repository, and fetch what was shipped (docs/format.md, section 15).

    audit/<log id>/certificate         who says that this log is theirs; plain
    audit/<log id>/lines/<n>           parcels 1, 2, 3…: the log's lines in order, each ending with a checkpoint
    audit/<log id>/people/<month>-<tag>  a person's key of a month, a parcel of its own: erasing a person deletes it
    audit/<log id>/grants/<id>         an owner's grant to the machine, and the machine's word that this log is its own
    audit/<log id>/base/<n>            what the log begins with when parcels before n were removed

Only put-if-absent is asked of the store, so a credential that can create and not overwrite is enough; what was shipped
is remembered beside the log. Raises `IntegrityError` when the store has what this log did not put there.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from datasync.audit.checkpoint import open_checkpoint
from datasync.audit.event import decode
from datasync.audit.parcel import OBJECT_BYTES, Opener, Recipient, read_parcel, write_parcel
from datasync.audit.primitives import Primitives
from datasync.audit.seal import MonthKey, People
from datasync.audit.segments import BASE, PUBLIC, SEGMENTS, Base, LogFiles, is_note, lines, read_note, segment_name
from datasync.errors import AlreadyExists, FormatError, IntegrityError
from datasync.format.names import numbered, parse_numbered
from datasync.model.limits import MIB
from datasync.storage.protocol import ObjectStat, ObjectStore

ROOT = "audit/"
PARCEL_BYTES = MIB  # lines of one parcel, before compression; a group is never divided


class Shipped(msgspec.Struct):
    """What this machine knows to be in the store: parcels, the events in them, and persons' keys."""

    count: int = 0
    size: int = 0
    people: list[str] = []
    grants: list[str] = []


class ShippedBase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tree before the first event that is left, and the number of the last parcel that does not count any more."""

    log: str
    n: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    size: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    frontier: tuple[Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")], ...]


class Vouched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A grant's line, the signer text of the key that it is for, and that key's signature over the verifier key."""

    grant: str
    node: str
    signature: str


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    log: str
    n: int
    first: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    end: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


@dataclass(slots=True)
class Sent:
    """What a ship sent."""

    parcels: int = 0
    events: int = 0
    people: int = 0
    names: list[str] = field(default_factory=list)


def lines_name(log: str, number: int) -> str:
    """Return the name of a parcel."""
    return f"{ROOT}{log}/lines/{numbered(number)}"


def base_name(log: str, number: int) -> str:
    """Return the name of what a log begins with after its first *number* parcels."""
    return f"{ROOT}{log}/base/{numbered(number + 1)}"


def grant_name(p: Primitives, log: str, line: str) -> str:
    """Return the name of the parcel of a grant."""
    return f"{ROOT}{log}/grants/{p.sha256(line.encode()).hex()[:32]}"


def person_name(log: str, key: MonthKey) -> str:
    """Return the name of a person's key."""
    return f"{ROOT}{log}/people/{key.month}-{key.tag}"


def ship(
    p: Primitives,
    files: LogFiles,
    people: People,
    store: ObjectStore,
    recipients: Sequence[Recipient],
    opener: Opener | None,
    state_path: Path,
    *,
    plain: ObjectStore | None = None,
    vouched: Sequence[Vouched] = (),
) -> Sent:
    """Send what is not in *store* yet; persons' keys go to *plain*, which puts no lock on them."""
    state, sent = _load(state_path), Sent()
    if state.count == 0:
        state = _found(p, files, store, opener)
    if files.base.size > state.size:  # retention removed events here that were never shipped
        base = ShippedBase(files.name, state.count, files.base.size, files.base.frontier)
        put_base(p, plain or store, base, recipients)
        state.size = files.base.size
    for first, end, content in _groups(files, state.size):
        name = lines_name(files.name, state.count + 1)
        header = msgspec.json.encode(_Header(files.name, state.count + 1, first, end))
        try:
            store.put_if_absent(name, write_parcel(p, name, header + b"\n" + content, recipients))
        except AlreadyExists:
            raise IntegrityError(
                f"{name}: expected no object there, found one that this machine does not remember: if another process "
                f"ships this log, try again; else remove {state_path} after datasync audit verify --remote"
            ) from None
        state.count, state.size = state.count + 1, end
        sent.parcels, sent.events = sent.parcels + 1, sent.events + end - first
        sent.names.append(name)
        _save(state_path, state)
    _ship_people(p, files.name, people, plain or store, recipients, state, sent)
    for item in vouched:
        name = grant_name(p, files.name, item.grant)
        if name not in state.grants:
            with suppress(AlreadyExists):  # of a ship that was killed before it noted it
                store.put_if_absent(name, write_parcel(p, name, msgspec.json.encode(item), recipients))
            state.grants.append(name)
    _save(state_path, state)
    return sent


def put_base(p: Primitives, store: ObjectStore, base: ShippedBase, recipients: Sequence[Recipient]) -> None:
    """Say what the log begins with; the same was said before where there is one of this number."""
    name = base_name(base.log, base.n)
    with suppress(AlreadyExists):
        store.put_if_absent(name, write_parcel(p, name, msgspec.json.encode(base), recipients))


def _ship_people(
    p: Primitives,
    log: str,
    people: People,
    store: ObjectStore,
    recipients: Sequence[Recipient],
    state: Shipped,
    sent: Sent,
) -> None:
    known = set(state.people)
    for key in people.all_keys():
        if key.tag in known:
            continue
        name = person_name(log, key)
        with suppress(
            AlreadyExists
        ):  # of a ship that was killed before it noted it: the tag is random, so it is this key
            store.put_if_absent(name, write_parcel(p, name, msgspec.json.encode(key), recipients))
        state.people.append(key.tag)
        sent.people += 1


def _load(path: Path) -> Shipped:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Shipped)
    except FileNotFoundError:
        return Shipped()
    except msgspec.DecodeError:
        raise IntegrityError(f"{path}: expected what was shipped, found something else: remove it") from None


def _save(path: Path, state: Shipped) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(msgspec.json.encode(state))
    os.replace(aside, path)


def _found(p: Primitives, files: LogFiles, store: ObjectStore, opener: Opener | None) -> Shipped:
    """Return what the store says was shipped, when this machine does not remember; its own signature says it."""
    log = files.name
    newest = next(iter(store.list(f"{ROOT}{log}/lines/", limit=1)), None)
    if newest is None:
        return Shipped()
    if opener is None:
        raise IntegrityError(
            f"{newest.name}: this machine does not remember shipping it, and has no identity to read it"
        )
    header, content = _open(p, log, newest.name, store, opener)
    last = content[content.rstrip(b"\n").rfind(b"\n") + 1 :].rstrip(b"\n")
    signed = open_checkpoint(p, read_note(last).note, files.public)
    if signed.size != header.end:
        raise IntegrityError(f"{newest.name}: expected events up to {signed.size}, found {header.end}: not this log's")
    return Shipped(header.n, header.end)


def _open(p: Primitives, log: str, name: str, store: ObjectStore, opener: Opener) -> tuple[_Header, bytes]:
    content = read_parcel(p, name, store.get(name, limit=OBJECT_BYTES), opener)
    head, _, rest = content.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=_Header)
    except msgspec.DecodeError:
        raise FormatError(f"{name}: the parcel's header does not parse") from None
    number, _ = parse_numbered(name.rpartition("/")[2])
    if header.log != log or header.n != number:
        raise IntegrityError(f"{name}: expected parcel {number} of log {log}, found {header.n} of {header.log}")
    return header, rest


def _groups(files: LogFiles, size: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (first, end, lines) of whole groups from event *size* on, joined up to the size of a parcel."""
    for at, piece in enumerate(files.pieces):
        if at + 1 < len(files.pieces) and files.pieces[at + 1].first <= size:
            continue
        first = seq = max(piece.first, size)
        block, group = bytearray(), bytearray()
        with piece.open() as file:
            for line in lines(file, piece.name):
                if not is_note(line):
                    seq = decode(line).seq
                    if seq >= size:
                        group += line + b"\n"
                elif group:
                    block += group + line + b"\n"
                    group.clear()
                    if len(block) >= PARCEL_BYTES:
                        yield first, seq + 1, bytes(block)
                        block.clear()
                        first = seq + 1
        if block:
            yield first, seq + 1, bytes(block)


@dataclass(frozen=True, slots=True)
class Fetched:
    """One shipped log, as files in a directory; what its certificate says, unverified; the objects that hold it."""

    log: str
    directory: Path
    certificate: dict[str, str]
    names: tuple[str, ...]
    vouched: tuple[Vouched, ...]
    before: int
    """How many parcels do not count any more: the first of `names` has the next number."""


def shipped_logs(store: ObjectStore) -> list[str]:
    """Return the ids of the logs in *store*."""
    return list(store.list_directories(ROOT))


def fetch(p: Primitives, log: str, store: ObjectStore, opener: Opener, directory: Path, people: People) -> Fetched:
    """Write the shipped log into *directory* as a log's files, nothing verified; persons' keys go to *people*."""
    certificate = _certificate(log, store)
    (directory / SEGMENTS).mkdir(parents=True, mode=0o700)
    (directory / PUBLIC).write_text(certificate.get("key", "") + "\n")
    base = _base(p, log, store, opener)
    (directory / BASE).write_bytes(msgspec.json.encode(Base(base.size, base.frontier)))
    names = [name for found, name in parcel_names(log, store) if found > base.n]
    for number, name in enumerate(names, base.n + 1):
        found = parse_numbered(name.rpartition("/")[2])[0]
        if found != number:
            raise IntegrityError(f"log {log}: parcel {number} is missing: the next one is {found}")
        header, content = _open(p, log, name, store, opener)
        path = directory / SEGMENTS / segment_name(header.first)
        if path.exists():
            raise IntegrityError(f"{name}: its events {header.first} … are in another parcel, too")
        path.write_bytes(content)
    for item in store.list(f"{ROOT}{log}/people/"):
        raw = read_parcel(p, item.name, store.get(item.name, limit=OBJECT_BYTES), opener)
        try:
            key = msgspec.json.decode(raw, type=MonthKey)
        except msgspec.DecodeError:
            raise FormatError(f"{item.name}: expected a person's key") from None
        people.adopt(key)
    return Fetched(log, directory, certificate, tuple(names), tuple(_vouched(p, log, store, opener)), base.n)


def parcel_names(log: str, store: ObjectStore) -> list[tuple[int, str]]:
    """Return number and name of every parcel of lines, the oldest first."""
    return sorted((parse_numbered(item.name.rpartition("/")[2])[0], item.name) for item in _listed(log, "lines", store))


def _listed(log: str, kind: str, store: ObjectStore) -> Iterator[ObjectStat]:
    return store.list(f"{ROOT}{log}/{kind}/")


def _base(p: Primitives, log: str, store: ObjectStore, opener: Opener) -> ShippedBase:
    newest = next(iter(_listed(log, "base", store)), None)
    if newest is None:
        return ShippedBase(log, 0, 0, ())
    raw = read_parcel(p, newest.name, store.get(newest.name, limit=OBJECT_BYTES), opener)
    try:
        base = msgspec.json.decode(raw, type=ShippedBase)
    except msgspec.DecodeError:
        raise FormatError(f"{newest.name}: expected a log's beginning") from None
    if base.log != log or newest.name != base_name(log, base.n) or len(base.frontier) != base.size.bit_count():
        raise IntegrityError(f"{newest.name}: it is not the beginning of log {log} after {base.n} parcels")
    return base


def _vouched(p: Primitives, log: str, store: ObjectStore, opener: Opener) -> Iterator[Vouched]:
    for item in _listed(log, "grants", store):
        raw = read_parcel(p, item.name, store.get(item.name, limit=OBJECT_BYTES), opener)
        try:
            yield msgspec.json.decode(raw, type=Vouched)
        except msgspec.DecodeError:
            raise FormatError(f"{item.name}: expected a grant") from None


def _certificate(log: str, store: ObjectStore) -> dict[str, str]:
    name = f"{ROOT}{log}/certificate"
    try:
        value = json.loads(store.get(name, limit=16 * 1024))
        return {str(key): str(item) for key, item in value.items()}
    except (ValueError, AttributeError):
        raise FormatError(f"{name}: expected a certificate, found something else") from None
