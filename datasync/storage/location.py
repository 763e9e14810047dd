"""Store URLs: text -> `StoreUrl` -> an open `ObjectStore`.

    /path  ./path  file:///path        a directory
    memory://name[/prefix]             this process, for trials
    s3://bucket[/prefix][?endpoint=https://host[:port]&region=NAME&addressing=path|virtual|auto]
    gs://bucket[/prefix][?endpoint=…]
    az://container[/prefix][?account=NAME or endpoint=…]
    oss://bucket[/prefix]?region=NAME[&endpoint=…&client=v2|oss2]
    cos://bucket-appid[/prefix]?region=NAME[&endpoint=…]
    any://[user@]host[:port]/path      whatever other scheme fsspec knows: sftp, webdav+https, hdfs, …

Further options of each scheme are in `BUCKETS`. Strict: what is not understood is a `UsageError`, and no message
repeats a part that may hold a secret. Importing this module imports no SDK; `open_store` imports the driver that it
needs.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from datasync.errors import UsageError
from datasync.storage.local import LocalStore
from datasync.storage.memory import MemoryStore
from datasync.storage.names import NAME_PATTERN, is_name
from datasync.storage.protocol import ObjectStore

ADDRESSING = ("path", "virtual", "auto")
BUCKETS = {
    "s3": ("endpoint", "region", "addressing", "storage_class", "kms_key", "requester_pays", "accelerate", "dualstack"),
    "gs": ("endpoint", "project", "storage_class"),
    "az": ("endpoint", "account", "storage_class"),
    "oss": ("endpoint", "region", "storage_class", "client"),
    "cos": ("endpoint", "region", "storage_class"),
}
"""The options that each bucket scheme takes after `?`."""
DRIVERS = {
    "s3": ("datasync.storage.s3", "S3Store", "s3"),
    "gs": ("datasync.storage.gcs", "GcsStore", "gcs"),
    "az": ("datasync.storage.azure", "AzureStore", "azure"),
    "oss": ("datasync.storage.oss", "open_oss", "oss"),
    "cos": ("datasync.storage.cos", "open_cos", "cos"),
    "sftp": ("datasync.storage.fsspec", "open_filesystem", "sftp"),
    "": ("datasync.storage.fsspec", "open_filesystem", "fsspec"),  # any other scheme
}
"""For each scheme the module, what opens a URL, and the extra that installs what the module imports."""
READ_ONLY_SCHEMES = ("http", "https", "data", "git", "github")
PREFIX_CHARACTERS = 256  # leaves names their own 512 within the 1,024 bytes that stores take for a key

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_MISSING_SLASHES = re.compile(r"(s3|memory|file|oss|cos|gs|az):")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")
_OPTION = re.compile(r"[A-Za-z0-9:/_.-]{1,256}")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,64}@)?[A-Za-z0-9.-]{0,253}(?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A parsed, normalised URL. `place` is an absolute directory, a memory store's name or a bucket."""

    scheme: str
    place: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    addressing: str = "auto"
    options: tuple[tuple[str, str], ...] = ()
    """What else the URL says, by name."""

    def option(self, name: str) -> str | None:
        """Return the value of a further option."""
        return dict(self.options).get(name)

    def with_option(self, name: str, value: str) -> "StoreUrl":
        """Return the URL that says *value* too; raise `UsageError` where the scheme has no such option."""
        if name not in BUCKETS.get(self.scheme, ()):
            raise UsageError(f"repository URL: {self.scheme}:// has no {name}")
        if _OPTION.fullmatch(value) is None:
            raise UsageError(f"{name}: expected letters, digits and : / _ . -, found {value[:40]!r}")
        return replace(self, options=tuple(sorted({**dict(self.options), name: value}.items())))

    def __str__(self) -> str:
        if self.scheme == "file":
            return f"file://{quote(self.place)}"
        path = f"{self.scheme}://{self.place}" + (f"/{self.prefix}" if self.prefix else "")
        options: dict[str, str | None] = {"endpoint": self.endpoint, "region": self.region, **dict(self.options)}
        options["addressing"] = None if self.addressing == "auto" else self.addressing
        query = "&".join(f"{key}={quote(value, safe=':/')}" for key, value in options.items() if value)
        return f"{path}?{query}" if query else path

    def inside(self, prefix: str) -> "StoreUrl":
        """Return the location *prefix* below this one."""
        if self.scheme == "file":
            return replace(self, place=os.path.join(self.place, _prefix(prefix)))
        return replace(self, prefix=_prefix(f"{self.prefix}/{prefix}"))


def parse_url(text: str) -> StoreUrl:
    """Return the location that *text* names."""
    if not text or "\0" in text:
        raise UsageError("repository URL: expected a path or a URL, found nothing usable")
    match = _SCHEME.match(text)
    if match is None:
        return _parse_path(text)
    scheme = match[1].lower()
    if scheme in READ_ONLY_SCHEMES:
        raise UsageError(
            f"repository URL: unknown scheme {scheme}://; use a path, file://, s3://, gs://, az:// or another"
        )
    if scheme in BUCKETS:
        return _parse_bucket(scheme, _split(text))
    if scheme in ("file", "memory"):
        return {"file": _parse_file, "memory": _parse_memory}[scheme](_split(text))
    return _parse_other(scheme, _split(text, users=True))


