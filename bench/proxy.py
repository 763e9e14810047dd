"""A proxy on loopback before the server of a benchmark: it counts requests and bytes, adds latency, caps the bandwidth,
and answers 503 to everything while a storm lasts.

HTTP/1.1 is passed on unchanged, Host header included, so signatures hold. Latency is added once for each request, the
cap holds for both directions together. It runs in a thread of the benchmark's own process, so its CPU time is nobody's;
it shares the machine's cores all the same.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

READ_BYTES = 256 * 1024
SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>storm</Message></Error>"


@dataclass
class Proxy:
    """What goes through; `storm` may be switched at any time."""

    upstream: tuple[str, int]
    latency: float = 0.0
    rate: float | None = None  # bytes a second
    storm: bool = False
    port: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    bytes_in: int = 0  # to the server
    bytes_out: int = 0
    seconds: Counter[int] = field(default_factory=Counter)  # bytes of each second since the start
    _started: float = field(default_factory=time.monotonic)
    _free: float = 0.0

    def reset(self) -> None:
        """Count from nothing."""
        self.requests.clear()
        self.seconds.clear()
        self.refused = self.bytes_in = self.bytes_out = 0
        self._started = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since the count began."""
        return time.monotonic() - self._started

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the requests of one connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            there, back = await asyncio.open_connection(*self.upstream, limit=READ_BYTES)
            try:
                while await self._exchange(reader, writer, there, back):
                    pass
            finally:
                back.close()
        writer.close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        method, fields = head.split(b" ", 1)[0].decode(), _fields(head)
        self.requests[method] += 1
        await asyncio.sleep(self.latency)
        waits = b"expect" in fields
        if self.storm:
            return await self._refuse(reader, writer, fields, waits=waits)
        back.write(head)
        if not waits:
            await self._body(reader, back, fields, inward=True)
        while True:
            answer = await there.readuntil(b"\r\n\r\n")
            status = int(answer.split(b" ", 2)[1])
            writer.write(answer)
            if status != 100:
                break
            await writer.drain()
            await self._body(reader, back, fields, inward=True)
        found = _fields(answer)
        if method != "HEAD" and status not in (204, 304):
            await self._body(there, writer, found, inward=False)
        await writer.drain()
        return found.get(b"connection", b"").lower() != b"close" and not (waits and status >= 300)

    async def _refuse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fields: dict[bytes, bytes], *, waits: bool
    ) -> bool:
        self.refused += 1
        left = 0 if waits else int(fields.get(b"content-length", 0))
        while left:
            left -= len(await reader.read(min(left, READ_BYTES)))
        writer.write(
            b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n" % len(SLOW_DOWN)
        )
        writer.write(b"Connection: close\r\n\r\n" + SLOW_DOWN)
        await writer.drain()
        return False

    async def _body(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, fields: dict[bytes, bytes], *, inward: bool
    ) -> None:
        if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
            await self._chunks(source, target, inward=inward)
        else:
            await self._plain(source, target, int(fields.get(b"content-length", 0)), inward=inward)

    async def _chunks(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, inward: bool) -> None:
        while True:
            line = await source.readline()
            target.write(line)
            size = int(line.split(b";")[0], 16)
            await self._plain(source, target, size + 2, inward=inward)
            if not size:
                return

    async def _plain(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, left: int, *, inward: bool
    ) -> None:
        while left:
            data = await source.read(min(left, READ_BYTES))
            if not data:
                raise ConnectionError("cut off")
            left -= len(data)
            await self._pay(len(data), inward=inward)
            target.write(data)
            await target.drain()

    async def _pay(self, size: int, *, inward: bool) -> None:
        self.bytes_in += size if inward else 0
        self.bytes_out += 0 if inward else size
        self.seconds[int(self.now)] += size
        if self.rate is not None:
            now = time.monotonic()
            self._free = max(now, self._free) + size / self.rate
            await asyncio.sleep(self._free - now)


def _fields(head: bytes) -> dict[bytes, bytes]:
    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:] if line]
    return {name.strip().lower(): value.strip() for name, _, value in lines}


@contextmanager
def proxy(upstream: tuple[str, int], *, latency: float = 0.0, rate: float | None = None) -> Iterator[Proxy]:
    """Run a proxy until the end."""
    made = Proxy(upstream, latency, rate)
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def run() -> None:
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=READ_BYTES)
        made.port = server.sockets[0].getsockname()[1]
        started.set()

    def work() -> None:
        loop.run_until_complete(run())
        loop.run_forever()
        loop.run_until_complete(_end_tasks())
        loop.close()

    thread = threading.Thread(target=work, name="proxy", daemon=True)
    thread.start()
    started.wait()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
