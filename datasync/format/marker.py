"""`datasync.json`, the repository's marker (docs/format.md, section 3)."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from datasync.errors import FormatError, NewerFormat

VERSION = 1
NAMINGS = ("numbered", "hashed")


@dataclass(frozen=True, slots=True)
class Marker:
    """Repository id (hex), when it was made (RFC 3339, UTC), and how numbered objects are named."""

    repository: str
    created: str
    naming: str


def _canonical(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


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
    if not isinstance(version, int) or version > VERSION:
        raise NewerFormat(
            f"datasync.json: format version {version}, this datasync reads {VERSION}: "
            "the repository was made by a newer datasync, install that"
        )
    if set(fields) != {"format", "version", "repository", "created", "naming"} or fields["naming"] not in NAMINGS:
        raise FormatError("datasync.json: expected the fields of format version 1")
    if fields["format"] != "datasync" or version != VERSION:
        raise FormatError(
            f"datasync.json: expected format datasync version {VERSION}, found {fields['format']} {version}"
        )
    return Marker(str(fields["repository"]), str(fields["created"]), str(fields["naming"]))
