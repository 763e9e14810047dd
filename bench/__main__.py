"""`make bench`: push, push again and bring back, for each tool in turn, through rclone's S3 server and SeaweedFS.

    python -m bench [--files 20000] [--shards 4] [--runs 3] [--server rclone --server seaweedfs] [--output FILE.json]

Prints a Markdown table of medians, with each peer's ratio to datasync; writes JSON when asked.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from bench.data import shards, small_files
from bench.measure import Sample, measure
from bench.tools import Tool, all_tools
from tests.support import servers

SEED = 20261130
SETTLE_SECONDS = 3  # longer than the racy window, so the unchanged push is one

Key = tuple[str, str, str, str]  # server, data set, step, tool


def main() -> None:
    """Run the benchmark."""
    options = _options()
    samples: dict[Key, list[Sample]] = {}
    with tempfile.TemporaryDirectory(prefix="datasync-bench-") as folder:
        root = Path(folder)
        sets = _data(root / "data", options)
        time.sleep(SETTLE_SECONDS)
        for name in options.server:
            for turn in range(options.runs):
                _round(name, root / f"{name}-{turn}", sets, samples)
    _print(samples)
    if options.output:
        rows = [
            dict(zip(("server", "set", "step", "tool"), key, strict=True), **_median(found))
            for key, found in samples.items()
        ]
        Path(options.output).write_text(
            json.dumps({"cores": os.cpu_count(), "runs": options.runs, "rows": rows}, indent=1) + "\n"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--server", action="append", choices=["rclone", "seaweedfs"])
    parser.add_argument("--output")
    options = parser.parse_args()
    options.server = options.server or ["rclone", "seaweedfs"]
    return options


def _data(root: Path, options: argparse.Namespace) -> dict[str, Path]:
    sets = {}
    if options.files:
        sets["small"] = root / "small"
        small_files(sets["small"], options.files, SEED)
    if options.shards:
        sets["shards"] = root / "shards"
        shards(sets["shards"], options.shards, SEED)
    return sets


def _round(name: str, folder: Path, sets: dict[str, Path], samples: dict[Key, list[Sample]]) -> None:
    start = {"rclone": servers.rclone, "seaweedfs": servers.seaweedfs}[name]
    folder.mkdir(parents=True)
    with start() as server:
        server.make_bucket("bench")
        for tool in all_tools(server, folder, "bench"):
            for command in tool.prepare:
                measure(tool.fill(command, source="", target="", name=""), tool.environment)
            for label, source in sets.items():
                for step, found in _steps(tool, label, source, folder).items():
                    samples.setdefault((name, label, step, tool.name), []).append(found)
    _remove(folder)


def _steps(tool: Tool, label: str, source: Path, folder: Path) -> dict[str, Sample]:
    target = folder / f"{tool.name.split()[0]}-{label}"
    values = {"source": str(source), "target": str(target), "name": label}
    push = tool.fill(tool.push, **values)
    found = {"push": measure(push, tool.environment), "push again": measure(push, tool.environment)}
    os.sync()  # nobody pays for another's dirty pages
    found["bring back"] = measure(tool.fill(tool.pull, **values), tool.environment)
    return found


def _remove(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)  # views are read-only
    shutil.rmtree(folder)


def _median(found: list[Sample]) -> dict[str, float]:
    return {
        "wall": round(statistics.median(item.wall for item in found), 2),
        "cpu": round(statistics.median(item.cpu for item in found), 2),
        "memory": round(max(item.memory for item in found)),
    }


def _print(samples: dict[Key, list[Sample]]) -> None:
    print("\n| server | data | step | tool | wall s | CPU s | peak MiB | wall / datasync | CPU / datasync |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (server, label, step, tool), found in sorted(samples.items()):
        mine, its = _median(samples[server, label, step, "datasync"]), _median(found)
        ratios = [f"{its[key] / mine[key]:.2f}" if mine[key] else "-" for key in ("wall", "cpu")]
        figures = [f"{its['wall']:.2f}", f"{its['cpu']:.2f}", f"{its['memory']:.0f}", *ratios]
        print(f"| {' | '.join([server, label, step, tool, *figures])} |")


if __name__ == "__main__":
    main()
