"""What stands before every handler: request id, Host and Origin, rate, who asks, size and time of the body, errors.

An answer never holds a secret, a path of this program or a traceback: an unexpected error is logged with the request's
id, and the client gets the id. Requests that are refused for who asks are counted, and told to the audit log as a sum.
"""

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from datasync.crypto.kdf import random_bytes
from datasync.daemon.answers import Error
from datasync.daemon.events import failure_of
from datasync.daemon.journal import LOG, log
from datasync.daemon.limits import BODY_BYTES, BODY_SECONDS, BURST, RATE, REFUSALS, REFUSALS_BURST, Rate
from datasync.daemon.metrics import Metrics
from datasync.daemon.peers import Authenticator
from datasync.daemon.refusals import Refusals
from datasync.daemon.routes import ADMIN, JSON, OPEN, Route
from datasync.errors import (
    DatasyncError,
    DeadlineExceeded,
    IntegrityError,
    Locked,
    NoSpace,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
    UsageError,
)
from datasync.service.principal import Principal

STATUSES: tuple[tuple[type[DatasyncError], int], ...] = (
    (UsageError, 400), (NotFound, 404), (StorageUnavailable, 503), (NotAuthorized, 403), (IntegrityError, 502),
    (NoSpace, 503), (Locked, 409), (DeadlineExceeded, 504),
)  # fmt: skip
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
GONE = 499  # noted for a client that went before the answer's end; never sent
LOCAL_HOSTS = frozenset({"localhost", "datasync"})

Next = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refused(NotAuthorized):
    """Nobody known: 401, not 403."""


class TooMany(StorageUnavailable):
    """429."""


