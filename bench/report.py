"""Tables and JSON of what was measured: medians, and each tool's ratio to datasync in the same run."""

import argparse
import json
import os
import platform
import statistics
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.measure import Sample

Key = tuple[str, str, str, str]  # server, data set, step, tool
MIB = 1024 * 1024


class Failure(NamedTuple):
    """A step that a tool did not do, and its last words."""

    server: str
    set: str
    step: str
    tool: str
    words: str


@dataclass(slots=True)
class Results:
    """What was measured, and what failed."""

    samples: dict[Key, list[Sample]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


def median(found: list[Sample]) -> dict[str, float]:
    """Return the medians of *found*; of memory the peak."""
    return {
        "wall": round(statistics.median(item.wall for item in found), 2),
        "cpu": round(statistics.median(item.cpu for item in found), 2),
        "memory": round(max(item.memory for item in found)),
        "requests": round(statistics.median(item.requests for item in found)),
        "bytes": round(statistics.median(item.bytes for item in found)),
    }


def write_table(samples: dict[Key, list[Sample]]) -> None:
    """Print a Markdown table."""
    print("\n| server | data | step | tool | wall s | CPU s | peak MiB | requests | MiB | wall ratio | CPU ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for (server, label, step, tool), found in sorted(samples.items()):
        its, mine = median(found), samples.get((server, label, step, "datasync"))
        base = median(mine) if mine else {}
        ratios = [f"{its[key] / base[key]:.2f}" if base.get(key) else "-" for key in ("wall", "cpu")]
        figures = [f"{its['wall']:.2f}", f"{its['cpu']:.2f}", f"{its['memory']:.0f}", f"{its['requests']:,.0f}"]
        traffic = f"{its['bytes'] / MIB:,.1f}"
        print(f"| {' | '.join([server, label, step, tool, *figures, traffic, *ratios])} |")


def write_failures(failures: list[Failure]) -> None:
    """Print what failed: those steps and the ones after them are missing in the table, in that round."""
    for failure in failures:
        print(f"\nFAILED: {' '.join(failure[:4])}: {failure.words}")


def write_json(path: Path, results: Results, options: argparse.Namespace) -> None:
    """Write the medians and the single runs' seconds with what is needed to understand them."""
    names = ("server", "set", "step", "tool")
    rows = [
        dict(zip(names, key, strict=True)) | median(found) | {"walls": [round(item.wall, 2) for item in found]}
        for key, found in results.samples.items()
    ]
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "runs": options.runs,
        "latency_ms": options.latency,
        "rate_mib": options.rate,
    }
    failed = [failure._asdict() for failure in results.failures]
    path.write_text(json.dumps(about | {"rows": rows, "failures": failed}, indent=1) + "\n")
