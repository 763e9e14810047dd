"""Signatures with an account key: "Authorize with Shared Key" and "Create a service SAS" of the vendor's reference.

Pure: texts in, texts out. The key is the account's secret and leaves this module in no message.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
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


def blob_sas(account: str, key: bytes, path: str, permissions: str, expires: float, *, https: bool) -> str:
    """Return the query that lets in whoever has it, to the blob at *path* (`container/name`)."""
    expiry = datetime.fromtimestamp(int(expires), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    protocol = "https" if https else "https,http"
    resource = f"/blob/{account}/{unquote(path)}"
    lines = [permissions, "", expiry, resource, "", "", protocol, VERSION, "b", *[""] * 7]
    signed = {"sv": VERSION, "spr": protocol, "se": expiry, "sr": "b", "sp": permissions, "sig": _sign(key, lines)}
    return urlencode(signed)


def parse_key(text: str) -> bytes:
    """Return the account key that *text* holds."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("the storage account's key is not valid base64; copy it whole from the provider") from None


def _sign(key: bytes, lines: list[str]) -> str:
    return b64encode(hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()).decode()
