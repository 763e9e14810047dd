"""The daemon's API in this process, over plain HTTP on loopback, for tests that send very many requests."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from datasync.daemon.guards import Guard
from datasync.daemon.limits import Rate
from datasync.daemon.peers import Authenticator
from datasync.daemon.refusals import Refusals
from datasync.daemon.server import make_app
from datasync.daemon.supervisor import Supervisor
from datasync.errors import NotAuthorized
from datasync.service.issuers import Issuers
from datasync.service.principal import Principal
from datasync.service.tokens import TokenBook

TOKEN = "this machine's own user"


class _Known(Authenticator):
    """Lets in who says `TOKEN`, as this machine's own user."""

    def remote(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> Principal:
        if authorization != f"Bearer {TOKEN}":
            raise NotAuthorized("unknown")
        return Principal("test", "os-user", "test", admin=True)


class _Patient(Rate):
    """No limit of requests."""

    def left(self, address: str) -> float:
        return 1e9


@contextmanager
def in_process_api(supervisor: Supervisor) -> Iterator[str]:
    """Yield the URL of the API of *supervisor*, whose work does not begin."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listening.getsockname()[1]}"
    known = _Known(TokenBook(supervisor.config), Issuers((), ()))
    guard = Guard(known, frozenset({host}), supervisor.metrics, Refusals(supervisor.config), lambda _: None)
    for name in ("_rate", "_wrong"):
        setattr(guard, name, _Patient(1, 1))

    async def run() -> None:
        runner = web.AppRunner(make_app(supervisor, guard, lambda: None), access_log=None)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        ready.set()

    def main() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(run())
        loop.run_forever()

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield f"http://{host}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        listening.close()