class Guard:
    """The rules, for one listening socket each call may come from."""

    def __init__(
        self,
        authenticator: Authenticator,
        hosts: frozenset[str],
        metrics: Metrics,
        refusals: Refusals,
        arrived: Callable[[Any], None],
    ) -> None:
        self.authenticator, self.hosts, self._arrived = authenticator, hosts, arrived
        self._metrics, self._refusals = metrics, refusals
        self._rate, self._wrong = Rate(RATE, BURST), Rate(REFUSALS, REFUSALS_BURST)

    def wrap(self, route: Route, handler: Callable[[web.Request, Any], Awaitable[web.StreamResponse]]) -> Next:
        """Return *handler* behind all rules."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, route, handler)

        return guarded

    async def _answer(
        self,
        request: web.Request,
        route: Route,
        handler: Callable[[web.Request, Any], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        self._arrived(request.protocol)
        started, given = time.monotonic(), request.headers.get("X-Request-Id", "")
        request["id"] = given if _REQUEST_ID.fullmatch(given) else random_bytes(8).hex()
        try:
            self._check_site(request)
            request["principal"] = await self._who(request, route)
            body = await self._body(request, route)
            response = await handler(request, body)
        except Exception as error:
            if isinstance(error, ConnectionError) and _is_gone(request):
                self._note(request, route, GONE, time.monotonic() - started)
                raise
            response = self._failed(
                request, error
            )  # every failure becomes one documented answer, and a line in the log
        if not response.prepared:
            response.headers["X-Request-Id"] = request["id"]
            response.headers["Cache-Control"] = "no-store"
        self._note(request, route, response.status, time.monotonic() - started)
        return response

    def _note(self, request: web.Request, route: Route, status: int, took: float) -> None:
        self._metrics.add("datasync_http_requests_total", route=route.name, status=str(status))
        self._metrics.add("datasync_http_request_seconds_total", took, route=route.name)
        if route.right != OPEN and status not in (401, 429):
            who = request.get("principal")
            subject = who.subject if isinstance(who, Principal) else ""
            log(
                "request",
                request=request["id"],
                route=route.name,
                status=status,
                subject=subject,
                seconds=round(took, 4),
            )

    # site: a browser must not be made to speak to this daemon

    def _check_site(self, request: web.Request) -> None:
        allowed = LOCAL_HOSTS if _is_local(request) else self.hosts
        host = request.headers.get("Host", "")
        if len(request.headers.getall("Host", [])) != 1 or host.lower() not in allowed:
            raise web.HTTPMisdirectedRequest
        origin = request.headers.get("Origin")
        if origin is not None and (urlsplit(origin).netloc.lower() not in allowed or _is_local(request)):
            raise NotAuthorized("Origin: this API is for no other site's pages")

    async def _who(self, request: web.Request, route: Route) -> Principal | None:
        address = request.remote or "local"
        remote = not _is_local(request)
        if remote and not self._rate.take(address):
            raise TooMany("too many requests: wait a second")
        if route.right == OPEN:
            return None
        if remote and self._wrong.left(address) < 1:
            self._refusals.add(address)
            raise TooMany("too many wrong tokens: wait a second")
        try:
            principal = await self._authenticate(request)
        except NotAuthorized as error:
            self._wrong.take(address)
            self._refusals.add(address)
            self._metrics.add("datasync_auth_refused_total")
            raise Refused(str(error)) from None
        if route.right == ADMIN and not principal.admin:
            raise NotAuthorized(f"{principal.subject}: only this machine's own user may do that, over the socket")
        if route.right != ADMIN and not principal.admin:
            now = int(time.time() * 1000)
            principal.right(route.right, None, now)
        return principal

    async def _authenticate(self, request: web.Request) -> Principal:
        transport = request.transport
        if transport is None:
            raise NotAuthorized("the connection is gone")
        if _is_local(request):
            return self.authenticator.local(transport.get_extra_info("socket"))
        authorization = request.headers.get("Authorization")
        certificate = transport.get_extra_info("peercert")
        principal = await asyncio.to_thread(self.authenticator.remote, authorization, certificate)
        peer = transport.get_extra_info("peername")  # never what a header says
        return replace(principal, address=peer[0] if peer else None)

    async def _body(self, request: web.Request, route: Route) -> Any:
        if route.body is None:
            return None
        if request.content_type != JSON:
            raise web.HTTPUnsupportedMediaType
        if (request.content_length or 0) > BODY_BYTES:
            raise web.HTTPRequestEntityTooLarge(BODY_BYTES, request.content_length or 0)
        async with asyncio.timeout(BODY_SECONDS):
            data = await request.read()
        try:
            return msgspec.json.decode(data, type=route.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"body: {error}") from None
        except RecursionError:
            raise UsageError("body: nested too deeply") from None

    def _failed(self, request: web.Request, error: Exception) -> web.Response:
        status, kind, text, code = _describe(error)
        if status == 500:
            LOG.error("unexpected error", extra={"fields": {"request": request["id"]}}, exc_info=error)
            text = f"unexpected error: the daemon's log has it under request {request['id']}"
        response = web.json_response(msgspec.to_builtins(Error(kind, text, code, request["id"])), status=status)
        if status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        if status in (429, 503):
            response.headers["Retry-After"] = "1"
        if status in (408, 413):
            response.force_close()
        return response


def _describe(error: Exception) -> tuple[int, str, str, int]:
    """Return status, class, words and exit code for an error."""
    if isinstance(error, web.HTTPException):
        return error.status, "UsageError", error.reason, UsageError.exit_code
    if isinstance(error, Refused):
        return 401, "NotAuthorized", str(error), error.exit_code
    if isinstance(error, TooMany):
        return 429, "StorageUnavailable", str(error), error.exit_code
    if isinstance(error, TimeoutError):
        return 408, "StorageUnavailable", "the request did not come in time", StorageUnavailable.exit_code
    if isinstance(error, DatasyncError):
        status = next((code for kind, code in STATUSES if isinstance(error, kind)), 409)
        return status, failure_of(error)["error"], str(error), error.exit_code
    return 500, "DatasyncError", "", 1


def error_event(error: Exception, request: str) -> dict[str, Any]:
    """Return the last event of a stream that failed."""
    return {"type": "error", **failure_of(error), "request": request}


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _is_local(request: web.Request) -> bool:
    transport = request.transport
    found = transport.get_extra_info("socket") if transport is not None else None
    return found is not None and found.family == socket.AF_UNIX
