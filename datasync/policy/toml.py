"""A policy's text, read strictly: TOML whose names are seen as they are, in one form, with times that all parts read
alike. Raises `UsageError` that names the file.
"""

import re
import tomllib
import unicodedata
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec

from datasync.errors import UsageError
from datasync.policy.model import nfc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEARS = (1970, 9998)  # of a time: what every part reads and writes alike, in any zone
# A key of many parts: tomllib is quadratic in them.
_LONG_KEY = re.compile(r"""(?<![\w"'.-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){16}""")


def check_visible(name: str, text: str) -> None:
    """Refuse what a reader of the file can not see and a parser can: control, direction and zero-width characters."""
    for character in sorted(set(text)):
        if character not in "\n\r\t" and unicodedata.category(character) in ("Cc", "Cf"):
            raise UsageError(f"policy: {name}: expected no invisible characters, found U+{ord(character):04X}")


def read_toml(name: str, text: str, kind: Any) -> Any:
    """Return the file *name* as *kind*."""
    try:
        if _LONG_KEY.search(text):
            raise UsageError(f"{name}: expected keys of at most 16 parts")
        return msgspec.convert(_normal(tomllib.loads(text)), kind)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name}: not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply") from None
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{name}: {error}") from None


def _normal(value: Any) -> Any:
    """Return *value* with every text in one form, every date as its first moment, and every time with its offset (UTC
    where it has none); raise `ValueError` for what can not be seen or told.
    """
    if isinstance(value, dict):
        found = {_normal(key): _normal(item) for key, item in value.items()}
        if len(found) != len(value):
            raise ValueError("two keys are one name, typed in two ways")
        return found
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, str):
        if not value.isprintable():
            raise ValueError(f"{value!r}: expected printable characters")
        return nfc(value)
    return _time(value) if isinstance(value, date) else value


def _time(value: date) -> datetime:
    if not YEARS[0] <= value.year <= YEARS[1]:
        raise ValueError(f"{value}: expected a year from {YEARS[0]} to {YEARS[1]}")
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def moment(value: datetime) -> int:
    """Return a time in ms."""
    return (value - EPOCH) // timedelta(milliseconds=1)
