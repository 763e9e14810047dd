"""`make bench`: push, push again, push an edit and bring back, for each tool in turn, through real S3 servers.

    python -m bench [--quick] [--set small …] [--server rclone …] [--tool datasync …] [--runs 3]
                    [--no-count] [--latency MS] [--rate MIB] [--storm SECONDS] [--output FILE.json] [--plot FILE.svg]

A proxy of ours counts requests and bytes. It takes as much CPU as a client does, so times come from rounds without
it, and counts from one more round (`--no-count` leaves it out). With `--latency`, which it adds to each request, or
`--rate`, to which it keeps all traffic together, every round goes through it. `--storm` answers 503 to everything for
so long in the middle of a push and draws the throughput. Prints a Markdown table of medians with each tool's ratio to
datasync; writes JSON when asked.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from bench.data import deep_tree, edit, shards, small_files, texts
from bench.measure import Sample, measure
from bench.proxy import Proxy, proxy
from bench.report import Key, write_json, write_table
from bench.storm import storm
from bench.tools import Tool, all_tools
from tests.support import servers
from tests.support.servers import S3Server

SEED = 20261130
SETTLE_SECONDS = 3  # longer than the racy window, so the unchanged push is one
SETS = ("small", "shards", "texts", "deep", "versions")
TOOLS = ("floor", "datasync", "restic", "rclone", "s5cmd")


def main() -> None:
    """Run the benchmark."""
    options = _options()
    samples: dict[Key, list[Sample]] = {}
    shaped = bool(options.latency or options.rate)
    with tempfile.TemporaryDirectory(prefix="datasync-bench-") as folder:
        root = Path(folder)
        sets = {name: _make(root / "data" / name, name, options) for name in options.set}
        time.sleep(SETTLE_SECONDS)
        for name in options.server:
            if options.storm:
                storm(_server(name), root / f"{name}-storm", sets, options)
                continue
            for turn in range(options.runs):
                _round(name, root / f"{name}-{turn}", sets, options, samples, turn=turn, through_proxy=shaped)
            if options.count and not shaped:
                counted: dict[Key, list[Sample]] = {}
                try:
                    _round(name, root / f"{name}-counted", sets, options, counted, turn=0, through_proxy=True)
                except RuntimeError as error:  # a tool failed: the times that were taken are good all the same
                    print(f"{name}: the counting round stopped, counts are missing: {error}", file=sys.stderr)
                _note_counts(samples, counted)
        _make_removable(root)  # only now: ext4 passes over inodes that were deleted in the last minutes, which costs
    if samples:
        write_table(samples)
    if options.output:
        write_json(options.output, samples, options)


def _note_counts(samples: dict[Key, list[Sample]], counted: dict[Key, list[Sample]]) -> None:
    """Give the samples of each step the requests and bytes that the proxy counted for it."""
    for key, (seen, *_) in counted.items():
        samples[key] = [replace(item, requests=seen.requests, bytes=seen.bytes) for item in samples[key]]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--quick", action="store_true", help="small sets, one run, rclone's server: some minutes")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--server", action="append", choices=["rclone", "seaweedfs"])
    parser.add_argument("--set", action="append", choices=SETS)
    parser.add_argument("--tool", action="append", choices=TOOLS)
    parser.add_argument("--no-count", dest="count", action="store_false", help="no round through the counting proxy")
    parser.add_argument("--latency", type=float, default=0.0, metavar="MS")
    parser.add_argument("--rate", type=float, metavar="MIB", help="MiB a second, both directions together")
    parser.add_argument("--storm", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.files, options.shards, options.runs = 2_000, 1, 1
        options.set = options.set or ["small", "shards", "texts"]
    options.server = options.server or (["rclone"] if options.quick or options.storm else ["rclone", "seaweedfs"])
    options.set = options.set or list(SETS)
    options.tool = options.tool or list(TOOLS)
    return options


def _make(root: Path, name: str, options: argparse.Namespace) -> Path:
    if name == "shards":
        shards(root, options.shards, SEED)
    else:
        make = {"small": small_files, "versions": small_files, "texts": texts, "deep": deep_tree}[name]
        make(root, options.files // (1 if name == "small" else 4), SEED)
    return root


def _server(name: str) -> Callable[[], AbstractContextManager[S3Server]]:
    return {"rclone": servers.rclone, "seaweedfs": servers.seaweedfs}[name]


def _round(
    name: str,
    folder: Path,
    sets: dict[str, Path],
    options: argparse.Namespace,
    samples: dict[Key, list[Sample]],
    *,
    turn: int,
    through_proxy: bool,
) -> None:
    """Have every tool do all steps; each turn begins with another tool, so that none always meets a fresh machine."""
    folder.mkdir(parents=True)
    with _server(name)() as server:
        server.make_bucket("bench")
        place = urlsplit(server.endpoint)
        rate = None if options.rate is None else options.rate * 1024 * 1024
        upstream = (place.hostname or "", place.port or 0)
        with proxy(upstream, latency=options.latency / 1000, rate=rate) as between:
            seen = replace(server, endpoint=f"http://127.0.0.1:{between.port}") if through_proxy else server
            tools = all_tools(seen, folder, "bench", options.tool)
            for tool in tools[turn % len(tools) :] + tools[: turn % len(tools)]:
                _tool(tool, name, folder, sets, between, samples)


def _tool(
    tool: Tool, server: str, folder: Path, sets: dict[str, Path], between: Proxy, samples: dict[Key, list[Sample]]
) -> None:
    for command in tool.prepare:
        measure(tool.fill(command, source="", target="", name=""), tool.environment)
    for turn, (label, source) in enumerate(sets.items()):
        target = folder / f"{tool.name.split()[0].strip(',')}-{label}"
        values = {"source": str(source), "target": str(target), "name": label}
        steps = [("push", tool.push), ("push again", tool.again or tool.push)]
        if label == "versions":
            steps.append(("push, 1 % edited", tool.again or tool.push))
        for step, command in [*steps, ("bring back", tool.pull)]:
            if "edited" in step:
                edit(source, turn + len(samples))
                time.sleep(SETTLE_SECONDS)
            os.sync()  # nobody pays for another's dirty pages
            between.reset()
            done = measure(tool.fill(command, **values), tool.environment)
            counted = replace(done, requests=between.requests.total(), bytes=between.bytes_in + between.bytes_out)
            samples.setdefault((server, label, step, tool.name), []).append(counted)
            print(f"{server} {label} {step} {tool.name}: {done.wall:.2f} s", file=sys.stderr, flush=True)


def _make_removable(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)  # views are read-only


if __name__ == "__main__":
    main()
