"""Who may read a view, for people: its gate as it is set, whose accounts these are, and what is in readers' way.

Changes nothing and asks nobody. Raises what a look at the gate raises.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from datasync.cache.acl import ATTRIBUTE
from datasync.cache.gate import CLOSED, Gate, gate_of
from datasync.cache.layout import Cache, View
from datasync.config import Config
from datasync.errors import NotFound
from datasync.service.accounts import USER, Account, find_account, readers


@dataclass(frozen=True, slots=True)
class Access:
    """The owner's account, readers with the principals that map to them, and directories that readers can not pass."""

    owner: str
    readers: dict[str, list[str]]
    closed: list[Path]


def shown(cache: Cache, view: View) -> list[str]:
    """Return who may read *view* besides its owner; nobody once it is evicted."""
    try:
        return readers(gate_of(cache, view))
    except NotFound:
        return []


def access(config: Config, cache: Cache, view: View) -> Access:
    """Return who may read *view* and how they come to it."""
    gate = gate_of(cache, view)
    status = os.lstat(view.path)
    mapped: dict[str, list[str]] = {account: [] for account in readers(gate)}
    for name, text in config.accounts.items():
        account = str(find_account(text, f"cache.accounts: {name}"))
        if account in mapped:
            mapped[account].append(name)
    ways = [path for path in view.path.parents if _is_closed(path, gate or CLOSED)] if mapped else []
    return Access(str(Account(USER, status.st_uid)), mapped, ways)


def _is_closed(path: Path, gate: Gate) -> bool:
    """Tell whether readers can not pass the directory *path*; one with an access list of its own may let them."""
    status = os.stat(path)
    if status.st_mode & stat.S_IXOTH or (status.st_mode & stat.S_IXGRP and status.st_gid in gate.groups):
        return False
    try:
        os.getxattr(path, ATTRIBUTE)
    except OSError:
        return True  # no list, or none can be there
    return False
