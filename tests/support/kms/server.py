"""What the local key services share: HTTP/1.1 on a free loopback port, and faults that stand in for the true answer.

A vendor's server derives from `KeyServer`, checks the vendor's signature or token, and answers in its wire format. The
wrapping behind it is AES-GCM with the context as associated data.
"""

import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def json(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads(self.body))


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; `hang` sends nothing at all, `drip` one byte of the body and no more."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    hang: bool = False
    drip: bool = False

    @classmethod
    def of(cls, status: int, fields: object) -> "Reply":
        return cls(status, json.dumps(fields).encode())


class KeyServer:
    """A service with one key. `faults` are used up first, by requests that are not for a token; the last one stays."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.faults: list[Reply] = []
        self.calls: list[Call] = []
        self.released = threading.Event()  # lets hanging answers go
        self._key = AESGCM(os.urandom(32))

    def is_token(self, call: Call) -> bool:
        return False

    def answer(self, call: Call) -> Reply:
        return Reply.of(500, {})

    def reply(self, call: Call) -> Reply:
        self.calls.append(call)
        if self.faults and not self.is_token(call):
            return self.faults.pop(0) if len(self.faults) > 1 else self.faults[0]
        return self.answer(call)

    def seal(self, key: bytes, context: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._key.encrypt(nonce, key, context)

    def open(self, blob: bytes, context: bytes) -> bytes | None:
        try:
            return self._key.decrypt(blob[:12], blob[12:], context)
        except (InvalidTag, ValueError):
            return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: KeyServer

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.service.reply(Call(self.command, self.path, headers, self.rfile.read(size)))
        self.close_connection = True
        if reply.hang:
            self.service.released.wait()
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if reply.drip:
            self.wfile.write(reply.body[:1])
            self.service.released.wait()
            return
        self.wfile.write(reply.body)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815 (the library's names)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a test's output is its own."""


Server = TypeVar("Server", bound=KeyServer)


@contextmanager
def running(service: Server, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Serve *service* while the block runs, over TLS for localhost with *tls*."""
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    service.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        service.endpoint = f"https://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
