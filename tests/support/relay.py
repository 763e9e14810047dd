"""A server between datasync and a real S3 server, which answers what a test wants to see answered wrongly itself.

Requests are passed on with the Host that the client signed. While the real server is away, connections break off.
"""

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.support.faulty_server import Answer, Request, faulty_server
from tests.support.servers import S3Server

_HOP = {"connection", "content-length", "transfer-encoding", "date", "server"}


@dataclass
class Relay:
    """`fault` returns an answer of its own for a request, or None to pass it on."""

    server: S3Server
    fault: Callable[[Request], Answer | None]
    endpoint: str = ""
    passed: int = 0
    faults: int = 0
    broken: int = 0

    def url(self, bucket: str) -> str:
        return self.server.url(bucket).replace(self.server.endpoint, self.endpoint)

    def heal(self) -> None:
        """Answer rightly from now on."""
        self.fault = lambda _: None

    def answer(self, request: Request) -> Answer:
        found = self.fault(request)
        if found is not None:
            self.faults += 1
            return found
        try:
            answer = forward(self.server, request)
        except (OSError, http.client.HTTPException):
            self.broken += 1
            return Answer(status=0, reset=True)
        self.passed += 1
        return answer


def forward(server: S3Server, request: Request) -> Answer:
    """Return the real server's answer."""
    place = urlsplit(server.endpoint)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        connection.request(request.method, request.path, request.body, dict(request.headers))
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    headers = {key: value for key, value in answer.getheaders() if key.lower() not in _HOP}
    length = int(answer.headers["Content-Length"]) if request.method == "HEAD" else None
    return Answer(answer.status, headers, body, length)


@contextmanager
def relay(server: S3Server) -> Iterator[Relay]:
    """Run a relay before *server*."""
    made = Relay(server, lambda _: None)
    with faulty_server(made.answer, keep=False) as faulty:
        made.endpoint = f"http://127.0.0.1:{faulty.port}"
        yield made
