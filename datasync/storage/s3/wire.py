"""HTTP/1.1 (RFC 9112) to one endpoint over kept connections: what `datasync.storage.s3.plain` sends and receives.

Bodies go out as views of the caller's memory and come in straight into it. A large one is announced first (Expect:
100-continue, RFC 9110, section 10.1.1), so a refusal is read instead of a broken connection. Every wait is bounded:
connecting, and each piece that is sent or received. No redirect, no retry, no proxy. `Wire` is thread-safe.

Raises `WireError` for whatever the network or the server's framing does.
"""

import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from select import POLLIN, poll
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from datasync.model.limits import KIB, MIB

if TYPE_CHECKING:
    from ssl import SSLContext

HEAD_BYTES = 64 * KIB  # status line and headers, or one line of a chunked body
DOCUMENT_BYTES = 64 * MIB  # a listing page, an error
SEND_BYTES = 128 * KIB  # one send() call
WAKE_BYTES = 128 * KIB  # while so much is still to come the kernel wakes us for no less: a third of the wake-ups
CONTINUE_SECONDS = 1.0  # servers that know no Expect stay silent
INTERIM_ANSWERS = 16  # 1xx, before the one that counts
BODILESS = (204, 304)

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: .*)?")
_LENGTH = re.compile(r"\d{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")


class WireError(Exception):
    """No complete answer; the message names a kind of failure and holds no header, name or key."""


class TlsError(WireError):
    """No TLS connection."""


@dataclass(frozen=True, slots=True)
class WireOptions:
    """How long to wait, in seconds, and how many idle connections to keep."""

    connect_seconds: float
    read_seconds: float
    connections: int


class _Head(NamedTuple):
    """Status line and headers (names in lower case) of an answer, and whether its connection goes on."""

    status: int
    headers: dict[str, str]
    lasts: bool


class Wire:
    """Connections to one endpoint, `http://host[:port]` or `https://host[:port]`."""

    def __init__(self, endpoint: str, options: WireOptions, context: "SSLContext | None") -> None:
        """*context* says whom to trust; with it, connections are TLS."""
        parts = urlsplit(endpoint)
        self._address = (parts.hostname or "", parts.port or (443 if context else 80))
        self._context = context
        self._options = options
        self._idle: list[_Connection] = []
        self._closed = False
        self._lock = threading.Lock()

    def send(self, method: str, target: str, headers: Mapping[str, str], body: memoryview, *, ask: bool) -> "Answer":
        """Send one request and return its answer, to be read and closed; *ask* announces the body first."""
        connection = self._take()
        try:
            return connection.exchange(method, target, headers, body, self._give, ask=ask)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def _take(self) -> "_Connection":
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if connection.quiet():
                return connection
            connection.close()  # the server ended it, or said something that nobody asked for

    def _give(self, connection: "_Connection") -> None:
        with self._lock:
            if len(self._idle) < self._options.connections and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> "_Connection":
        try:
            line = socket.create_connection(self._address, self._options.connect_seconds)
        except OSError as error:
            raise WireError(type(error).__name__) from error
        try:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._context is not None:
                line = self._context.wrap_socket(line, server_hostname=self._address[0])
        except (OSError, ValueError) as error:  # ValueError: a host that is no name for TLS
            line.close()
            raise TlsError(type(error).__name__) from error
        line.settimeout(self._options.read_seconds)
        return _Connection(line, plain=self._context is None)


