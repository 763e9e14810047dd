"""Memory does not grow with the number of entries, and a change costs the pages it touches: on a source of any number
of files that exist on no disk (tests/support/synthetic.py).
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datasync.push.links import LinkGroups
from datasync.push.scan import Found
from tests.support.cli import DATASET, Machine
from tests.support.synthetic import Forest, path
from tests.support.trees import MIB

FILES = 40_000
GROWTH_BYTES = 48 * MIB  # from a tenth of the files to all of them, of a process that takes 60 to 100 MiB
CHILD = """
import sys
from pathlib import Path
from datasync.config import Flags, load_config
from datasync.push.options import PushOptions
from datasync.service.push import push_directory
from datasync.service.session import Session
from tests.support.synthetic import Forest
files, changed, source = int(sys.argv[2]), frozenset(map(int, sys.argv[3].split())), Path(sys.argv[4])
with Forest(files, changed).planted():
    session = Session(load_config(Flags()))
    done = push_directory(session, source, "data", PushOptions(), tag=None, report=lambda _: None)
    session.close()
print(Path("/proc/self/status").read_text(), file=sys.stderr)
"""
COMMAND = """
import atexit
import sys
from pathlib import Path
from datasync.cli.main import main
sys.argv = ["datasync", *sys.argv[2:]]
atexit.register(lambda: print(Path("/proc/self/status").read_text(), file=sys.stderr))
main()
"""


def peak(machine: Machine, program: str, *arguments: str | Path) -> int:
    done = machine.run(*arguments, command=(sys.executable, "-c", program, "measured"))
    found = re.search(r"VmHWM:\s+(\d+) kB", done.stderr)
    assert found is not None
    return int(found[1]) * 1024


def peaks(machine: Machine, source: Path, files: int) -> Iterator[tuple[str, int]]:
    """Push the forest three times, the last with one file changed; look at it in every way."""
    for changed in ("", "", str(files // 2)):
        yield f"push {changed}", peak(machine, CHILD, str(files), changed, source)
    with machine.session() as session:
        Forest(files).store_packs(Path(machine.url), session.repository.open(DATASET).id)
    for words in (
        ("status",),
        ("ls", "-R", DATASET),
        ("diff", f"{DATASET}@1", f"{DATASET}@2"),
        ("verify",),
        ("du", DATASET),
    ):
        yield words[0], peak(machine, COMMAND, *words)


def check_flat(machine: Machine, scratch: Path, few: int, many: int) -> None:
    machine.run("init") if not (Path(machine.url) / "datasync.json").exists() else None
    small = dict(peaks(machine, _empty(scratch / "few"), few))
    other = Machine(scratch / "home-2", str(scratch / "repository-2"))
    other.home.mkdir()
    other.run("init")
    large = dict(peaks(other, _empty(scratch / "many"), many))
    for (step, before), (_, after) in zip(small.items(), large.items(), strict=True):
        assert after < 400 * MIB, step
        assert after - before < GROWTH_BYTES, f"{step}: {before / MIB:.0f} MiB, then {after / MIB:.0f} MiB"


def _empty(place: Path) -> Path:
    place.mkdir()
    return place


def test_memory_stays_with_ten_times_the_entries(machine: Machine, scratch: Path) -> None:
    check_flat(machine, scratch, FILES // 10, FILES)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_memory_stays_with_a_million_entries(machine: Machine, scratch: Path) -> None:
    check_flat(machine, scratch, 100_000, 1_000_000)


def test_a_changed_file_costs_its_own_page(machine: Machine, scratch: Path) -> None:
    source = _empty(scratch / "source")
    with Forest(FILES).planted():
        first = machine.push(source)
    with Forest(FILES, frozenset({FILES // 2})).planted():
        second = machine.push(source)
    assert first.snapshot is not None
    assert second.snapshot is not None
    before, after = ({ref.id for ref, _ in item.snapshot.pages()} for item in (first, second) if item.snapshot)
    assert (len(before - after), len(after - before)) == (1, 1)
    assert len(before) >= FILES // 4096 // 3
    assert (second.changes.changed, second.changes.found) == (1, Forest(FILES).entries)
    diff = machine.run("diff", f"{DATASET}@1", f"{DATASET}@2").stdout
    assert diff == f"M {path(FILES // 2).decode()}\n"


@pytest.mark.parametrize("in_memory", [0, 3, 1000])
def test_link_groups_are_the_same_wherever_they_are_kept(in_memory: int) -> None:
    names = [b"%d" % number for number in range(60)]
    found = [Found(name, 1, 0, 0, 0, 0, number % 20, os.getpid(), 3, 0) for number, name in enumerate(names)]
    groups = LinkGroups(bytes(32), in_memory)
    links = [groups.of(item) for item in found]
    assert links[:20] == links[20:40] == links[40:]
    assert len(set(links)) == 20
    again = groups.of(found[0])
    assert again == links[0]  # a fourth link of a file with three begins a group of the same first path
