"""What a key service is, and the URIs that name its keys (docs/kms.md).

    aws-kms://REGION/KEY-ID | alias/NAME | ARN        google-kms://projects/P/locations/L/keyRings/R/cryptoKeys/K
    alibaba-kms://REGION/KEY-ID | alias/NAME          azure-kv://VAULT-HOST/KEY/VERSION
    tencent-kms://REGION/KEY-ID                       vault://MOUNT/KEY

each with an optional `?endpoint=https://host[:port][/path]`. Strict: what is not understood is a `UsageError`, and no
message repeats a part that may hold a secret. Credentials have no place in a URI.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from datasync.crypto.hashing import hash_bytes
from datasync.errors import UsageError

KMS_KINDS = {
    "aws-kms": 16,
    "alibaba-kms": 17,
    "tencent-kms": 18,
    "google-kms": 19,
    "azure-kv": 20,
    "vault": 21,
}
"""Slot kinds by URI scheme (docs/format.md, section 7)."""
KMS_NAMES = {kind: scheme for scheme, kind in KMS_KINDS.items()}

_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9:/_+=,.@-]{0,1023}")


@dataclass(frozen=True, slots=True)
class KeyUri:
    """A parsed URI. `place` is a region, a host, a mount or `projects`; `endpoint` is where this machine reaches it."""

    scheme: str
    place: str
    path: str
    endpoint: str | None = None

    @property
    def name(self) -> str:
        """The key's name, which every machine shares: the URI without options."""
        return f"{self.scheme}://{self.place}/{self.path}"

    @property
    def kind(self) -> int:
        """The slot kind."""
        return KMS_KINDS[self.scheme]

    @property
    def fingerprint(self) -> bytes:
        """What a slot holds of the name, 32 bytes: it is found by who knows the name, and told to nobody else."""
        return hash_bytes(b"datasync/v1/kms\0" + self.name.encode())


class KeyService(Protocol):
    """One key of one service; `wrap` and `unwrap` are one request each, bounded in time and size.

    Both raise `StorageUnavailable` (down, busy, unreachable), `NotAuthorized`, `NotFound`, `UsageError` (a setting is
    wrong) and `IntegrityError` (an answer that can not be right).
    """

    @property
    def uri(self) -> KeyUri:
        """The key's URI."""

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        """Return the service's own ciphertext of *key*, tied to *context* where the service can."""

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        """Return what `wrap` was given; the caller proves that it is that by a key commitment."""


def context_text(context: Mapping[str, str]) -> str:
    """Return the one text of *context* for services that take bytes or text."""
    return json.dumps(dict(context), sort_keys=True, separators=(",", ":"))


def parse_key_uri(text: str) -> KeyUri:
    """Return the key that *text* names."""
    scheme, found, _ = text.partition("://")
    if not found or scheme not in KMS_KINDS:
        raise UsageError(f"KMS URI: expected one of {', '.join(f'{name}://' for name in KMS_KINDS)} at its start")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise UsageError(f"KMS URI: the part after {scheme}:// is not valid") from None
    if any(ord(character) < 0x21 or ord(character) > 0x7E for character in text):
        raise UsageError("KMS URI: blanks, control characters and characters beyond ASCII are not allowed")
    if "@" in parts.netloc or parts.fragment:
        raise UsageError("KMS URI: holds credentials or '#'; set the provider's own environment variables instead")
    path = parts.path.lstrip("/")
    tidy = all(part not in ("", ".", "..") for part in path.split("/"))
    if _PLACE.fullmatch(parts.netloc) is None or _PATH.fullmatch(path) is None or not tidy:
        raise UsageError(f"KMS URI: expected {scheme}://PLACE/KEY of letters, digits and : / _ + = , . @ -")
    return KeyUri(scheme, parts.netloc, path, _endpoint(parts.query))


def _endpoint(query: str) -> str | None:
    options = parse_qsl(query, keep_blank_values=True)
    if any(key != "endpoint" or not value for key, value in options) or len(options) > 1:
        raise UsageError("KMS URI: endpoint=… is the only option after '?', once and with a value")
    return options[0][1] if options else None
