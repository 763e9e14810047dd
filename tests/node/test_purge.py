"""Before a rented machine goes back: everything that no job holds is gone, and the node signs what it did."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from datasync.cache.layout import Cache
from datasync.cache.locks import ViewLock
from datasync.crypto.signatures import parse_signer, verify
from datasync.errors import IntegrityError
from tests.node.datasets import place_of, receipts
from tests.support.machine import Machine, finish
from tests.support.trees import KIB

CANARY = b"canary-7d1f-of-a-private-dataset"


def make(root: Path, seed: int) -> Path:
    """Make a dataset whose every file has the canary."""
    for number in range(6):
        path = root / f"class-{number % 2}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(9 * KIB) + b"%d %d " % (seed, number) + CANARY + os.urandom(KIB))
    return root


@pytest.fixture
def cache(machine: Machine, scratch: Path) -> Path:
    """A cache with two datasets, one of two snapshots."""
    for seed, name in enumerate(("one", "two")):
        machine.must("push", make(scratch / name, seed))
        machine.must("warm", name)
    (scratch / "one" / "class-0" / "0").write_bytes(b"new" + CANARY)
    machine.must("push", scratch / "one")
    machine.must("warm", "one", "--pin")
    assert holds_plaintext(scratch / "cache")
    return scratch / "cache"


def holds_plaintext(cache: Path) -> list[Path]:
    """Return every file of the cache, under whatever name, that holds the canary."""
    return [
        Path(directory, name)
        for directory, _, names in os.walk(cache)
        for name in names
        if not os.path.islink(os.path.join(directory, name)) and CANARY in Path(directory, name).read_bytes()
    ]


def check(receipt: dict[str, object]) -> None:
    """Verify the signature as a reader of the receipt does."""
    text = {name: value for name, value in receipt.items() if name != "signature"}
    body = json.dumps(text, sort_keys=True, separators=(",", ":")).encode()
    verify(parse_signer(str(receipt["node"])), "purge", body, bytes.fromhex(str(receipt["signature"])))


def test_nothing_stays_and_the_receipt_says_so(machine: Machine, cache: Path, scratch: Path) -> None:
    machine.must("cache", "purge", "--yes", "--output", scratch / "receipt.json")
    assert holds_plaintext(cache) == []
    assert receipts(cache) == []
    assert [path for path in cache.glob("objects/*/*") if path.is_file()] == []
    receipt = json.loads((scratch / "receipt.json").read_text())
    check(receipt)
    assert sorted((item["dataset"], item["seq"]) for item in receipt["removed"]) == [("one", 1), ("one", 2), ("two", 1)]
    assert (receipt["kept"], receipt["objects_left"], receipt["caches"]) == ([], 0, [str(cache)])
    with pytest.raises(IntegrityError):
        check(receipt | {"kept": ["forged"]})


def test_a_second_purge_is_clean(machine: Machine, cache: Path) -> None:
    machine.must("cache", "purge", "--yes")
    receipt = json.loads(machine.must("cache", "purge", "--yes").out)
    check(receipt)
    assert (receipt["removed"], receipt["kept"], receipt["objects_left"]) == ([], [], 0)
    machine.must("warm", "one")
    machine.must("ready", "one", "--deep")


def test_what_a_job_holds_stays_alone_and_is_named(machine: Machine, cache: Path) -> None:
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    job = machine.start("run", "--data", "two", "--", sys.executable, "-c", code, stdin=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdout.readline() == "up\n"
    ran = machine.run("cache", "purge", "--yes")
    assert ran.code == 11
    receipt = json.loads(ran.out)
    check(receipt)
    assert [(item["dataset"], item["seq"]) for item in receipt["kept"]] == [("two", 1)]
    assert f"pid {job.pid}" in receipt["kept"][0]["why"]
    (left,) = receipts(cache)
    assert {path.is_relative_to(place_of(left)) or "objects" in path.parts for path in holds_plaintext(cache)} == {True}
    assert receipt["objects_left"] == 6
    assert finish(job).code == 0
    machine.must("cache", "purge", "--yes")
    assert holds_plaintext(cache) == []


def test_what_damage_and_death_left_goes_too(machine: Machine, cache: Path) -> None:
    """An object in quarantine, a half-made view, one that never got its receipt, one whose receipt is damaged."""
    (cache / "quarantine").mkdir(mode=0o700)
    (cache / "quarantine" / "bad").write_bytes(CANARY)
    first, second, third = receipts(cache)
    first.write_text("{")
    second.unlink()
    staging = cache / "views" / "one" / ".staging-9-0123456789abcdef"
    staging.mkdir()
    (staging / "half").write_bytes(CANARY)
    ran = machine.must("cache", "purge", "--yes")
    assert str(first) in ran.err
    assert holds_plaintext(cache) == []
    receipt = json.loads(ran.out)
    assert {"path": str(place_of(first))} in receipt["removed"]
    assert not place_of(third).exists()


def test_a_view_that_is_being_made_is_named(machine: Machine, cache: Path) -> None:
    staging = cache / "views" / "one" / ".staging-9-0123456789abcdef"
    staging.mkdir()
    with Cache.open(cache) as opened:
        view = opened.view("one", 9, bytes.fromhex("0123456789abcdef" + "00" * 24))  # type: ignore[arg-type]
        with ViewLock(opened, view):
            ran = machine.run("cache", "purge", "--yes")
    assert ran.code == 11
    assert json.loads(ran.out)["kept"] == [{"path": str(view.path), "why": "another process is making it"}]


def test_nothing_is_removed_without_a_yes(machine: Machine, cache: Path) -> None:
    ran = machine.spawn("cache", "purge", stdin=subprocess.DEVNULL)
    assert ran.code == 130
    assert len(receipts(cache)) == 3
