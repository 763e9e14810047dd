"""A proxy on loopback between datasync and a real server, which spoils chosen answers. Requests go on unchanged, Host
header included, so signatures hold.

`FAULTS` names what can go wrong. A fault sees a request and a way to ask the server, and returns the answer to give.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from urllib.parse import urlsplit

from tests.support.faulty_server import Answer, Request, faulty_server
from tests.support.faulty_server import fault as xml_error

HOLE_SECONDS = 3.0  # longer than the clients of the tests wait
BURST = 3
SKEW_SECONDS = 3600
_HOP = {"connection", "content-length", "transfer-encoding", "date", "server", "keep-alive"}

Ask = Callable[[], Answer]
Fault = Callable[["Proxy", Request, Ask], Answer]


@dataclass
class Proxy:
    """Passes requests on to *upstream* (host:port) and spoils those that `chosen` picks, from the *skip*-th on."""

    upstream: str
    dialect: str
    port: int = 0
    fault: Fault | None = None
    chosen: Callable[[Request], bool] = lambda _: True
    skip: int = 0
    count: int = BURST
    requests: list[Request] = field(default_factory=list)
    faults: int = 0
    remembered: dict[str, Answer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def through(self, url: str) -> str:
        """Return *url*, of a store at *upstream*, through this proxy."""
        upstream = self.upstream.rpartition(":")[2]  # some names of a host mean a bucket: the port alone is another one
        return url.replace(f":{upstream}", f":{self.port}")

    def arm(self, fault: Fault, chosen: Callable[[Request], bool], *, skip: int = 1, count: int = BURST) -> None:
        """Spoil *count* of the *chosen* requests after the first *skip*."""
        self.fault, self.chosen, self.skip, self.count = fault, chosen, skip, count
        self.requests.clear()
        self.faults = 0

    def heal(self) -> None:
        """Spoil nothing from now on."""
        self.fault = None
        self.requests.clear()

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            fault = self.fault
            hit = fault is not None and self.chosen(request) and self._due()
        if fault is None or not hit:
            return self._keep(request, forward(self.upstream, request))
        return fault(self, request, lambda: forward(self.upstream, request))

    def _due(self) -> bool:
        self.skip -= 1
        if self.skip >= 0 or self.faults >= self.count:
            return False
        self.faults += 1
        return True

    def _keep(self, request: Request, answer: Answer) -> Answer:
        if request.method == "GET":
            self.remembered.setdefault(_question(request), answer)
        return answer


def _question(request: Request) -> str:
    return f"{request.path} {request.headers.get('Range', '')}"


def forward(upstream: str, request: Request) -> Answer:
    """Return the real server's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", int(upstream.rpartition(":")[2]), timeout=60)
    try:
        connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
        for key, value in request.headers.items():
            if key.lower() not in ("connection", "expect"):
                connection.putheader(key, value)
        connection.endheaders(request.body or None)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    headers = {key: value for key, value in answer.getheaders() if key.lower() not in _HOP}
    length = int(answer.headers.get("Content-Length", 0)) if request.method == "HEAD" else None
    return Answer(answer.status, headers, body, length)


@contextmanager
def fault_proxy(endpoint: str, dialect: str) -> Iterator[Proxy]:
    """Run a proxy before the server at *endpoint*."""
    made = Proxy(urlsplit(endpoint).netloc, dialect)
    with faulty_server(made.answer) as faulty:
        made.port = faulty.port
        yield made


# Which requests


def is_write(request: Request) -> bool:
    return request.method in ("PUT", "POST")


def is_read(request: Request) -> bool:
    return request.method == "GET"


# What an error looks like, in each dialect

CODES: Mapping[str, Mapping[int, str]] = {
    "s3": {
        400: "ExpiredToken", 403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed",
        429: "TooManyRequests", 500: "InternalError", 503: "SlowDown",
    },
    "gcs": {
        401: "authError", 403: "forbidden", 404: "notFound", 412: "conditionNotMet", 429: "rateLimitExceeded",
        500: "backendError", 503: "backendError",
    },
    "azure": {
        401: "InvalidAuthenticationInfo", 403: "AuthorizationPermissionMismatch", 404: "BlobNotFound",
        412: "ConditionNotMet", 429: "ServerBusy", 500: "InternalError", 503: "ServerBusy",
    },
    "oss": {
        403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 429: "TooManyRequests",
        500: "InternalError", 503: "SlowDown",
    },
}  # fmt: skip
CODES = {**CODES, "cos": CODES["oss"]}


