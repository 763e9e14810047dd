"""How long shipped parcels are kept: the oldest go, the tree keeps their place, as in `datasync.audit.retention`.

The newest parcel of a log is never removed, nor one that the store still locks, nor any after such a one. What the log
begins with is written first: a kill between leaves parcels that do not count, and the next removal takes them. Persons'
keys of months of which nothing is left go, too. Raises what the store raises.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from datasync.audit.event import decode, time_value
from datasync.audit.merkle import leaf_hash
from datasync.audit.parcel import Recipient
from datasync.audit.primitives import Primitives
from datasync.audit.seal import month_of
from datasync.audit.segments import LogFiles, is_note, lines
from datasync.audit.ship import ROOT, Fetched, ShippedBase, base_name, parcel_names, put_base
from datasync.storage.protocol import ObjectStore


@dataclass(frozen=True, slots=True)
class OldParcels:
    """What is older than the retention: how many parcels, what the log begins with then, and in which month; what the
    store locks.
    """

    count: int
    base: ShippedBase
    month: str
    locked: int


def find_old_parcels(
    p: Primitives, files: LogFiles, fetched: Fetched, keep: timedelta, is_locked: Callable[[str], bool]
) -> OldParcels:
    """Return which parcels of a fetched, verified log hold only events older than *keep*."""
    limit, tree, count, locked = datetime.now(UTC) - keep, files.frontier(p), 0, 0
    month = ""
    for name, piece, following in zip(fetched.names, files.pieces, files.pieces[1:], strict=False):
        with piece.open() as file:
            events = [line for line in lines(file, piece.name) if not is_note(line)]
        if time_value(decode(events[-1]).time) >= limit:
            break
        if is_locked(name):
            locked += 1
            break
        for line in events:
            tree.append(leaf_hash(p.sha256, line))
        count += 1
        with following.open() as file:
            month = month_of(decode(file.readline().rstrip(b"\n")).time)
    base = ShippedBase(fetched.log, fetched.before + count, tree.size, tuple(item.hex() for item in tree.hashes))
    return OldParcels(count, base, month, locked)


def remove_old_parcels(p: Primitives, store: ObjectStore, old: OldParcels, recipients: Sequence[Recipient]) -> None:
    """Remove the old parcels, and what earlier removals left."""
    log = old.base.log
    if old.count:
        put_base(p, store, old.base, recipients)
    for number, name in parcel_names(log, store):
        if number <= old.base.n:
            store.delete(name)
    newest = base_name(log, old.base.n)
    for item in list(store.list(f"{ROOT}{log}/base/")):
        if item.name > newest:  # an older one: the newest sorts first
            store.delete(item.name)
    for item in list(store.list(f"{ROOT}{log}/people/")) if old.month else ():
        if item.name.rpartition("/")[2][:7] < old.month:
            store.delete(item.name)
