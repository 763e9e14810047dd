"""What each route does: ask the supervisor, or a service function on a worker thread."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from datasync.daemon import added, answers, openapi
from datasync.daemon.events import Bus, Event
from datasync.daemon.guards import error_event
from datasync.daemon.limits import RELEASES, STREAMS
from datasync.daemon.routes import STREAM
from datasync.daemon.supervisor import Supervisor
from datasync.errors import DatasyncError, Locked, StorageUnavailable, UsageError
from datasync.service import warm as warming
from datasync.service.borrow import borrowed
from datasync.service.daemon_settings import read_settings
from datasync.service.release import Asked, release
from datasync.service.session import Session

BEAT_SECONDS = 10.0  # an empty line, so that both ends see that the other one lives


class Handlers:
    """One method for each route."""

    def __init__(self, supervisor: Supervisor, stop: Callable[[], None]) -> None:
        self._supervisor, self._stop = supervisor, stop
        self._releases = asyncio.Semaphore(RELEASES)
        self._streams = 0

    async def health(self, request: web.Request, _: None) -> web.Response:
        """Answer."""
        return _json(answers.Health("ok"))

    async def ready(self, request: web.Request, _: None) -> web.Response:
        """Say whether the work has begun: every mirror and subscription has been tried once."""
        mirrors, warms = self._supervisor.mirrors(), self._supervisor.warms()
        begun = all(item.pushed_at or item.held or item.error for item in mirrors)
        begun = begun and all(item["ready_at"] or item["error"] for item in warms)
        return _json(answers.Health("ready" if begun else "starting"), 200 if begun else 503)

    async def metrics(self, request: web.Request, _: None) -> web.Response:
        """Return all metrics."""
        text = self._supervisor.metrics.text(self._supervisor.measured())
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def status(self, request: web.Request, _: None) -> web.Response:
        """Return everything."""
        return web.json_response(self._supervisor.status())

    async def mirrors(self, request: web.Request, _: None) -> web.Response:
        """Return the mirrors."""
        return web.json_response({"mirrors": [msgspec.to_builtins(item) for item in self._supervisor.mirrors()]})

    async def add_mirror(self, request: web.Request, body: answers.AddMirror) -> web.Response:
        """Add a mirror and begin with it."""
        if not os.path.isdir(body.path):  # a Path raises for a name that is too long
            raise UsageError(f"{body.path}: expected a directory")
        table: dict[str, Any] = {"path": body.path, "dataset": body.dataset, "shared": body.shared}
        config = self._supervisor.config
        read_settings(config, [*added.added_mirrors(config), table])
        await asyncio.to_thread(added.add, config, table)
        await asyncio.to_thread(self._supervisor.reload)
        return _json(answers.Done("added"), 201)

    async def remove_mirror(self, request: web.Request, _: None) -> web.Response:
        """Forget a mirror that was added."""
        await asyncio.to_thread(added.remove, self._supervisor.config, request.match_info["dataset"])
        await asyncio.to_thread(self._supervisor.reload)
        return _json(answers.Done("removed"))

    async def push_mirror(self, request: web.Request, _: None) -> web.Response:
        """Push now."""
        self._supervisor.mirror(request.match_info["dataset"]).push_now(confirm=False)
        return _json(answers.Done("begun"), 202)

    async def confirm_mirror(self, request: web.Request, _: None) -> web.Response:
        """Let the held loss through."""
        runner = self._supervisor.mirror(request.match_info["dataset"])
        if runner.status().held is None:
            raise Locked(f"mirror {runner.mirror.dataset!r}: nothing is held back")
        runner.push_now(confirm=True)
        return _json(answers.Done("confirmed"), 202)

    async def warms(self, request: web.Request, _: None) -> web.Response:
        """Return the subscriptions."""
        return web.json_response({"warms": self._supervisor.warms()})

    async def reload(self, request: web.Request, _: None) -> web.Response:
        """Read the settings anew."""
        await asyncio.to_thread(self._supervisor.reload)
        return _json(answers.Done("reloaded"))

    async def stop(self, request: web.Request, _: None) -> web.Response:
        """End, after this answer."""
        asyncio.get_running_loop().call_later(0.1, self._stop)
        return _json(answers.Done("stopping"), 202)

    async def openapi(self, request: web.Request, _: None) -> web.Response:
        """Return the API's description."""
        return web.json_response(openapi.document())

    async def release_key(self, request: web.Request, body: answers.KeyRequest) -> web.Response:
        """Lend a key."""
        asked = Asked(body.dataset, body.recipient, body.node, request["id"], request.remote or "local")
        async with self._releases:
            answer = await asyncio.to_thread(self._release, request["principal"], asked)
        return _json(answer)

    def _release(self, principal: Any, asked: Asked) -> answers.KeyAnswer:
        session = Session(self._supervisor.config)
        try:
            return release(session, principal, asked)
        finally:
            session.close()

    # streams

    async def events(self, request: web.Request, _: None) -> web.StreamResponse:
        """Stream what happens until the client goes."""
        async with self._stream(request, self._supervisor.bus) as (response, events):
            async for event in events:
                await _send(response, event)
        return response

    async def warm(self, request: web.Request, body: answers.WarmRequest) -> web.StreamResponse:
        """Warm a reference; stream how far it is, then where it is."""
        bus = Bus()
        async with self._stream(request, bus) as (response, events):
            work = asyncio.create_task(asyncio.to_thread(self._warm, body, bus, request["id"]))
            async for event in events:
                await _send(response, event)
                if event["type"] in ("ready", "error"):
                    break
            await work
        return response

    def _warm(self, body: answers.WarmRequest, bus: Bus, request: str) -> None:
        try:
            bus.tell("ready", **self._warmed(body, bus))
        except DatasyncError as error:
            event = error_event(error, request)
            bus.tell(event.pop("type"), **event)

    def _warmed(self, body: answers.WarmRequest, bus: Bus) -> dict[str, Any]:
        options = warming.WarmOptions(
            pin=body.pin or body.pin_seconds is not None,
            pin_seconds=body.pin_seconds,
            wait=body.wait,
            subset=body.subset,
            order=body.order,
        )

        def warn(text: str) -> None:
            bus.tell("warning", message=text)

        with borrowed(self._supervisor.config, body.reference, warn) as (session, exact):
            done = warming.warm(session, exact, _report(bus), lambda: bus.tell("waiting"), options)
        return {
            "dataset": done.dataset,
            "seq": done.seq,
            "snapshot": done.snapshot.hex(),
            "path": str(done.path),
            "total_files": done.files,
            "result": msgspec.to_builtins(done.result) if done.result is not None else None,
        }

    @asynccontextmanager
    async def _stream(
        self, request: web.Request, bus: Bus
    ) -> AsyncIterator[tuple[web.StreamResponse, AsyncIterator[Event]]]:
        if self._streams >= STREAMS:
            raise StorageUnavailable(f"{STREAMS} clients listen already: try again later")
        self._streams += 1
        headers = {"Content-Type": STREAM, "Cache-Control": "no-store", "X-Request-Id": request["id"]}
        response = web.StreamResponse(headers=headers)
        wake, loop = asyncio.Event(), asyncio.get_running_loop()

        def call() -> None:
            loop.call_soon_threadsafe(wake.set)

        try:
            with bus.listen(call) as listener:
                await response.prepare(request)
                yield response, _follow(listener.take, wake, response)
        finally:
            self._streams -= 1


async def _follow(
    take: Callable[[], list[Event]], wake: asyncio.Event, response: web.StreamResponse
) -> AsyncIterator[Event]:
    while True:
        try:
            await asyncio.wait_for(wake.wait(), BEAT_SECONDS)
        except TimeoutError:
            await response.write(b":\n\n")
        wake.clear()
        for event in take():
            yield event


async def _send(response: web.StreamResponse, event: Event) -> None:
    data = msgspec.json.encode(event)
    await response.write(b"event: " + str(event["type"]).encode() + b"\ndata: " + data + b"\n\n")


def _report(bus: Bus) -> Callable[[Any], None]:
    def report(progress: Any) -> None:
        bus.tell("progress", **{name: getattr(progress, name) for name in type(progress).__slots__})

    return report


def _json(value: msgspec.Struct, status: int = 200) -> web.Response:
    return web.json_response(msgspec.to_builtins(value), status=status)
