"""Object names (docs/format.md, section 1), and the rules for dataset and tag names (section 12)."""

import re
import unicodedata

from datasync.errors import FormatError, UsageError

MARKER = "datasync.json"
DATASETS = "d/"
_TOP = 10**20 - 1
_NUMBERED = re.compile(r"([0-9]{20})(?:-([0-9a-f]{64}))?")
NAME_CHARACTERS = 128
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")  # controls, surrogates, line and paragraph separators


def dataset_prefix(dataset: bytes) -> str:
    """Return the prefix of everything that belongs to *dataset*."""
    return f"{DATASETS}{dataset.hex()}/"


def numbered(number: int, digest: bytes | None = None) -> str:
    """Return the last component of an object numbered *number*, the newest sorting first;
    with its hash on stores without put-if-absent.
    """
    if not 0 < number <= _TOP:
        raise FormatError(f"object number: expected 1 to {_TOP}, found {number}")
    return f"{_TOP - number:020d}" + (f"-{digest.hex()}" if digest else "")


def parse_numbered(name: str) -> tuple[int, bytes | None]:
    """Return (number, hash or None) of a numbered object's last component."""
    match = _NUMBERED.fullmatch(name)
    if not match:
        raise FormatError(f"object {name!r}: expected a numbered name of 20 digits")
    number = _TOP - int(match[1])
    if number < 1:
        raise FormatError(f"object {name!r}: numbers start at 1")
    return number, bytes.fromhex(match[2]) if match[2] else None


def pack_name(dataset: bytes, pack: bytes) -> str:
    """Return the object name of a pack."""
    text = pack.hex()
    return f"{dataset_prefix(dataset)}packs/{text[:2]}/{text}"


def check_name(name: str, what: str) -> str:
    """Return *name* when it can name a dataset or tag; raise `UsageError`."""
    if not is_name(name):
        raise UsageError(
            f"{what} name {name!r}: expected 1 to {NAME_CHARACTERS} printable characters "
            "without @ : / and not starting with -"
        )
    return name


def is_name(name: str) -> bool:
    """Tell whether *name* keeps the rule of section 12, in any version of Unicode."""
    if not 1 <= len(name) <= NAME_CHARACTERS or name in (".", "..") or name.startswith("-"):
        return False
    return not any(c in "@:/" or unicodedata.category(c) in _NOT_IN_NAMES for c in name)
