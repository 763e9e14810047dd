"""Numbered objects: create the next one, find the newest, read one (docs/format.md, section 1).

The only coordination between writers: `create` raises `AlreadyExists` when the number is taken. Where the store has no
put-if-absent the name carries the hash, so nothing is overwritten and `newest` refuses two objects of one number.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from datasync.crypto.hashing import hash_bytes
from datasync.errors import AlreadyExists, IntegrityError, NotFound
from datasync.format.names import numbered, parse_numbered
from datasync.storage.protocol import ObjectStat, ObjectStore


@dataclass(frozen=True, slots=True)
class NumberedObject:
    """One object of a numbered series; `digest` only where names carry it; `modified` by the store's clock."""

    name: str
    number: int
    digest: bytes | None
    modified: float


def entries(store: ObjectStore, prefix: str, *, limit: int | None = None) -> Iterator[NumberedObject]:
    """Yield the series under *prefix*, newest first."""
    for item in store.list(prefix, limit=limit):
        yield _parse(item)


def _parse(item: ObjectStat) -> NumberedObject:
    number, digest = parse_numbered(item.name.rpartition("/")[2])
    return NumberedObject(item.name, number, digest, item.modified)


def newest(store: ObjectStore, prefix: str) -> NumberedObject | None:
    """Return the newest object, None when there is none; refuse two of one number, naming both."""
    found = list(entries(store, prefix, limit=2))
    if len(found) > 1 and found[0].number == found[1].number:
        raise conflict(found[0], found[1])
    return found[0] if found else None


def conflict(first: NumberedObject, second: NumberedObject) -> IntegrityError:
    """Return the refusal of two objects of one number."""
    return IntegrityError(
        f"{first.name} and {second.name}: two writers made number {first.number}: nothing was lost, both are kept; "
        "read either by NAME@HASH, then delete the object that is not wanted"
    )


def find(store: ObjectStore, prefix: str, number: int) -> list[NumberedObject]:
    """Return every object of *number*: none, one, or several where the store has no put-if-absent."""
    return list(entries(store, prefix + numbered(number)))


def read(store: ObjectStore, item: NumberedObject, *, limit: int) -> bytes:
    """Return the object's bytes; a hash in its name must match."""
    data = store.get(item.name, limit=limit)
    if item.digest and hash_bytes(data) != item.digest:
        raise IntegrityError(f"{item.name}: its bytes do not hash to its name: the object was changed")
    return data


def read_number(store: ObjectStore, prefix: str, number: int, *, limit: int) -> bytes:
    """Return the bytes of the one object of *number*; `NotFound` without one, `IntegrityError` for two."""
    try:
        return store.get(prefix + numbered(number), limit=limit)  # the common naming costs no listing
    except NotFound:
        found = find(store, prefix, number)
    if not found:
        raise NotFound(f"{prefix}{numbered(number)}: number {number} does not exist")
    if len(found) > 1:
        raise conflict(found[0], found[1])
    return read(store, found[0], limit=limit)


def create(store: ObjectStore, prefix: str, number: int, data: bytes, *, hashed: bool) -> NumberedObject:
    """Create number *number*; raise `AlreadyExists` when another writer was first."""
    if not hashed:
        store.put_if_absent(prefix + numbered(number), data)
        return NumberedObject(prefix + numbered(number), number, None, 0.0)
    digest = hash_bytes(data)
    if find(store, prefix, number):
        raise AlreadyExists(f"{prefix}{numbered(number)}: number {number} is taken")
    name = prefix + numbered(number, digest)
    store.put_if_absent(name, data)
    rivals = [item for item in find(store, prefix, number) if item.name != name]
    if rivals:
        raise conflict(NumberedObject(name, number, digest, 0.0), rivals[0])
    return NumberedObject(name, number, digest, 0.0)
