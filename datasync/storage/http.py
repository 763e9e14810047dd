"""HTTP for drivers that speak a provider's REST interface themselves: pooled connections, strict answers, no retries.

Bodies go out as views of the caller's buffer and come in straight into one. A ranged answer counts by its Content-Range
and Content-Length, never by its status alone (RFC 9110, sections 14.4 and 15.3.7). Every wait is bounded: connecting,
sending a piece, the first byte, each further byte. Raises `StorageUnavailable` for whatever the network does, and
`IntegrityError` where an object ends too early.
"""

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, LocationValueError, SSLError
from urllib3.util import make_headers

from datasync.errors import IntegrityError, StorageUnavailable, UsageError
from datasync.model.limits import KIB, MIB

SEND_BYTES = 256 * KIB  # one send() call; the time-out holds for each
READ_BYTES = 256 * KIB  # a piece that stays in the processor's cache
ERROR_BYTES = 64 * KIB  # of an error's body
ANSWER_BYTES = 64 * MIB  # of a listing page or a document

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_FAILURES = (HTTPError, http.client.HTTPException, OSError)

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How long to wait, in seconds, and how many connections to keep open."""

    connect_seconds: float = 10.0
    read_seconds: float = 60.0  # without a byte
    connections: int = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Incoming:
    """An answer whose body is still to be read; *what* names the object in messages."""

    def __init__(self, response: urllib3.BaseHTTPResponse, what: str) -> None:
        self.status = response.status
        self.headers = {key.lower(): value for key, value in response.headers.items()}
        self._response = response
        self._what = what

    @property
    def length(self) -> int:
        """The length that the server announces."""
        text = self.headers.get("content-length", "")
        if not text.isascii() or not text.isdigit():
            raise StorageUnavailable(f"{self._what}: the answer has no length; a proxy may have removed it")
        return int(text)

    def read(self, limit: int) -> bytes:
        """Return the whole body of an announced length, at most *limit* bytes."""
        if (size := self.length) > limit:
            raise IntegrityError(f"{self._what} has {size} bytes, expected at most {limit}")
        data = bytearray(size)
        self.fill(memoryview(data))
        return bytes(data)

    def document(self, limit: int) -> bytes:
        """Return a body of any framing, cut off after *limit* bytes."""
        parts, left = list[bytes](), limit
        try:
            while left and (part := self._response.read(left)):
                parts.append(part)
                left -= len(part)
        except _FAILURES as error:
            _fail(self._what, error)
        return b"".join(parts)

    def fill(self, view: memoryview) -> None:
        """Fill *view* from the body."""
        done = 0
        while done < len(view):
            try:
                part = self._response.read(min(READ_BYTES, len(view) - done))
            except _FAILURES as error:
                _fail(self._what, error)
            if not part:
                raise StorageUnavailable(f"{self._what}: the body ended {len(view) - done} bytes early; try again")
            view[done : done + len(part)] = part
            done += len(part)

    def fill_range(self, offset: int, view: memoryview) -> None:
        """Fill *view* with the object's bytes from *offset* on, wherever in the body they are."""
        self._skip(self._surplus(offset, len(view)))
        self.fill(view)

    def _skip(self, count: int) -> None:
        scratch = memoryview(bytearray(min(count, READ_BYTES)))
        while count:
            part = scratch[: min(count, READ_BYTES)]
            self.fill(part)
            count -= len(part)

    def _surplus(self, offset: int, size: int) -> int:
        """Return how many bytes come before the range; raise unless it is there whole."""
        match = _CONTENT_RANGE.fullmatch(self.headers.get("content-range", ""))
        if match is None and self.status == 200:
            check_end(self._what, offset + size, self.length)  # the whole object: a proxy that knows no ranges
            return offset
        if match is not None:
            first, last = int(match[1]), int(match[2])
            if match[3] != "*":
                check_end(self._what, offset + size, int(match[3]))
            if (first, last - first + 1, self.length) == (offset, size, size):
                return 0
        raise StorageUnavailable(f"{self._what}: asked for {size} bytes at {offset}, got another range")


class Http:
    """Requests to one endpoint."""

    def __init__(self, endpoint: str, options: HttpOptions) -> None:
        self._endpoint = endpoint.rstrip("/")
        timeout = urllib3.Timeout(connect=options.connect_seconds, read=options.read_seconds)
        self._pool = _pool(endpoint, timeout, options.connections)

    @contextmanager
    def open(
        self, method: str, target: str, headers: Mapping[str, str], *, what: str, body: tuple[Bytes, ...] = ()
    ) -> Iterator[Incoming]:
        """Send one request and yield its answer; the connection is kept when the body was read to its end."""
        sent = {"Content-Length": str(sum(map(len, body))), **headers} if body or method in ("PUT", "POST") else headers
        try:
            response = self._pool.request(
                method,
                self._endpoint + target,
                headers=dict(sent),
                body=_pieces(body) if body else None,  # type: ignore[arg-type]  # views are bytes to the socket
                preload_content=False,
                decode_content=False,
                redirect=False,
                retries=False,
            )
        except _FAILURES as error:
            _fail(what, error)
        try:
            yield Incoming(response, what)
            response.drain_conn() if method == "HEAD" else None
        finally:
            _give_back(response)

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], *, what: str, body: tuple[Bytes, ...] = ()
    ) -> Answer:
        """Send one request and return the whole answer."""
        with self.open(method, target, headers, what=what, body=body) as incoming:
            limit = ANSWER_BYTES if incoming.status < 300 else ERROR_BYTES
            return Answer(incoming.status, incoming.headers, incoming.document(limit))

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def check_end(what: str, wanted: int, size: int) -> None:
    """Raise `IntegrityError` when an object of *size* bytes has no byte before *wanted*."""
    if wanted > size:
        raise IntegrityError(f"{what} ends at {size}, expected {wanted} bytes or more")


def _pool(endpoint: str, timeout: urllib3.Timeout, connections: int) -> urllib3.PoolManager:
    """Return the pool, through the proxy that the environment names for *endpoint*."""
    parts = urlsplit(endpoint)
    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy_bypass(parts.netloc):
        return urllib3.PoolManager(timeout=timeout, maxsize=connections)
    try:
        login = urlsplit(proxy)
        keys = f"{login.username}:{login.password or ''}" if login.username else None
        return urllib3.ProxyManager(
            proxy, timeout=timeout, maxsize=connections, proxy_headers=make_headers(proxy_basic_auth=keys)
        )
    except (ValueError, HTTPError):
        raise UsageError(f"the proxy in {parts.scheme}_proxy is not usable; expected http://host:port") from None


def _pieces(body: tuple[Bytes, ...]) -> Iterator[memoryview]:
    for part in body:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), SEND_BYTES):
            yield view[start : start + SEND_BYTES]


def _give_back(response: urllib3.BaseHTTPResponse) -> None:
    """Keep the connection when the answer was read whole, close it otherwise."""
    if isinstance(response, urllib3.HTTPResponse) and response.length_remaining not in (0, None):
        response.close()
    response.release_conn()


def _fail(what: str, error: Exception) -> NoReturn:
    kind = type(error).__name__
    if isinstance(error, LocationValueError):
        raise UsageError(f"{what}: the endpoint is not usable ({kind}); correct the URL") from error
    if isinstance(error, SSLError):
        raise StorageUnavailable(f"{what}: no TLS connection ({kind}); check the endpoint's certificate") from error
    raise StorageUnavailable(f"{what}: no complete answer from the server ({kind}); run the same line again") from error
