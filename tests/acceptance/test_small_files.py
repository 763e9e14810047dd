"""Small files are read straight into the pack that will hold them: every mix of them comes back as it was."""

import random
from pathlib import Path

import pytest

from datasync.model.limits import PACK_BYTES, SMALL_FILE_BYTES
from tests.support.cli import Machine
from tests.support.trees import KIB, differences, survey

KINDS = ("new", "same", "text", "empty", "large")


def _content(source: random.Random, kind: str, size: int, made: list[bytes]) -> bytes:
    match kind:
        case "new":
            return source.randbytes(size)
        case "same":
            return source.choice(made)
        case "text":
            return b"".join(b"%d," % source.randrange(100) for _ in range(size // 3))
        case "empty":
            return b""
        case _:
            return source.randbytes(3 * SMALL_FILE_BYTES)


def make_mix(root: Path, seed: int, total: int) -> None:
    """Make files of up to 256 KiB (some larger) of *total* bytes: noise, copies of others, text, empty ones."""
    source, made, number = random.Random(seed), [b"first"], 0
    while total > 0:
        number += 1
        kind = source.choices(KINDS, (60, 15, 15, 5, 1))[0]
        size = source.choice((source.randint(1, 4 * KIB), source.randint(1, SMALL_FILE_BYTES), SMALL_FILE_BYTES))
        data = _content(source, kind, size, made)
        made = [*made[-50:], data]
        path = root / f"directory-{number % 3}" / f"{number:05d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        total -= len(data)


@pytest.mark.parametrize("seed", range(3))
def test_a_mix_that_crosses_packs_comes_back_whole(machine: Machine, scratch: Path, seed: int) -> None:
    source = scratch / "source"
    make_mix(source, seed, 2 * PACK_BYTES + PACK_BYTES // 2)
    machine.push(source)
    assert not machine.push(source).created
    machine.pull(scratch / "back")
    assert differences(survey(source), survey(scratch / "back")) == []


def test_with_checksums_what_was_only_touched_is_not_sent_again(machine: Machine, scratch: Path) -> None:
    source = scratch / "source"
    make_mix(source, 7, PACK_BYTES // 4)
    machine.push(source)
    changed = []
    for number, path in enumerate(sorted(item for item in source.rglob("*") if item.is_file())):
        if number % 10 == 0:
            path.write_bytes(random.Random(number).randbytes(5 * KIB))
            changed.append(path)
        else:
            path.touch()
    again = machine.push(source, checksum=True)
    assert again.progress.new_bytes == 5 * KIB * len(changed)
    machine.pull(scratch / "back")
    assert differences(survey(source), survey(scratch / "back")) == []
