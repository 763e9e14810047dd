"""The grammar of object names, shared by all drivers (datasync.storage.protocol states it).

A name that fits can be joined to a root without ever leaving it. What a store holds under other names is not
ours: listings pass over it. Raises `UsageError` only.
"""

import re

from datasync.errors import UsageError

NAME_CHARACTERS = 512
COMPONENT_CHARACTERS = 255  # what file systems take for one component

_COMPONENT = rf"(?!\.{{1,2}}(?:/|\Z))[A-Za-z0-9._-]{{1,{COMPONENT_CHARACTERS}}}"
NAME_PATTERN = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_PREFIX_PATTERN = re.compile(rf"(?:{_COMPONENT}/)*[A-Za-z0-9._-]*")


def is_name(text: str) -> bool:
    """Tell whether *text* can be an object's name."""
    return len(text) <= NAME_CHARACTERS and NAME_PATTERN.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return *name*; raise `UsageError` when it can not name an object."""
    if not is_name(name):
        raise UsageError(
            f"object name {name[:80]!r}: expected at most {NAME_CHARACTERS} of A-Z a-z 0-9 . - _ in components "
            f"of at most {COMPONENT_CHARACTERS} joined by '/', none of them '.' or '..'"
        )
    return name


def check_prefix(prefix: str) -> str:
    """Return *prefix*, the beginning of names to list; raise `UsageError` when no name begins with it."""
    if len(prefix) > NAME_CHARACTERS or _PREFIX_PATTERN.fullmatch(prefix) is None:
        raise UsageError(f"name prefix {prefix[:80]!r}: no object name begins like this")
    return prefix


def check_directory(prefix: str) -> str:
    """Return *prefix*; raise `UsageError` unless it is empty or ends with `/`."""
    if prefix and not prefix.endswith("/"):
        raise UsageError(f"directory prefix {prefix[:80]!r}: must be empty or end with '/'")
    return check_prefix(prefix)
