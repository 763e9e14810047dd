"""What a hostile or broken provider does with a store: keeps an older state, drops, copies and swaps objects."""

from collections.abc import Callable

from datasync.storage.memory import MemoryStore

LIMIT = 64 * 1024 * 1024


def names(store: MemoryStore, part: str = "") -> list[str]:
    """Return the names that contain *part*, in order: the newest of a numbered kind first."""
    return [item.name for item in store.list("") if part in item.name]


def copy(store: MemoryStore, keep: Callable[[str], bool] = lambda name: True) -> MemoryStore:
    """Return another store with the objects that *keep* chooses."""
    made = MemoryStore()
    for name in names(store):
        if keep(name):
            made.put_if_absent(name, store.get(name, limit=LIMIT))
    return made


def join(*stores: MemoryStore) -> MemoryStore:
    """Return a store with the objects of all; the first that has a name wins."""
    made = MemoryStore()
    for store in stores:
        for name in names(store):
            if name not in names(made):
                made.put_if_absent(name, store.get(name, limit=LIMIT))
    return made


def replace(store: MemoryStore, name: str, data: bytes) -> None:
    """Overwrite an object, as only the provider can."""
    store.delete(name)
    store.put_if_absent(name, data)


def move(store: MemoryStore, old: str, new: str) -> None:
    """Put the bytes of *old* under *new*."""
    replace(store, new, store.get(old, limit=LIMIT))
