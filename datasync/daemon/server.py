"""The HTTP server: the one module with an event loop. It looks and asks; the work is done by threads.

Listens on a Unix socket (0660 for a configured group, else 0600), and on TCP with TLS 1.3 when told. A connection whose
first request is not whole in `HEADER_SECONDS` is closed. Blocking work runs on a bounded pool, so `/healthz` answers
whatever the store does.
"""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from datasync.config import Config
from datasync.daemon.guards import Guard
from datasync.daemon.handlers import Handlers
from datasync.daemon.journal import LOG, log
from datasync.daemon.limits import BODY_BYTES, CONNECTIONS, HEADER_BYTES, HEADER_SECONDS, IDLE_SECONDS
from datasync.daemon.notify import notify, reloading, watchdog_seconds
from datasync.daemon.peers import Authenticator, group_id
from datasync.daemon.refusals import Refusals
from datasync.daemon.routes import ROUTES
from datasync.daemon.supervisor import Supervisor
from datasync.errors import DatasyncError, Locked, UsageError
from datasync.service.daemon_rights import manage
from datasync.service.daemon_settings import Server, Settings
from datasync.service.issuers import Issuers
from datasync.service.sockets import reachable, socket_path
from datasync.service.tokens import TokenBook

FLUSH_SECONDS = 30.0
WORKERS = 8  # blocking requests at a time


def make_app(supervisor: Supervisor, guard: Guard, stop: Callable[[], None]) -> web.Application:
    """Return the application with all routes behind *guard*."""
    app = web.Application(client_max_size=BODY_BYTES)
    handlers = Handlers(supervisor, stop)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, guard.wrap(route, getattr(handlers, route.name)))
    return app


def make_guard(supervisor: Supervisor, refusals: Refusals, arrived: Callable[[Any], None] = lambda _: None) -> Guard:
    """Return the rules that the settings say."""
    config, settings = supervisor.config, supervisor.settings
    hosts = _hosts(supervisor.server, settings)
    return Guard(make_authenticator(config, settings), hosts, supervisor.metrics, refusals, arrived)


def make_authenticator(config: Config, settings: Settings) -> Authenticator:
    """Return whom the settings let in."""
    issuers = Issuers(settings.issuers, settings.access)
    return Authenticator(TokenBook(config), issuers, group_id(settings.server.group))


def _hosts(server: Server, settings: Settings) -> frozenset[str]:
    """Return the names that *settings* say, with the port that *server* listens on."""
    if server.listen == "unix":
        return frozenset()
    host, port = _address(server.listen)
    names = [*settings.server.hosts, *([] if host in ("0.0.0.0", "::") else [host])]
    both = [name.lower() for name in names] + [f"{name.lower()}:{port}" for name in names]
    return frozenset(both)


def _address(listen: str) -> tuple[str, int]:
    parts = urlsplit(listen)
    if not parts.hostname or parts.port is None:
        raise UsageError(f"[daemon] listen {listen!r}: expected tcp://HOST:PORT")
    return parts.hostname, parts.port


def tls_context(server: Server) -> ssl.SSLContext:
    """Return what TCP is served with: TLS 1.3, client certificates where a CA for them is set."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(server.certificate, server.key)
        if server.client_ca:
            context.load_verify_locations(server.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"[daemon]: certificate, key and client_ca must be readable PEM files: {error}") from None
    return context


def _renew_certificate(context: ssl.SSLContext, server: Server) -> None:
    """Serve new connections with the certificate that is in the files now, once it is known to be a whole one."""
    if server.certificate:  # else TCP is given up with the next start
        tls_context(server)
        context.load_cert_chain(server.certificate, server.key)


def _renew_guard(guard: Guard, server: Server, config: Config, settings: Settings) -> None:
    guard.authenticator, guard.hosts = make_authenticator(config, settings), _hosts(server, settings)


@contextlib.contextmanager
def unix_socket(path: Path, group: int | None) -> Iterator[socket.socket]:
    """Yield a listening socket at *path*, which only this user (and *group*) can reach; `Locked` when one listens."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.closing(found):
        _free(path)
        before = os.umask(0o177)
        try:
            with reachable(path) as name:
                found.bind(name)
        finally:
            os.umask(before)
        if group is not None:
            os.chown(path, -1, group)
            path.chmod(0o660)
        found.listen(CONNECTIONS)
        try:
            yield found
        finally:
            path.unlink(missing_ok=True)


