"""Signatures: "Authorize with Shared Key", "Create a service SAS" and "Create a user delegation SAS" of the vendor's
reference.

Pure: texts in, texts out. Keys are secrets and leave this module in no message.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl, unquote, urlencode

from datasync.errors import UsageError

VERSION = "2021-12-02"  # of the service's interface
_STANDARD = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


def authorization(account: str, key: bytes, method: str, target: str, headers: Mapping[str, str]) -> str:
    """Return the Authorization header of a request for *target* (path and query)."""
    low = {name.lower(): value for name, value in headers.items()}
    if low.get("content-length") == "0":
        low["content-length"] = ""
    path, _, query = target.partition("?")
    lines = [method, *(low.get(name, "") for name in _STANDARD)]
    lines += [f"{name}:{value}" for name, value in sorted(low.items()) if name.startswith("x-ms-")]
    lines.append(f"/{account}{path}")
    lines += [f"{name.lower()}:{value}" for name, value in sorted(parse_qsl(query, keep_blank_values=True))]
    return f"SharedKey {account}:{_sign(key, lines)}"


@dataclass(frozen=True, slots=True)
class UserKey:
    """A user delegation key: whose it is, from when until when it holds (as the service wrote it), for what."""

    value: bytes = field(repr=False)
    object_id: str
    tenant: str
    start: str
    expiry: str
    service: str
    version: str


def blob_sas(account: str, key: bytes, path: str, permissions: str, expires: float, *, https: bool) -> str:
    """Return the query that lets in whoever has it, to the blob at *path* (`container/name`)."""
    return _service_sas(account, key, path, "b", permissions, expires, https=https)


def container_sas(account: str, key: bytes, container: str, permissions: str, expires: float, *, https: bool) -> str:
    """Return the query that lets in whoever has it, to everything in *container*."""
    return _service_sas(account, key, container, "c", permissions, expires, https=https)


def delegated_sas(account: str, key: UserKey, container: str, permissions: str, expires: float, *, https: bool) -> str:
    """Return the same as `container_sas`, signed with a user delegation key."""
    expiry, protocol = iso(expires), _protocol(https=https)
    about = [key.object_id, key.tenant, key.start, key.expiry, key.service, key.version]
    # Empty: start; the users of a hierarchical namespace and a correlation id; addresses; snapshot, encryption scope
    # and the headers of an answer.
    lines = [permissions, "", expiry, f"/blob/{account}/{container}", *about, "", "", "", "", protocol, VERSION, "c"]
    signed = {"sv": VERSION, "spr": protocol, "se": expiry, "sr": "c", "sp": permissions}
    signed |= dict(zip(("skoid", "sktid", "skt", "ske", "sks", "skv"), about, strict=True))
    return urlencode(signed | {"sig": _sign(key.value, [*lines, *[""] * 7])})


def iso(seconds: float) -> str:
    """Return the time (Unix) as the service writes it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_key(text: str) -> bytes:
    """Return the account key that *text* holds."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("the storage account's key is not valid base64; copy it whole from the provider") from None


def _service_sas(
    account: str, key: bytes, path: str, kind: str, permissions: str, expires: float, *, https: bool
) -> str:
    expiry, protocol = iso(expires), _protocol(https=https)
    resource = f"/blob/{account}/{unquote(path)}"
    lines = [permissions, "", expiry, resource, "", "", protocol, VERSION, kind, *[""] * 7]
    signed = {"sv": VERSION, "spr": protocol, "se": expiry, "sr": kind, "sp": permissions}
    return urlencode(signed | {"sig": _sign(key, lines)})


def _protocol(*, https: bool) -> str:
    return "https" if https else "https,http"


def _sign(key: bytes, lines: list[str]) -> str:
    return b64encode(hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()).decode()
