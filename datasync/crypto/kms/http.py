"""One bounded HTTPS request to a key service, with the standard library alone.

Promises: https, or http to a loopback address only; redirects are never followed; one try ends after
`HttpLimits.total_seconds` whatever the server does, and an answer is never larger than `answer_bytes`. Errors name the
service and the kind of failure, never a URL, a header or the server's own text, which may hold secrets.
"""

import http.client
import ipaddress
import json
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from datasync.errors import IntegrityError, StorageUnavailable, UsageError
from datasync.model.limits import KIB

_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on one request; a caller waits at most three times `total_seconds` and the pauses."""

    connect_seconds: float = 5.0  # per address
    total_seconds: float = 20.0  # from the first byte sent to the last byte of the answer
    answer_bytes: int = 64 * KIB  # the largest true answer is a few KiB
    pauses: tuple[float, ...] = (0.2, 1.0)  # seconds before the second and the third try


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go: never with credentials, a query or a fragment."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The endpoint as a URL without a final slash."""
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `path` is the whole target. Never shown by repr: headers and body hold secrets."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes = field(repr=False)

    def fields(self) -> dict[str, Any] | None:
        """Return the JSON object in the body, None for anything else."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def parse_endpoint(text: str, what: str, plain_hosts: tuple[str, ...] = ()) -> Endpoint:
    """Return the endpoint in *text*; http is for loopback addresses and *plain_hosts* (metadata services) alone."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError(f"{what}: the endpoint has an invalid host or port") from None
    host = parts.hostname or ""
    odd = "@" in parts.netloc or parts.query or parts.fragment or not re.fullmatch(r"[A-Za-z0-9._:-]+", host)
    if odd or parts.scheme not in _DEFAULT_PORTS or re.fullmatch(r"[A-Za-z0-9._/-]*", parts.path) is None:
        raise UsageError(f"{what}: the endpoint must be like https://host or https://host:port/path")
    if parts.scheme == "http" and not (is_loopback(host) or host in plain_hosts):
        raise UsageError(f"{what}: the endpoint must begin with https://, http:// is for this machine's loopback alone")
    return Endpoint(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    """Tell whether *host* is this machine by its name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Client:
    """Sends to one endpoint; a fresh connection for each request, as an opening needs one or two."""

    def __init__(self, what: str, endpoint: Endpoint, limits: HttpLimits, ca_file: str | None = None) -> None:
        self.what = what
        self.endpoint = endpoint
        self.limits = limits
        self._ca_file = ca_file

    def send(self, request: Request) -> Answer:
        """Return the answer to *request*, whatever its status."""
        headers = {"Host": self.endpoint.authority, "Accept": "application/json", **request.headers}
        self._check(headers)
        connection = self._connection()
        cut = threading.Event()
        watchdog = threading.Timer(self.limits.total_seconds, _cut, (connection, cut))
        watchdog.daemon = True
        watchdog.start()
        try:
            answer = self._exchange(connection, request, headers)
        except (OSError, http.client.HTTPException) as error:
            raise StorageUnavailable(self._failure(error, cut.is_set())) from None
        finally:
            watchdog.cancel()
            connection.close()
        if cut.is_set():  # a body without a length ends where it was cut
            raise StorageUnavailable(self._failure(TimeoutError(), True))
        return answer

    def _exchange(self, connection: http.client.HTTPConnection, request: Request, headers: Mapping[str, str]) -> Answer:
        connection.connect()
        connection.sock.settimeout(self.limits.total_seconds)
        connection.request(request.method, request.path, request.body or None, dict(headers))
        response = connection.getresponse()
        body = response.read(self.limits.answer_bytes + 1)
        if len(body) > self.limits.answer_bytes:
            raise IntegrityError(
                f"{self.what}: expected an answer of at most {self.limits.answer_bytes} bytes, found a longer one"
            )
        return Answer(response.status, body)

    def _connection(self) -> http.client.HTTPConnection:
        host, port, seconds = self.endpoint.host, self.endpoint.port, self.limits.connect_seconds
        if self.endpoint.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError:
            raise UsageError(f"{self.what}: the file of CA certificates can not be read") from None
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)

    def _check(self, headers: Mapping[str, str]) -> None:
        """Refuse what HTTP can not carry; the library's own error would show the value."""
        for name, value in headers.items():
            if _HEADER_VALUE.fullmatch(value) is None:
                raise UsageError(
                    f"{self.what}: the credentials can not be sent: the header {name} would hold a line break or "
                    "characters beyond ASCII; set them again without"
                )

    def _failure(self, error: Exception, cut: bool) -> str:
        if isinstance(error, ssl.SSLError):
            return f"{self.what}: no TLS connection ({type(error).__name__}): check the endpoint's certificate"
        if cut or isinstance(error, TimeoutError):
            return f"{self.what}: no whole answer within {self.limits.total_seconds:g} s: try again later"
        return f"{self.what}: can not be reached ({type(error).__name__}): check network and endpoint, try again later"


def _cut(connection: http.client.HTTPConnection, cut: threading.Event) -> None:
    cut.set()
    found: socket.socket | None = connection.sock
    if found is not None:
        with suppress(OSError):  # it may have ended by itself just now
            socket.socket.shutdown(found, socket.SHUT_RDWR)  # not TLS's own, which pulls the session from a reader