class _Connection:
    """One connection, for one exchange at a time."""

    def __init__(self, line: socket.socket, *, plain: bool) -> None:
        self._line = line
        self._wakes_late = plain and hasattr(socket, "SO_RCVLOWAT")
        self._wake = 1
        self._held = bytearray()  # received, and not asked for yet

    def close(self) -> None:
        with suppress(OSError):
            self._line.close()

    def quiet(self) -> bool:
        """Tell whether a kept connection is open and has nothing to say."""
        watch = poll()
        watch.register(self._line, POLLIN)
        pending = getattr(self._line, "pending", None)  # what TLS has decrypted is not the kernel's to tell
        return not self._held and not (pending and pending()) and not watch.poll(0)

    def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: memoryview,
        done: Callable[["_Connection"], None],
        *,
        ask: bool,
    ) -> "Answer":
        """Send a request and read the head of its answer; *done* takes the connection when the body was read."""
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        self._send(memoryview("\r\n".join([*lines, *(["Expect: 100-continue"] if ask else []), "", ""]).encode()))
        if ask and self._answers_within(CONTINUE_SECONDS):
            head = self._head()
            if head.status >= 200:
                return self._refusal(head, method)
        try:
            self._send(body)
        except WireError:
            if self.quiet():
                raise
            with suppress(WireError):  # what it says before it hangs up is worth more than that it does
                return self._refusal(self._final_head(), method)
            raise
        return Answer(self, self._final_head(), method, done)

    def _refusal(self, head: _Head, method: str) -> "Answer":
        """Return the answer to a body that was not sent whole: a success it can not be."""
        if head.status < 300:
            raise WireError("Unasked")
        return Answer(self, head, method, None)

    def _send(self, data: memoryview) -> None:
        try:
            for start in range(0, len(data), SEND_BYTES):
                self._line.sendall(data[start : start + SEND_BYTES])
        except OSError as error:
            raise WireError(type(error).__name__) from error

    def _answers_within(self, seconds: float) -> bool:
        """Tell whether the server says something within *seconds*; a TLS message of its own is nothing said."""
        patience = self._line.gettimeout()
        self._line.settimeout(seconds)
        try:
            part = self._line.recv(HEAD_BYTES)
        except TimeoutError:
            return False
        except OSError as error:
            raise WireError(type(error).__name__) from error
        finally:
            self._line.settimeout(patience)
        self._held += part
        return True

    def _final_head(self) -> _Head:
        for _ in range(INTERIM_ANSWERS):
            head = self._head()
            if head.status >= 200:
                return head
        raise WireError("EndlessInterim")

    def _head(self) -> _Head:
        first = _STATUS.fullmatch(self.line())
        if first is None:
            raise WireError("NoHttp")
        headers, size = dict[str, str](), 0
        while line := self.line():
            name, _, value = line.decode("latin-1").partition(":")
            key, value = name.lower(), value.strip()
            if key == "content-length" and headers.get(key, value) != value:
                raise WireError("TwoLengths")  # RFC 9112, section 6.3
            headers[key] = value
            if (size := size + len(line)) > HEAD_BYTES:
                raise WireError("EndlessHead")
        tokens = {token.strip() for token in headers.get("connection", "").lower().split(",")}
        lasts = "keep-alive" in tokens or (first[1] == b"1" and "close" not in tokens)
        return _Head(int(first[2]), headers, lasts)

    def line(self) -> bytes:
        """Return one line without its end."""
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > HEAD_BYTES:
                raise WireError("EndlessLine")
            part = memoryview(bytearray(HEAD_BYTES))
            count = self._receive(part)
            if not count:
                raise WireError("ConnectionEnded")
            self._held += part[:count]
        found = bytes(self._held[:end])
        del self._held[: end + 1]
        return found.removesuffix(b"\r")

    def fill(self, view: memoryview, left: int) -> int:
        """Put something into *view*, at least one byte unless the connection has ended; *left* bytes are to come, or
        -1.
        """
        if count := min(len(self._held), len(view)):
            view[:count] = self._held[:count]
            del self._held[:count]
            return count
        self._wake_for(WAKE_BYTES if left >= WAKE_BYTES else 1)
        try:
            return self._line.recv_into(view)
        except TimeoutError as error:
            waited_for_more = self._wake > 1
            self._wake_for(1)
            if waited_for_more and not self.quiet():  # a slow line: fewer bytes came in time
                return self._receive(view)
            raise WireError("TimeoutError") from error
        except OSError as error:
            raise WireError(type(error).__name__) from error

    def rest(self) -> None:
        """Be ready for the next exchange."""
        self._wake_for(1)

    def _receive(self, view: memoryview) -> int:
        try:
            return self._line.recv_into(view)
        except OSError as error:
            raise WireError(type(error).__name__) from error

    def _wake_for(self, count: int) -> None:
        if self._wakes_late and count != self._wake:
            try:
                self._line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            except OSError:  # a sandbox without it
                self._wakes_late = False
            self._wake = count


class Answer:
    """An answer whose body is still to be read; header names in lower case."""

    def __init__(
        self, connection: _Connection, head: _Head, method: str, done: Callable[[_Connection], None] | None
    ) -> None:
        """*done* takes the connection when the body was read whole; without it, it is closed."""
        self.status = head.status
        self.headers = headers = head.headers
        self._connection: _Connection | None = connection
        self._done = done if head.lasts else None
        length = headers.get("content-length", "")
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left = int(length) if _LENGTH.fullmatch(length) and not self._chunked else -1
        if method == "HEAD" or head.status in BODILESS:
            self._left, self._chunked = 0, False
        if not self._left:
            self._end(whole=True)

    def readinto(self, view: memoryview) -> int:
        """Fill *view* from a body whose length is known, and return how much of it; less only at the body's end."""
        wanted = min(len(view), max(self._left, 0))
        self._fill(view[:wanted])
        if wanted and not self._left:
            self._end(whole=True)
        return wanted

    def read(self, limit: int | None = None) -> bytes:
        """Return the whole body, of any framing; `WireError` when it has more than *limit* bytes."""
        if self._chunked or self._left < 0:
            return self._document(DOCUMENT_BYTES if limit is None else limit)
        if limit is not None and self._left > limit:
            raise WireError("EndlessDocument")
        data = bytearray(self._left)
        self.readinto(memoryview(data))
        return bytes(data)

    def _document(self, limit: int) -> bytes:
        """Return a body of chunks, or one that ends with the connection."""
        found = bytearray()
        for part in self._chunks() if self._chunked else self._until_the_end():
            found += part
            if len(found) > limit:
                raise WireError("EndlessDocument")
        self._end(whole=self._chunked)  # else it ended with the connection
        return bytes(found)

    def _chunks(self) -> Iterator[memoryview]:
        while True:
            match = _CHUNK.fullmatch(self._open().line())
            if match is None:
                raise WireError("NoChunk")
            self._left = int(match[1], 16)
            if not self._left:
                break
            while self._left:
                part = memoryview(bytearray(min(self._left, HEAD_BYTES)))
                self._fill(part)
                yield part
            if self._open().line():
                raise WireError("NoChunk")
        trailers = 0
        while line := self._open().line():
            if (trailers := trailers + len(line)) > HEAD_BYTES:
                raise WireError("EndlessTrailers")

    def _until_the_end(self) -> Iterator[memoryview]:
        part = memoryview(bytearray(HEAD_BYTES))
        while count := self._open().fill(part, -1):
            yield part[:count]

    def _fill(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            count = self._open().fill(view[done:], self._left)
            if not count:
                raise WireError("BodyEnded")
            done += count
            self._left -= count

    def _open(self) -> _Connection:
        if self._connection is None:
            raise WireError("Closed")
        return self._connection

    def _end(self, *, whole: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and whole and self._done is not None:
            connection.rest()
            self._done(connection)
        elif connection is not None:
            connection.close()

    def close(self) -> None:
        """End the exchange: a connection whose body was not read whole is closed."""
        self._end(whole=False)