def _free(path: Path) -> None:
    """Remove the socket of a daemon that died; `Locked` for one that lives."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(2)
        try:
            with reachable(path) as name:
                probe.connect(name)
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise UsageError(f"{path}: expected a socket or nothing there: {error.strerror}") from None
    raise Locked(f"daemon: one listens at {path} already: `datasync daemon stop` ends it")


def serve(supervisor: Supervisor) -> None:
    """Run until SIGTERM, SIGINT or a request to stop."""
    asyncio.run(_serve(supervisor))


async def _serve(supervisor: Supervisor) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.set_default_executor(ThreadPoolExecutor(WORKERS, thread_name_prefix="request"))
    refusals = Refusals(supervisor.config)
    connections = Connections()
    guard = make_guard(supervisor, refusals, connections.arrived)
    server = supervisor.settings.server
    runner = web.AppRunner(
        make_app(supervisor, guard, stopped.set),
        access_log=None,
        handle_signals=False,
        keepalive_timeout=IDLE_SECONDS,
        max_field_size=HEADER_BYTES,
        max_line_size=HEADER_BYTES,
        shutdown_timeout=2,
    )
    with unix_socket(socket_path(supervisor.config, server), guard.authenticator.group) as local:
        await runner.setup()
        servers = [await loop.create_unix_server(connections.factory(runner), sock=local, start_serving=False)]
        if server.listen != "unix":
            host, port = _address(server.listen)
            context = tls_context(server)
            supervisor.on_reload.append(lambda _, settings: _renew_certificate(context, settings.server))
            servers.append(await _tls_server(loop, connections.factory(runner), context, (host, port)))
        supervisor.on_reload.append(partial(_renew_guard, guard, server))
        _handle_signals(loop, supervisor, stopped)
        await asyncio.to_thread(supervisor.start)
        for item in servers:  # only now: who is answered sees every mirror
            await item.start_serving()
        log("daemon ready", pid=os.getpid(), listen=server.listen)
        notify(READY="1", STATUS=f"{len(supervisor.mirrors())} mirrors, {len(supervisor.warms())} warms")
        await _until(stopped, refusals)
        notify(STOPPING="1")
        log("daemon stops")
        for item in servers:
            item.close()
        await asyncio.to_thread(supervisor.stop)
        await runner.cleanup()
        await asyncio.to_thread(refusals.flush)


async def _tls_server(
    loop: asyncio.AbstractEventLoop,
    factory: Callable[[], asyncio.BaseProtocol],
    context: ssl.SSLContext,
    address: tuple[str, int],
) -> asyncio.Server:
    return await loop.create_server(
        factory, *address, ssl=context, ssl_handshake_timeout=HEADER_SECONDS, start_serving=False
    )


def _handle_signals(loop: asyncio.AbstractEventLoop, supervisor: Supervisor, stopped: asyncio.Event) -> None:
    tasks: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(_reload(supervisor))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, reload)


async def _reload(supervisor: Supervisor) -> None:
    reloading()
    try:
        await asyncio.to_thread(manage, supervisor.config)
        await asyncio.to_thread(supervisor.reload)
    except DatasyncError as error:
        log("reload refused, the old settings stay", reason=str(error))
    notify(READY="1")


async def _until(stopped: asyncio.Event, refusals: Refusals) -> None:
    every = min(watchdog_seconds() or FLUSH_SECONDS, FLUSH_SECONDS)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), every)
            return
        notify(WATCHDOG="1")
        try:
            await asyncio.to_thread(refusals.flush)
        except DatasyncError:
            LOG.exception("refused requests could not be recorded")


Protocol = RequestHandler


class Connections:
    """Those that are open, and those whose first request has not come."""

    def __init__(self) -> None:
        self._open: set[Protocol] = set()
        self._waiting: set[Protocol] = set()

    def arrived(self, protocol: Protocol) -> None:
        """Note a whole request."""
        self._waiting.discard(protocol)

    def factory(self, runner: web.AppRunner) -> Callable[[], asyncio.BaseProtocol]:
        """Return what makes a connection's protocol, and closes it when its first request does not come in time."""

        def make() -> asyncio.BaseProtocol:
            server, loop = runner.server, asyncio.get_running_loop()
            assert server is not None
            protocol = server()
            self._open = {item for item in self._open if item.transport is not None} | {protocol}
            self._waiting.add(protocol)
            loop.call_later(HEADER_SECONDS, self._close_slow, protocol)
            if len(self._open) > CONNECTIONS:
                loop.call_soon(_close, protocol)
            return protocol

        return make

    def _close_slow(self, protocol: Protocol) -> None:
        if protocol in self._waiting:
            self._waiting.discard(protocol)
            _close(protocol)


def _close(protocol: Protocol) -> None:
    if protocol.transport is not None:
        protocol.transport.close()
