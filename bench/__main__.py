"""`make bench`: push, push again, push an edit and bring back, for each tool in turn, through real S3 servers.

    python -m bench [--quick] [--set small …] [--server rclone …] [--tool datasync …] [--runs 3]
                    [--no-count] [--latency MS] [--rate MIB] [--storm SECONDS] [--output FILE.json] [--plot FILE.svg]

A proxy of ours counts requests and bytes. It takes as much CPU as a client does, so times come from rounds without
it, and counts from one more round (`--no-count` leaves it out). With `--latency`, which it adds to each request, or
`--rate`, to which it keeps all traffic together, every round goes through it. `--storm` answers 503 to everything for
so long in the middle of a push and draws the throughput. Prints a Markdown table of medians with each tool's ratio to
datasync, then what failed (exit 1); writes JSON and a plot when asked. `bench.rounds` says how a round is fair.
"""

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.data import deep_tree, shards, small_files, texts
from bench.measure import Sample
from bench.plot import bars
from bench.report import Key, Results, median, write_failures, write_json, write_table
from bench.rounds import SERVERS, SETTLE_SECONDS, Setting, run_round
from bench.storm import storm

SEED = 20261130
SETS = ("small", "shards", "texts", "deep", "versions")
TOOLS = ("floor", "floor-in-turn", "datasync", "restic", "rclone", "s5cmd")
GIB = 1024**3


def main() -> int:
    """Run the benchmark; 1 when a tool failed somewhere, after everything else was measured and told."""
    options = _options()
    results = Results()
    with tempfile.TemporaryDirectory(prefix="datasync-bench-") as folder:
        root = Path(folder)
        sets = {name: _make(root / "data" / name, name, options) for name in options.set}
        _check_space(root, options)
        setting = Setting(sets, options.tool, options.latency / 1000, _bytes(options.rate))
        time.sleep(SETTLE_SECONDS)
        for name in options.server:
            if options.storm:
                storm(SERVERS[name], root / f"{name}-storm", sets, options)
                continue
            for turn in range(options.runs):
                run_round(name, root / f"{name}-{turn}", setting, turn, results, counting=False)
            if options.count and not setting.shaped:
                counted = Results(failures=results.failures)
                run_round(name, root / f"{name}-counted", setting, 0, counted, counting=True)
                _note_counts(results.samples, counted.samples)
    if results.samples:
        write_table(results.samples)
        write_failures(results.failures)
    if options.output:
        write_json(options.output, results, options)
    if options.plot and results.samples:
        options.plot.write_text(_plot(results.samples))
    return 1 if results.failures else 0


def _plot(samples: dict[Key, list[Sample]]) -> str:
    groups: dict[str, list[tuple[str, float]]] = {}
    for (server, label, step, tool), found in samples.items():
        groups.setdefault(f"{label}, {step} ({server})", []).append((tool, median(found)["wall"]))
    return bars("Wall seconds, medians", groups)


def _bytes(mib: float | None) -> float | None:
    return None if mib is None else mib * 1024 * 1024


def _check_space(root: Path, options: argparse.Namespace) -> None:
    """Say so before anything is measured when one round will not fit."""
    data = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    needed, free = (len(options.tool) + 1) * data, shutil.disk_usage(root).free
    if needed > free:
        sys.exit(
            f"bench: {root}: {needed / GIB:.0f} GiB are needed, {free / GIB:.0f} GiB are free: set TMPDIR to a larger "
            "disk, or choose fewer sets (--set) or tools (--tool)"
        )


def _note_counts(samples: dict[Key, list[Sample]], counted: dict[Key, list[Sample]]) -> None:
    """Give the samples of each step the requests and bytes that the proxy counted for it."""
    for key, (seen, *_) in counted.items():
        if key not in samples:
            continue  # it failed in every other round
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


if __name__ == "__main__":
    sys.exit(main())
