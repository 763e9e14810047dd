"""Peak memory does not grow with the data: a gibibyte of shards, and a hundred thousand small files."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.cli import DATASET, Machine
from tests.support.trees import MIB, content

BUDGET_BYTES = 400 * MIB
# The peak of this program alone: what `ru_maxrss` says of a child begins with the peak of the process that started it.
MEASURED = """
import atexit
import sys
from pathlib import Path
from datasync.cli.main import main
sys.argv = ["datasync", *sys.argv[2:]]
atexit.register(lambda: print(Path("/proc/self/status").read_text(), file=sys.stderr))
main()
"""


def peak_bytes(machine: Machine, *arguments: str | Path) -> int:
    done = machine.run(*arguments, command=(sys.executable, "-c", MEASURED, "measured"))
    found = re.search(r"VmHWM:\s+(\d+) kB", done.stderr)
    assert found is not None
    peak = int(found[1]) * 1024
    print(f"{arguments[0]}: peak of {peak / MIB:.0f} MiB")
    return peak


def check_peaks(machine: Machine, source: Path) -> None:
    assert peak_bytes(machine, "push", source) < BUDGET_BYTES
    assert peak_bytes(machine, "push", source) < BUDGET_BYTES
    assert peak_bytes(machine, "warm", DATASET) < BUDGET_BYTES


def test_a_gibibyte_of_shards_fits_into_the_budget(machine: Machine, scratch: Path) -> None:
    source = scratch / DATASET
    source.mkdir()
    for shard in range(8):
        with (source / f"shard-{shard}").open("wb") as file:
            for part in range(16):
                file.write(content(16 * shard + part, 8 * MIB))
    assert sum(path.stat().st_size for path in source.iterdir()) >= 1024 * MIB
    check_peaks(machine, source)


def make_small_files(source: Path, count: int) -> None:
    for folder in range(count // 1000):
        path = source / f"folder-{folder:03}"
        path.mkdir(parents=True)
        for number in range(1000):
            (path / f"file-{number:03}").write_bytes(b"%d of %d, and some more of the same" % (number, folder) * 8)


@pytest.mark.long
def test_a_hundred_thousand_small_files_fit_into_the_budget(machine: Machine, scratch: Path) -> None:
    make_small_files(scratch / DATASET, 100_000)
    check_peaks(machine, scratch / DATASET)


def test_ten_thousand_small_files_fit_into_the_budget(machine: Machine, scratch: Path) -> None:
    make_small_files(scratch / DATASET, 10_000)
    check_peaks(machine, scratch / DATASET)
