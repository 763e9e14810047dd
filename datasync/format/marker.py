"""`datasync.json`, the repository's marker (docs/format.md, section 3)."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from datasync.errors import FormatError, NewerFormat

VERSION = 1
NAMINGS = ("numbered", "hashed")
_FIELDS = {
    "format": re.compile(".*"),
    "version": None,
    "repository": re.compile("[0-9a-f]{32}"),
    "created": re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"),
    "naming": re.compile("|".join(NAMINGS)),
}


@dataclass(frozen=True, slots=True)
class Marker:
    """Repository id (hex), when it was made (RFC 3339, UTC), and how numbered objects are named."""

    repository: str
    created: str
    naming: str


def _canonical(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _fits(rule: re.Pattern[str] | None, value: object) -> bool:
    """Tell whether *value* is a text of *rule*, or a number where there is none; true is no number."""
    return type(value) is int if rule is None else isinstance(value, str) and rule.fullmatch(value) is not None


def write_marker(marker: Marker, hasher: Callable[[bytes], bytes]) -> bytes:
    """Return the object's bytes."""
    fields: dict[str, object] = {
        "format": "datasync",
        "version": VERSION,
        "repository": marker.repository,
        "created": marker.created,
        "naming": marker.naming,
    }
    return _canonical(fields | {"hash": hasher(_canonical(fields)).hex()}) + b"\n"


def read_marker(data: bytes, hasher: Callable[[bytes], bytes]) -> Marker:
    """Return the marker in *data*; the hash is checked before the version,
    so damage is never taken for a newer format.
    """
    try:
        fields = json.loads(data)
        digest = fields.pop("hash")
        intact = data == _canonical(fields | {"hash": digest}) + b"\n" and hasher(_canonical(fields)).hex() == digest
        version = fields["version"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        intact, version = False, None
    if not intact:
        raise FormatError("datasync.json: its hash does not match its fields: the object is damaged")
    if type(version) is int and version > VERSION:
        raise NewerFormat(
            f"datasync.json: format version {version}, this datasync reads {VERSION}: "
            "the repository was made by a newer datasync, install that"
        )
    if fields.keys() != _FIELDS.keys() or not all(_fits(rule, fields[name]) for name, rule in _FIELDS.items()):
        raise FormatError("datasync.json: expected the fields of format version 1")
    if fields["format"] != "datasync" or version != VERSION:
        raise FormatError(
            f"datasync.json: expected format datasync version {VERSION}, found {fields['format']} {version}"
        )
    return Marker(fields["repository"], fields["created"], fields["naming"])
