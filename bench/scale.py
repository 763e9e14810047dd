"""`make bench-scale`: what grows with the number of entries. Time and peak memory of each command, a process each.

    python -m bench.scale [--entries 10000 --entries 1000000] [--files 1000000] [--directory DIR] [--output FILE.json]

`--entries`: a source of so many files that lie on no disk (tests/support/synthetic.py): all of a push but walking and
reading is real, and so is everything that is done with the snapshot. `--files`: so many real files of some hundred
bytes, pushed and warmed. Figures and what they mean are in docs/scale.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import Sample, measure
from datasync.config import Flags, load_config
from datasync.push.options import PushOptions
from datasync.service.push import push_directory
from datasync.service.session import TOOL, Session
from tests.support.synthetic import Forest

NAME = "forest"
RACY_SECONDS = 2.5
FILES_PER_DIRECTORY = 1_000


def main() -> None:
    """Measure, and print a table."""
    options = _options()
    if options.push:
        _push(options.push, options.changed)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="datasync-scale-", dir=options.directory) as folder:
        for kind, counts in (("synthetic", options.entries), ("files", options.files)):
            for count in counts:
                place = Path(folder) / f"{kind}-{count}"
                place.mkdir()
                steps = _synthetic(place, count) if kind == "synthetic" else _real(place, count)
                for step, sample in steps:
                    rows.append(_row(kind, count, step, sample))
                    print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
                _remove(place)
    _print(rows)
    if options.output:
        options.output.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scale")
    parser.add_argument("--entries", type=int, action="append", default=[])
    parser.add_argument("--files", type=int, action="append", default=[])
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--push", type=int, help=argparse.SUPPRESS)  # one push of a forest, in this process
    parser.add_argument("--changed", type=int, action="append", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.entries and not options.files:
        options.entries = [10_000, 100_000, 1_000_000]
    return options


def _environment(place: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place / "home"),
        "DATASYNC_REPOSITORY": str(place / "repository"),
        "DATASYNC_CACHE": str(place / "cache"),
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
    }


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "datasync.cli.main", *words]


def _synthetic(place: Path, files: int) -> Iterator[tuple[str, Sample]]:
    environment = _environment(place)
    (place / "home" / "source").mkdir(parents=True)
    measure(_command("init"), environment)
    push = [sys.executable, "-m", "bench.scale", "--push", str(files)]
    yield "push", measure(push, environment)
    yield "push again", measure(push, environment)
    yield "push, 1 file changed", measure([*push, "--changed", str(files // 2)], environment)
    for words in (
        ("status",),
        ("ls", "-R", NAME),
        ("ls", NAME, "directory-0000003"),
        ("diff", f"{NAME}@1", f"{NAME}@2"),
        ("verify",),
        ("du", NAME),
    ):
        yield " ".join(words), measure(_command(*words), environment)
    yield "forget", measure(_command("forget", f"{NAME}@1", "--yes"), environment)
    yield "prune -n", measure(_command("prune", NAME, "--no-repack", "-n"), environment)
    _age(place / "repository", 8)
    yield "prune", measure(_command("prune", NAME, "--no-repack"), environment)


def _age(repository: Path, days: float) -> None:
    """Make all packs so many days older, so that prune judges them."""
    for path in (repository / "d").glob("*/packs/*/*"):
        then = path.stat().st_mtime - days * 86_400
        os.utime(path, (then, then))


def _push(files: int, changed: list[int]) -> None:
    """Push a forest; make its data packs, as sparse files, when it is the first time."""
    forest = Forest(files, frozenset(changed))
    session = Session(load_config(Flags()))
    with forest.planted():
        source = Path(os.environ["HOME"]) / "source"
        done = push_directory(session, source, NAME, PushOptions(tool=TOOL), tag=None, report=lambda _: None)
    session.close()
    if done.new_dataset:
        forest.store_packs(Path(os.environ["DATASYNC_REPOSITORY"]), done.dataset_id)


def _real(place: Path, files: int) -> Iterator[tuple[str, Sample]]:
    environment = _environment(place)
    (place / "home").mkdir()
    source = place / NAME
    began = time.monotonic()
    _tiny_files(source, files)
    time.sleep(RACY_SECONDS)
    yield "(making the files)", Sample(time.monotonic() - began, 0.0, 0.0)
    measure(_command("init"), environment)
    push = _command("push", str(source))
    yield "push", measure(push, environment)
    yield "push again", measure(push, environment)
    _path(source, files // 2).write_bytes(b"other content")
    time.sleep(RACY_SECONDS)
    yield "push, 1 file changed", measure(push, environment)
    yield "verify --read-data", measure(_command("verify", "--read-data"), environment)
    os.sync()
    yield "warm", measure(_command("warm", f"{NAME}@1"), environment)
    yield "warm, 1 file changed", measure(_command("warm", NAME), environment)


def _path(source: Path, number: int) -> Path:
    return source / f"directory-{number // FILES_PER_DIRECTORY:05}" / f"file-{number % FILES_PER_DIRECTORY:03}"


def _tiny_files(source: Path, files: int) -> None:
    for number in range(files):
        path = _path(source, number)
        if number % FILES_PER_DIRECTORY == 0:
            path.parent.mkdir(parents=True)
        with open(path, "wb", buffering=0) as file:
            file.write(b"file %d: " % number + os.urandom(100).hex().encode())


def _row(kind: str, count: int, step: str, sample: Sample) -> dict[str, Any]:
    figures = {"wall": round(sample.wall, 2), "cpu": round(sample.cpu, 2), "memory": round(sample.memory)}
    return {"source": kind, "entries": count, "step": step, **figures}


def _print(rows: list[dict[str, Any]]) -> None:
    print("\n| source | files | step | wall s | CPU s | peak MiB |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['source']} | {row['entries']:,} | {' | '.join(str(row[key]) for key in list(row)[2:])} |")


def _remove(place: Path) -> None:
    subprocess.run(["chmod", "-R", "u+rwX", str(place)], check=True)  # views are read-only
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
