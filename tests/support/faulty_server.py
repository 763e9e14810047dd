"""A tiny HTTP server on a loopback port that answers as a test says: rightly, wrongly, or not at all."""

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from datasync.storage.location import StoreUrl, parse_url
from datasync.storage.s3 import S3Credentials, S3Options, S3Store


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    peer: int  # the client's port: one for each connection


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent; `length` claims another Content-Length than the body has, `reset` breaks the connection off."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    length: int | None = None
    reset: bool = False


def fault(status: int, code: str, *, extra: str = "", headers: Mapping[str, str] | None = None) -> Answer:
    """Return an S3 error answer."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>SECRET-IN-MESSAGE</Message>{extra}</Error>"
    return Answer(status, {"Content-Type": "application/xml", **(headers or {})}, body.encode())


@dataclass
class FaultyServer:
    """Answers each request by `rule`; `requests` keeps them all, if `keep`."""

    rule: Callable[[Request], Answer]
    port: int = 0
    keep: bool = True
    requests: list[Request] = field(default_factory=list)
    sdk: ClassVar = False
    """Whether `open` goes through the SDK."""

    def open(self, **seconds: float) -> S3Store:
        keys = S3Credentials("AKIDTEST", "SECRET-KEY")
        return S3Store(self.place(), S3Options(keys, sdk=self.sdk, **seconds))  # type: ignore[arg-type]

    def place(self) -> StoreUrl:
        return parse_url(f"s3://bucket/root?endpoint=http://127.0.0.1:{self.port}&region=us-east-1&addressing=path")


@contextmanager
def faulty_server(rule: Callable[[Request], Answer], *, keep: bool = True) -> Iterator[FaultyServer]:
    """Run a server that answers by *rule*."""
    faulty = FaultyServer(rule, keep=keep)
    with _Server(("127.0.0.1", 0), _handler(faulty)) as server:
        server.daemon_threads = True
        server.block_on_close = False  # clients keep connections open
        faulty.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield faulty
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that were killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _handler(faulty: FaultyServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(self.command, self.path, dict(self.headers.items()), body, self.client_address[1])
            if faulty.keep:
                faulty.requests.append(request)
            with suppress(ConnectionError):  # the client may have gone, as it should
                _send(self, faulty.rule(request))

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    return Handler


def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    if answer.status:
        handler.send_response_only(answer.status)
        for key, value in answer.headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(answer.body)
            handler.wfile.flush()
    if answer.reset or answer.length is not None:
        handler.close_connection = True
    if answer.reset:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
