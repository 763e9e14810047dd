"""What the OSS and the COS test server share: buckets with versions, accounts, listings, and a thread that serves.

State is in memory and may be changed by a test while the server runs (`State`): make keys expire, turn versions on,
keep objects, shift the clock. One asyncio thread answers every request, so each is atomic.
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

import crcmod
from aiohttp import web

GIB = 1024**3
PUT_BYTES = 5 * GIB  # both vendors' limit for one put
PAGE_NAMES = 1_000
SKEW_SECONDS = 900
START_SECONDS = 10

crc64: Callable[[bytes], int] = crcmod.mkCrcFun(0x142F0E1EBA9EA3693, initCrc=0, xorOut=2**64 - 1, rev=True)
"""CRC-64 of ECMA-182, reflected, as both vendors compute it."""


class Refusal(Exception):
    """An error answer in the vendor's words; *more* are further elements of its XML."""

    def __init__(self, status: int, code: str, message: str = "", **more: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.more = status, code, message or code, more


class Wish(NamedTuple):
    """What a request wants, in the words of the vendor's policies: an action on a resource, and its condition keys."""

    action: str
    resource: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Account:
    """A key that the server knows. *expires* (Unix time), *token* and *policies*, which all have to allow what is
    wanted, belong to temporary ones.
    """

    secret: str
    token: str = ""
    expires: float | None = None
    writes: bool = True
    deletes: bool = True
    policies: tuple[Callable[[Wish], bool], ...] = ()

    def may(self, wish: Wish) -> bool:
        return all(policy(wish) for policy in self.policies)


class Version(NamedTuple):
    """One version of an object; without data it is the marker of a deletion."""

    id: str
    data: bytes | None
    modified: float
    crc: int
    storage_class: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data or b"", usedforsecurity=False).hexdigest().upper()}"'


@dataclass
class Bucket:
    """Versions of each key, newest last; *versioning* is the vendor's word, empty when it was never on. *protected*:
    prefixes whose objects nobody overwrites.
    """

    versioning: str = ""
    retention_days: int | None = None
    protected: tuple[str, ...] = ()
    objects: dict[str, list[Version]] = field(default_factory=dict)
    made: int = 0

    def current(self, key: str) -> Version | None:
        versions = self.objects.get(key)
        return versions[-1] if versions and versions[-1].data is not None else None

    def keys(self) -> list[str]:
        return sorted(key for key in self.objects if self.current(key))

    def kept(self, version: Version, now: float) -> bool:
        return self.retention_days is not None and now < version.modified + self.retention_days * 86_400

    def add(self, key: str, data: bytes | None, now: float, storage_class: str = "") -> Version:
        """Store a new version, replacing what has to be replaced."""
        self.made += 1
        identifier = f"V{self.made:08}" if self.versioning == "Enabled" else "null"
        version = Version(identifier, data, now, crc64(data or b""), storage_class)
        kept = self.objects.get(key, []) if self.versioning else []
        self.objects[key] = [item for item in kept if identifier == "null" != item.id or identifier != "null"] + [
            version
        ]
        return version

    def remove(self, key: str, version: str, now: float) -> None:
        """Remove a version, or the object: where there are versions, by a marker."""
        if version:
            left = [item for item in self.objects.get(key, []) if item.id != version]
            self.objects.pop(key, None)
            if left:
                self.objects[key] = left
        elif self.versioning:
            self.add(key, None, now)
        else:
            self.objects.pop(key, None)


@dataclass(eq=False)  # one server is never another
class State:
    """What a running server knows; tests change it."""

    region: str
    accounts: dict[str, Account]
    buckets: dict[str, Bucket] = field(default_factory=dict)
    regions: dict[str, str] = field(default_factory=dict)  # of buckets elsewhere: they are refused here
    ahead: float = 0.0  # seconds by which this server's clock is ahead
    requests: list[tuple[str, str]] = field(default_factory=list)  # method and target of each

    def now(self) -> float:
        return time.time() + self.ahead

    def account(self, access_key: str) -> Account:
        if access_key not in self.accounts:
            raise Refusal(403, "InvalidAccessKeyId", "The Access Key Id you provided does not exist in our records.")
        return self.accounts[access_key]


@dataclass(frozen=True)
class Call:
    """One request, read whole. *target* is as it came, *key* decoded."""

    method: str
    host: str  # without the port
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def key(self) -> str:
        return unquote(self.path[1:])

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))


def cut(keys: list[str], prefix: str, delimiter: str, after: str, limit: int) -> tuple[list[str], list[str], bool]:
    """Return keys, common prefixes and whether there is more; both together are at most *limit*."""
    found, prefixes = list[str](), list[str]()
    for key in keys:
        if not key.startswith(prefix) or key <= after:
            continue
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        group = key[: end + len(delimiter)] if end >= 0 else ""
        if group and (group in prefixes or (after and after.startswith(group))):
            continue
        if len(found) + len(prefixes) == limit:
            return found, prefixes, True
        (prefixes if group else found).append(group or key)
    return found, prefixes, False


def element(name: str, value: object) -> str:
    return f"<{name}>{escape(str(value))}</{name}>"


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def http_date(seconds: float) -> str:
    return formatdate(seconds, usegmt=True)


def document(root: str, *parts: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}>{"".join(parts)}</{root}>'.encode()


Answerer = Callable[[Call], web.Response]


@contextmanager
def serving(state: State, answer: Answerer) -> Iterator[int]:
    """Serve on a free loopback port in a thread of its own; yield the port."""
    started, ports = threading.Event(), list[int]()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        call = await _read(request)
        state.requests.append((call.method, call.target))
        response = answer(call)
        response.headers["Date"] = http_date(state.now())
        return response

    async def main() -> None:
        server = web.ServerRunner(web.Server(handle, access_log=None))
        await server.setup()
        site = web.TCPSite(server, "127.0.0.1", 0, backlog=512)
        await site.start()
        ports.append(server.addresses[0][1])
        started.set()
        await stop.wait()
        await server.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    if not started.wait(START_SECONDS):
        raise RuntimeError("the test server did not start")
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _read(request: web.BaseRequest) -> Call:
    parts = [chunk async for chunk in request.content.iter_any()]
    headers = {name.lower(): value for name, value in request.headers.items()}
    host = headers.get("host", "").partition(":")[0].lower()
    return Call(request.method, host, request.raw_path, headers, b"".join(parts))
