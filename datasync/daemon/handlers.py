"""What each route does: ask the supervisor, or a service function on a worker thread."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from datasync.daemon import added, answers, openapi
from datasync.daemon.commands import checked, run
from datasync.daemon.events import Bus, Event, Listener
from datasync.daemon.guards import error_event
from datasync.daemon.journal import LOG
from datasync.daemon.limits import BEAT_SECONDS, COMMANDS, RELEASES, STREAMS
from datasync.daemon.routes import STREAM
from datasync.daemon.supervisor import Supervisor
from datasync.errors import DatasyncError, Locked, StorageUnavailable, UsageError
from datasync.service import warm as warming
from datasync.service.borrow import borrowed
from datasync.service.daemon_rights import manage
from datasync.service.daemon_settings import read_settings
from datasync.service.release import Asked, release
from datasync.service.session import Session


class Handlers:
    """One method for each route."""

    def __init__(self, supervisor: Supervisor, stop: Callable[[], None]) -> None:
        self._supervisor, self._stop = supervisor, stop
        self._releases = asyncio.Semaphore(RELEASES)
        self._adding = asyncio.Lock()  # the file of added mirrors is read, changed and written
        self._streams = self._commands = 0

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
        await self._manage(request, body.dataset)
        table: dict[str, Any] = {"path": body.path, "dataset": body.dataset, "shared": body.shared}
        async with self._adding:
            await asyncio.to_thread(self._add, table)
        return _json(answers.Done("added"), 201)

    def _add(self, table: dict[str, Any]) -> None:
        config = self._supervisor.config
        read_settings(config, [*added.added_mirrors(config), table])
        added.add(config, table)
        self._supervisor.reload()

    async def remove_mirror(self, request: web.Request, _: None) -> web.Response:
        """Forget a mirror that was added."""
        await self._manage(request, request.match_info["dataset"])
        async with self._adding:
            await asyncio.to_thread(added.remove, self._supervisor.config, request.match_info["dataset"])
            await asyncio.to_thread(self._supervisor.reload)
        return _json(answers.Done("removed"))

    async def push_mirror(self, request: web.Request, _: None) -> web.Response:
        """Push now."""
        await self._manage(request, request.match_info["dataset"])
        run = self._supervisor.mirror(request.match_info["dataset"]).push_now(confirm=False)
        return _json(answers.Begun("begun", run), 202)

    async def confirm_mirror(self, request: web.Request, _: None) -> web.Response:
        """Let the held loss through."""
        await self._manage(request, request.match_info["dataset"])
        runner = self._supervisor.mirror(request.match_info["dataset"])
        if runner.status().held is None:
            raise Locked(f"mirror {runner.mirror.dataset!r}: nothing is held back")
        return _json(answers.Begun("confirmed", runner.push_now(confirm=True)), 202)

    async def warms(self, request: web.Request, _: None) -> web.Response:
        """Return the subscriptions."""
        return web.json_response({"warms": self._supervisor.warms()})

    async def reload(self, request: web.Request, _: None) -> web.Response:
        """Read the settings anew."""
        await self._manage(request)
        restart = await asyncio.to_thread(self._supervisor.reload)
        return _json(answers.Reloaded("reloaded", restart))

    async def stop(self, request: web.Request, _: None) -> web.Response:
        """End, after this answer."""
        await self._manage(request)
        asyncio.get_running_loop().call_later(0.1, self._stop)
        return _json(answers.Done("stopping"), 202)

    async def _manage(self, request: web.Request, dataset: str | None = None) -> None:
        """Refuse whom a policy in force does not let manage this daemon."""
        await asyncio.to_thread(manage, self._supervisor.config, request["principal"], dataset)

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
        """Stream what happens from the first event, `listening`, on until the client goes."""
        async with self._stream(request, self._supervisor.bus) as stream:
            await _send(stream.response, {"type": "listening", "number": 0})
            async for event in stream.events():
                await _send(stream.response, event)
        return stream.response

    async def command(self, request: web.Request, body: answers.CommandRequest) -> web.StreamResponse:
        """Run a command in a process of its own; stream what it prints."""
        words = checked(body.arguments)
        if not request["principal"].own:  # it looks with this machine's identity, whoever asks
            await self._manage(request)
        await self._manage(request)
        if self._commands >= COMMANDS:
            raise StorageUnavailable(f"{COMMANDS} commands run already: try again later")
        self._commands += 1
        try:
            response = await self._prepared(request)
            async with aclosing(run(words, self._supervisor.arguments)) as lines:
                async for line in lines:
                    await response.write(b"data: " + line + b"\n\n" if line else b":\n\n")
            return response
        finally:
            self._commands -= 1

    async def warm(self, request: web.Request, body: answers.WarmRequest) -> web.StreamResponse:
        """Warm a reference; stream how far it is, then where it is."""
        bus = Bus()
        async with self._stream(request, bus) as stream:
            work = asyncio.create_task(asyncio.to_thread(self._warm, body, bus, request["id"]))
            async for event in stream.events(work):
                await _send(stream.response, event)
            await _send(stream.response, await work)  # never through the queue, which may be full
        return stream.response

    def _warm(self, body: answers.WarmRequest, bus: Bus, request: str) -> Event:
        """Return the last event, whatever happens: the client waits for it."""
        try:
            return {"type": "ready", **self._warmed(body, bus)}
        except DatasyncError as error:
            return error_event(error, request)
        except Exception as error:  # noqa: BLE001 (told to the client, and to the log)
            LOG.exception("warm failed", extra={"fields": {"request": request}})
            return error_event(error, request)

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
            done = warming.warm(session, exact, _report(bus, self._supervisor), lambda: bus.tell("waiting"), options)
        return {
            "dataset": done.dataset,
            "seq": done.seq,
            "snapshot": done.snapshot.hex(),
            "path": str(done.path),
            "total_files": done.files,
            "result": msgspec.to_builtins(done.result) if done.result is not None else None,
        }

    @asynccontextmanager
    async def _stream(self, request: web.Request, bus: Bus) -> AsyncIterator["Stream"]:
        if self._streams >= STREAMS:
            raise StorageUnavailable(f"{STREAMS} clients listen already: try again later")
        self._streams += 1
        wake, loop = asyncio.Event(), asyncio.get_running_loop()

        def call() -> None:
            loop.call_soon_threadsafe(wake.set)

        try:
            with bus.listen(call) as listener:
                yield Stream(await self._prepared(request), listener, wake)
        finally:
            self._streams -= 1

    @staticmethod
    async def _prepared(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": STREAM, "Cache-Control": "no-store", "X-Request-Id": request["id"]}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        return response


class Stream:
    """An answer that goes on, and what it tells."""

    def __init__(self, response: web.StreamResponse, listener: Listener, wake: asyncio.Event) -> None:
        self.response, self._listener, self._wake = response, listener, wake

    async def events(self, work: "asyncio.Task[Event] | None" = None) -> AsyncIterator[Event]:
        """Yield what happens until *work* is done, or for ever."""
        if work is not None:
            work.add_done_callback(lambda _: self._wake.set())
        over = False
        while not over:
            try:
                await asyncio.wait_for(self._wake.wait(), BEAT_SECONDS)
            except TimeoutError:
                await self.response.write(b":\n\n")
            self._wake.clear()
            over = work is not None and work.done()  # asked before the queue is emptied: nothing told before is lost
            for event in self._listener.take():
                yield event


async def _send(response: web.StreamResponse, event: Event) -> None:
    data = msgspec.json.encode(event)
    await response.write(b"event: " + str(event["type"]).encode() + b"\ndata: " + data + b"\n\n")


def _report(bus: Bus, supervisor: Supervisor) -> Callable[[Any], None]:
    def report(progress: Any) -> None:
        if supervisor.stopping:
            raise StorageUnavailable("the daemon stops: run the same line again")
        bus.tell("progress", **{name: getattr(progress, name) for name in type(progress).__slots__})

    return report


def _json(value: msgspec.Struct, status: int = 200) -> web.Response:
    return web.json_response(msgspec.to_builtins(value), status=status)