def error(dialect: str, status: int, code: str = "", headers: Mapping[str, str] | None = None) -> Answer:
    """Return the provider's error *status*."""
    told = code or CODES[dialect].get(status, "Error")
    if dialect == "gcs":
        about = {"error": {"code": status, "message": "SECRET-IN-MESSAGE", "errors": [{"reason": told}]}}
        return Answer(status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(about).encode())
    if dialect == "azure":
        return Answer(status, {"x-ms-error-code": told, **(headers or {})}, b"<Error/>")
    return xml_error(status, told, headers=headers)


# The faults


def delay(_: Proxy, request: Request, ask: Ask) -> Answer:
    time.sleep(0.3)
    return ask()


def cut(_: Proxy, request: Request, ask: Ask) -> Answer:
    """The answer ends in the middle; of a write nothing arrived."""
    if is_write(request):
        return Answer(status=0, reset=True)
    found = ask()
    return replace(found, body=found.body[: len(found.body) // 2], length=len(found.body))


def short(_: Proxy, request: Request, ask: Ask) -> Answer:
    """A body that lacks its end, in an answer that looks whole."""
    found = ask()
    return replace(found, status=200 if found.status == 206 else found.status, body=found.body[:-7])


def wrong_length(_: Proxy, request: Request, ask: Ask) -> Answer:
    """A Content-Length that is 7 more than the body has."""
    found = ask()
    return replace(found, length=len(found.body) + 7)


def reset(_: Proxy, request: Request, ask: Ask) -> Answer:
    """The request took effect, and its answer is lost."""
    ask()
    return Answer(status=0, reset=True)


def black_hole(_: Proxy, request: Request, ask: Ask) -> Answer:
    time.sleep(HOLE_SECONDS)
    return Answer(status=0, reset=True)


def status(number: int) -> Fault:
    def answer(proxy: Proxy, request: Request, ask: Ask) -> Answer:
        return error(proxy.dialect, number, headers={"Retry-After": "1"} if number in (429, 503) else None)

    return answer


def twice(_: Proxy, request: Request, ask: Ask) -> Answer:
    """The request arrives twice; the second answer is given."""
    ask()
    return ask()


def stale(proxy: Proxy, request: Request, ask: Ask) -> Answer:
    """The answer of an earlier day."""
    return proxy.remembered.get(_question(request)) or ask()


def skewed(proxy: Proxy, request: Request, ask: Ask) -> Answer:
    """Refused because of the time that the request gives."""
    date = {"Date": formatdate(time.time() - SKEW_SECONDS, usegmt=True)}
    return error(proxy.dialect, 403, "" if proxy.dialect in ("gcs", "azure") else "RequestTimeTooSkewed", date)


def expired(proxy: Proxy, request: Request, ask: Ask) -> Answer:
    """The token is not valid any more."""
    if proxy.dialect == "s3":
        return error("s3", 400, "ExpiredToken")
    if proxy.dialect in ("oss", "cos"):
        return error(proxy.dialect, 403, "SecurityTokenExpired" if proxy.dialect == "oss" else "ExpiredToken")
    return error(proxy.dialect, 401)


def other_region(proxy: Proxy, request: Request, ask: Ask) -> Answer:
    """Sent on to the region that the bucket is in."""
    return error(proxy.dialect, 301, "PermanentRedirect", {"x-amz-bucket-region": "eu-west-1"})


def no_trailer(number: int) -> Fault:
    """Refuse a checksum that the server does not know, as a header or a trailer."""

    def answer(proxy: Proxy, request: Request, ask: Ask) -> Answer:
        low = {key.lower() for key in request.headers}
        if low & {"x-amz-checksum-crc32", "x-amz-trailer"}:
            return error(proxy.dialect, number, "MissingContentLength" if number == 400 else "NotImplemented")
        return ask()

    return answer


FAULTS: Mapping[str, Fault] = {
    "delay": delay,
    "cut": cut,
    "short": short,
    "wrong length": wrong_length,
    "reset": reset,
    "black hole": black_hole,
    "403": status(403),
    "404": status(404),
    "412": status(412),
    "429": status(429),
    "500": status(500),
    "503": status(503),
    "twice": twice,
    "stale": stale,
    "skewed": skewed,
    "expired": expired,
    "trailer 400": no_trailer(400),
    "trailer 501": no_trailer(501),
}
