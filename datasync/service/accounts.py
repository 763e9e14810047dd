"""Users and groups of this machine, as settings name them: `alice`, `uid:alice`, `uid:1001`, `gid:vision`, `gid:2000`.

A number needs no entry in the system's tables: containers have few. Raises `UsageError` for a text of another form.
"""

import grp
import pwd
from typing import NamedTuple

from datasync.cache.acl import NOBODY
from datasync.cache.gate import Gate
from datasync.errors import UsageError

USER, GROUP = "uid", "gid"


class Account(NamedTuple):
    """A user (`uid`) or a group (`gid`) by its number."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


def find_account(text: str, setting: str) -> Account | None:
    """Return the account that *text* means; None when this machine has none of that name."""
    kind, colon, name = text.partition(":")
    if not colon:
        kind, name = USER, text
    if kind not in (USER, GROUP) or not name:
        raise UsageError(f"{setting}: expected NAME, uid:NAME or gid:NAME, or a number for the name, found {text!r}")
    number = int(name) if name.isascii() and name.isdecimal() else _number(kind, name)
    if number is not None and number >= NOBODY:
        raise UsageError(f"{setting}: expected a number below {NOBODY}, found {number}")
    return Account(kind, number) if number is not None else None


def find_group(name: str) -> Account:
    """Return the group called *name*, or with that number, which has to be there."""
    found = find_account(name if name.startswith(f"{GROUP}:") else f"{GROUP}:{name}", "group")
    if found is None:
        raise UsageError(f"group {name!r}: this machine has none of that name: correct --group or [cache] group")
    return found


def readers(gate: Gate | None) -> list[str]:
    """Return whom *gate* lets in besides the owner, as texts that settings understand."""
    if gate is None:
        return ["unknown"]
    users = [Account(USER, number) for number in gate.users]
    return [str(item) for item in sorted(users) + sorted(Account(GROUP, number) for number in gate.groups)]


def _number(kind: str, name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid if kind == USER else grp.getgrnam(name).gr_gid
    except KeyError:
        return None
