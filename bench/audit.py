"""`python -m bench.audit`: a million events appended, verified, searched and exported; JSON and a table of figures.

    python -m bench.audit [--events 1000000] [--seconds 5] [--output FILE.json] [--directory DIR]

Each step is a process of its own, so its peak memory is its own. `fdatasync` alone, one writer and 64 waiting threads
are measured on the same disk: what one writer can do singly is what the disk can.
"""

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from datasync.audit.export.run import export
from datasync.audit.log import Log, draft
from datasync.audit.prove import prove_event
from datasync.audit.query import Wanted, select
from datasync.audit.seal import People, Person
from datasync.audit.segments import local_log
from datasync.audit.verify import verify_log
from datasync.crypto.notes import NoteKey
from datasync.service.audit_log import PRIMITIVES

SEED = bytes(range(32))
PEOPLE = 200  # persons who act
MONTHS = 4  # that the events are spread over
THREADS = 64  # that wait for a durable event at once
MIB = 1024 * 1024


def _people(root: Path) -> People:
    return People(root / "people", PRIMITIVES, SEED)


def _log(root: Path, now: Callable[[], int] | None = None) -> Log:
    return Log(root, NoteKey(SEED), PRIMITIVES, _people(root), **({"now": now} if now else {}))


def _event(number: int) -> Any:
    who = Person(f"user{number % PEOPLE}@example.org", issuer="https://idp.example.org", method="oidc", host="node")
    fields: dict[str, Any] = {
        "dataset": f"dataset-{number % 50}",
        "dataset_id": "ab" * 32,
        "snapshot": "cd" * 32,
        "snapshot_seq": number % 900 + 1,
        "bytes": 1_000_000 + number,
        "files": 20_000,
        "node": "dss1" + "x" * 58,
        "repository": "s3://acme-datasets/ds",
        "software": "0.1.0",
        "region": "eu-west-1",
    }
    return draft(("warm", "pull", "push", "look")[number % 4], "success", who, **fields)


def _ticks(events: int) -> Iterator[int]:
    """Yield a busy clock, 20 µs a tick, that leaps a month on after each part of the events."""
    now = 1_760_000_000_000_000
    for number in range(2 * events):
        now += 20 + (31 * 86_400_000_000 if number and number % (events // MONTHS) == 0 else 0)
        yield now


def append(root: Path, events: int) -> dict[str, Any]:
    """Append in batches."""
    ticks = _ticks(events)
    log = _log(root, lambda: next(ticks))
    drafts = [_event(number) for number in range(1000)]
    begin = time.perf_counter()
    for number in range(events):
        log.append(drafts[number % 1000], sync=False)
    log.flush()
    seconds = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in root.rglob("*.ndjson"))
    return {"append_seconds": seconds, "per_second": events / seconds, "bytes_per_event": size / events}


def singly(root: Path, seconds: float) -> dict[str, Any]:
    """Append events that are durable one by one: by one writer, and by many threads that wait."""
    fd = os.open(root / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(_: int) -> None:
        os.write(fd, b"x" * 1000)
        os.fdatasync(fd)

    raw = _count(seconds, write)
    log = _log(root / "one")
    one = _count(seconds, lambda number: log.append(_event(number), sync=True))
    shared = _log(root / "many")
    totals: list[float] = []

    def work() -> None:
        totals.append(_count(seconds, lambda number: shared.append(_event(number), sync=True)))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"fdatasync_per_second": raw, "one_writer_per_second": one, f"threads_{THREADS}_per_second": sum(totals)}


def _count(seconds: float, act: Callable[[int], Any]) -> float:
    begin, number = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        act(number)
        number += 1
    return number / (time.perf_counter() - begin)


def _directory(root: Path) -> Path:
    return next(path for path in root.iterdir() if (path / "key.pub").exists())


def verify(root: Path, _: int) -> dict[str, Any]:
    """Verify the whole log."""
    done = verify_log(PRIMITIVES, local_log(PRIMITIVES, _directory(root)))
    return {"events": done.size, "checkpoints": done.checkpoints}


def query(root: Path, _: int) -> dict[str, Any]:
    """Find everything that one person did."""
    people = _people(root)
    begin = time.perf_counter()
    tags = frozenset((key.month, key.tag) for key in people.all_keys() if key.subject == "user7@example.org")
    found = sum(1 for _ in select(local_log(PRIMITIVES, _directory(root)), Wanted(actors=tags)))
    return {"found": found, "query_seconds": time.perf_counter() - begin}


def prove(root: Path, events: int) -> dict[str, Any]:
    """Prove one event."""
    proof = prove_event(PRIMITIVES, local_log(PRIMITIVES, _directory(root)), events // 3)
    return {"hashes": len(proof["path"])}


class _Nowhere(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def _export(form: str) -> Callable[[Path, int], dict[str, Any]]:
    def act(root: Path, _: int) -> dict[str, Any]:
        files = local_log(PRIMITIVES, _directory(root))
        done = export(PRIMITIVES, [files], _people(root), form, _Nowhere())
        return {"events": done["events"], "bytes": done["bytes"]}

    return act


STEPS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "append": append,
    "verify": verify,
    "query": query,
    "prove": prove,
    **{f"export-{form}": _export(form) for form in ("jsonl", "csv", "parquet", "ocsf", "cef")},
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.audit")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--step", choices=[*STEPS, "singly"], help=argparse.SUPPRESS)
    return parser.parse_args()


def _step(name: str, root: Path, options: argparse.Namespace) -> None:
    """Do one step in this process and print its figures."""
    begin, used = time.perf_counter(), time.process_time()
    done = singly(root, options.seconds) if name == "singly" else STEPS[name](root, options.events)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - used}
    print(json.dumps({"step": name, **took, "peak_mib": peak, **done}))


def main() -> None:
    """Run the steps, each in a process of its own."""
    options = _options()
    if options.step:
        _step(options.step, options.directory, options)
        return
    with tempfile.TemporaryDirectory(prefix="datasync-audit-", dir=options.directory) as folder:
        figures = []
        for name in [*STEPS, "singly"]:
            place = Path(folder) / ("singly" if name == "singly" else "log")
            for path in (place, place / "one", place / "many"):
                path.mkdir(exist_ok=True) if name == "singly" or path == place else None
            command = [sys.executable, "-m", "bench.audit", "--step", name, "--directory", str(place)]
            command += ["--events", str(options.events), "--seconds", str(options.seconds)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures.append(json.loads(done.stdout))
            print("  ".join(f"{key} {_shown(value)}" for key, value in figures[-1].items()), flush=True)
    if options.output:
        options.output.write_text(json.dumps({"cores": os.cpu_count(), "steps": figures}, indent=1) + "\n")


def _shown(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