def open_store(url: str | StoreUrl, *, prefix: str = "") -> ObjectStore:
    """Return the store at *url*, or at *prefix* below it."""
    where = parse_url(url) if isinstance(url, str) else url
    if prefix:
        where = where.inside(prefix)
    if where.scheme == "file":
        return LocalStore(where.place)
    if where.scheme == "memory":
        return MemoryStore(where.place, prefix=where.prefix)
    return _driver(where.scheme)(where)


def _driver(scheme: str) -> Callable[[StoreUrl], ObjectStore]:
    """Return what opens URLs of *scheme*; a command pays only for the driver that it uses."""
    module, name, extra = DRIVERS.get(scheme, DRIVERS[""])
    try:
        found: Callable[[StoreUrl], ObjectStore] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("datasync"):
            raise
        raise UsageError(
            f"repository URL: {scheme}:// needs the package {error.name}: pip install 'gpu-datasync[{extra}]'"
        ) from None
    return found


def _parse_path(text: str) -> StoreUrl:
    if match := _MISSING_SLASHES.match(text):
        raise UsageError(f"repository URL: write {match[1]}:// for a URL, or ./{match[1]}:… for a directory")
    return StoreUrl("file", os.path.abspath(os.path.expanduser(text)))


def _split(text: str, *, users: bool = False) -> SplitResult:
    """Return the parts; refuse what no repository URL has."""
    try:
        parts = urlsplit(text)
    except ValueError:
        raise UsageError("repository URL: the part after '://' is not a valid host or bucket") from None
    if "@" in parts.netloc and not (users and _HOST.fullmatch(parts.netloc)):
        raise UsageError("repository URL: holds credentials; set the provider's own environment variables instead")
    if parts.fragment or any(ord(c) < 0x21 or ord(c) == 0x7F for c in text if parts.scheme != "file"):
        raise UsageError("repository URL: '#', blanks and control characters are not allowed")
    return parts


def _parse_file(parts: SplitResult) -> StoreUrl:
    _options(parts, allowed=())
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise UsageError("repository URL: expected file:///absolute/path")
    return StoreUrl("file", os.path.abspath(path))


def _parse_memory(parts: SplitResult) -> StoreUrl:
    _options(parts, allowed=())
    if not is_name(parts.netloc):
        raise UsageError("repository URL: expected memory://name")
    return StoreUrl("memory", parts.netloc, _prefix(parts.path))


def _parse_bucket(scheme: str, parts: SplitResult) -> StoreUrl:
    options = _options(parts, allowed=BUCKETS[scheme])
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise UsageError(
            f"repository URL: expected {scheme}://bucket/prefix, the bucket of 2 to 63 letters, digits, '.', '-'"
        )
    addressing = options.pop("addressing", "auto")
    if addressing not in ADDRESSING:
        raise UsageError(f"repository URL: addressing must be one of {', '.join(ADDRESSING)}")
    region = options.pop("region", None)
    if region is not None and _REGION.fullmatch(region) is None:
        raise UsageError("repository URL: region must be letters, digits and '-', as in eu-central-1")
    endpoint = _endpoint(options.pop("endpoint")) if "endpoint" in options else None
    for key, value in options.items():
        if _OPTION.fullmatch(value) is None:
            raise UsageError(f"repository URL: option {key!r} must be letters, digits and : / _ . -")
    rest = tuple(sorted(options.items()))
    return StoreUrl(scheme, parts.netloc, _prefix(parts.path), endpoint, region, addressing, rest)


def _parse_other(scheme: str, parts: SplitResult) -> StoreUrl:
    _options(parts, allowed=())
    if _HOST.fullmatch(parts.netloc) is None:
        raise UsageError(f"repository URL: expected {scheme}://host/path or {scheme}://user@host:port/path")
    prefix = _prefix(parts.path)
    if not prefix:
        raise UsageError(f"repository URL: expected {scheme}://host/path, found no path")
    return StoreUrl(scheme, parts.netloc, prefix)


def _options(parts: SplitResult, *, allowed: tuple[str, ...]) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    found: dict[str, str] = {}
    for key, value in pairs:
        if key not in allowed:
            known = f"known: {', '.join(allowed)}" if allowed else "none is known here"
            raise UsageError(f"repository URL: unknown option {key[:40]!r} after '?'; {known}")
        if not value or key in found:
            raise UsageError(f"repository URL: option {key!r} must be given once and with a value")
        found[key] = value
    return found


def _prefix(text: str) -> str:
    """Return the prefix without outer or doubled slashes."""
    prefix = "/".join(part for part in text.split("/") if part)
    if prefix and (len(prefix) > PREFIX_CHARACTERS or NAME_PATTERN.fullmatch(prefix) is None):
        raise UsageError(
            f"repository URL: prefix must be at most {PREFIX_CHARACTERS} of A-Z a-z 0-9 . - _ /, without '..'"
        )
    return prefix


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError("repository URL: endpoint has an invalid host or port") from None
    if "@" in parts.netloc:
        raise UsageError("repository URL: endpoint holds credentials; set the provider's environment variables instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError("repository URL: endpoint must be like https://host or http://host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
