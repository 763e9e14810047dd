"""One round: every tool does all steps with every data set, through one server.

What would favour a tool is taken away. Each round begins with another tool. Dirty pages are written out before each
step. Before a set is brought back the server is killed and started again, so it has read and hashed no tool's objects;
`bring back again` is a second node, whose objects the server knows. Nothing is deleted, since ext4 passes over inodes
that were deleted in the last minutes, which costs those who come next; files that are not needed any more are emptied,
so the disk and the page cache hold one round. A step that fails ends its tool's work on that set, and is reported.
"""

import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from bench.data import edit
from bench.measure import measure
from bench.proxy import Proxy, proxy
from bench.report import Failure, Results
from bench.tools import Tool, all_tools
from tests.support.servers import Restartable, restartable_rclone, restartable_seaweedfs

SETTLE_SECONDS = 3  # longer than the racy window, so the unchanged push is one
BUCKET = "bench"
SERVERS: dict[str, Callable[[Path], AbstractContextManager[Restartable]]] = {
    "rclone": restartable_rclone,
    "seaweedfs": restartable_seaweedfs,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What all rounds have in common: data sets by name, tools, seconds of latency and bytes a second of the proxy."""

    sets: dict[str, Path]
    tools: list[str]
    latency: float = 0.0
    rate: float | None = None

    @property
    def shaped(self) -> bool:
        """Whether every round has to go through the proxy."""
        return bool(self.latency or self.rate)


def run_round(name: str, folder: Path, setting: Setting, turn: int, results: Results, *, counting: bool) -> None:
    """Have all tools do everything through the server *name*; with *counting*, through the proxy."""
    folder.mkdir(parents=True)
    with SERVERS[name](folder / "server") as server:
        server.place.make_bucket(BUCKET)
        place = urlsplit(server.place.endpoint)
        upstream = (place.hostname or "", place.port or 0)
        with proxy(upstream, latency=setting.latency, rate=setting.rate) as between:
            seen = server.place
            if counting or setting.shaped:
                seen = replace(seen, endpoint=f"http://127.0.0.1:{between.port}")
            tools = all_tools(seen, folder, BUCKET, setting.tools)
            for tool in tools[turn % len(tools) :] + tools[: turn % len(tools)]:
                _Work(tool, name, folder, server, between, results).do(setting.sets)
    empty(folder)


@dataclass(slots=True)
class _Work:
    tool: Tool
    server_name: str
    folder: Path
    server: Restartable
    between: Proxy
    results: Results

    def do(self, sets: dict[str, Path]) -> None:
        for command in self.tool.prepare:
            measure(self.tool.fill(command, source="", target="", name=""), self.tool.environment)
        for turn, (label, source) in enumerate(sets.items()):
            step = ""
            try:
                for step, command in self._steps(label):
                    if "edited" in step:
                        edit(source, turn + len(self.results.samples))
                        time.sleep(SETTLE_SECONDS)
                    self._step(label, step, command, source)
            except RuntimeError as error:
                self.results.failures.append(Failure(self.server_name, label, step, self.tool.name, str(error)))
                print(f"{self.server_name} {label} {step} {self.tool.name} FAILED: {error}", file=sys.stderr)

    def _steps(self, label: str) -> list[tuple[str, list[str]]]:
        again = self.tool.again or self.tool.push
        edited = [("push, 1 % edited", again)] if label == "versions" else []
        back = [("bring back", self.tool.pull), ("bring back again", self.tool.pull)]
        return [("push", self.tool.push), ("push again", again), *edited, *back]

    def _step(self, label: str, step: str, command: list[str], source: Path) -> None:
        short = self.tool.name.split()[0].strip(",")
        target = self.folder / f"{short}-{label}-{step.replace(' ', '-')}"
        if step == "bring back":
            self.server.kill()
            self.server.start()
        os.sync()  # nobody pays for another's dirty pages
        self.between.reset()
        done = measure(
            self.tool.fill(command, source=str(source), target=str(target), name=label), self.tool.environment
        )
        seen = self.between
        counted = replace(done, requests=seen.requests.total(), bytes=seen.bytes_in + seen.bytes_out)
        key = (self.server_name, label, step, self.tool.name)
        self.results.samples.setdefault(key, []).append(counted)
        print(f"{' '.join(key)}: {done.wall:.2f} s, CPU {done.cpu:.2f} s", file=sys.stderr, flush=True)
        empty(target)


def empty(folder: Path) -> None:
    """Give the blocks of all files in *folder* back, and make its directories removable; names and inodes stay."""
    for path, _, names in os.walk(folder):
        os.chmod(path, 0o700)  # views are read-only
        for name in names:
            file = os.path.join(path, name)
            status = os.lstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_size:
                os.chmod(file, 0o600)
                os.truncate(file, 0)
