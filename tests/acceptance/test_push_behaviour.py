"""What a push sends and asks for, what it leaves out, and that an interrupted one goes on."""

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from datasync.format.names import dataset_prefix
from datasync.model.limits import PACK_BYTES
from tests.acceptance.conftest import s3_machine
from tests.support.cli import DEADLINE_SECONDS, Finished, Machine, finish
from tests.support.requests import Request
from tests.support.servers import S3Server
from tests.support.trees import GIB, KIB, MIB, content, differences, survey

INSERT_BUDGET_BYTES = 12 * MIB


def make_files(root: Path, count: int, size: int = 1000) -> None:
    for number in range(count):
        path = root / f"directory-{number % 7}" / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(number, size))


# nothing changed


def test_an_unchanged_source_writes_nothing_and_asks_for_little(any_machine: Machine, scratch: Path) -> None:
    source = scratch / "source"
    make_files(source, 200)
    first = any_machine.push(source)
    assert first.created
    before = any_machine.objects()
    requests: list[Request] = []
    second = any_machine.push(source, requests=requests)
    assert not second.created
    assert second.snapshot is not None
    assert first.snapshot is not None
    assert second.snapshot.id == first.snapshot.id
    assert any_machine.objects() == before
    prefix = dataset_prefix(first.snapshot.body.dataset)
    kinds = {(kind, name.removeprefix(prefix).split("/")[0]) for kind, name in requests}
    listings = {("list", "heads"), ("list", "snapshots"), ("list", "condemned")}
    assert kinds == {("get", "heads"), ("get", "snapshots")} | listings
    assert all(name.startswith(prefix) for _, name in requests)
    assert len([name for kind, name in requests if kind == "get"]) <= 3
    assert len(requests) <= 8


def test_the_command_line_says_that_nothing_was_sent(machine: Machine, scratch: Path) -> None:
    source = scratch / "source"
    make_files(source, 50)
    first = machine.run("push", source, "--json").result
    assert (first["seq"], first["created"], first["added"]) == (1, True, 57)
    before = machine.objects()
    second = machine.run("push", source, "--json").result
    assert (second["seq"], second["created"], second["snapshot"]) == (1, False, first["snapshot"])
    assert (second["sent_bytes"], second["new_bytes"], second["skipped"]) == (0, 0, 0)
    assert machine.objects() == before


# an insert


def check_insert(machine: Machine, source: Path, size: int) -> None:
    source.mkdir()
    path = source / "large"
    with path.open("wb") as file:
        for number in range(size // (8 * MIB)):
            file.write(content(number, 8 * MIB))
    machine.push(source)
    before = machine.objects()
    with path.open("r+b") as file:
        file.seek(size // 2)
        rest = file.read()
        file.seek(size // 2)
        file.write(content(-1, KIB))
        file.write(rest)
    pushed = machine.push(source)
    assert pushed.created
    new = sum(item.size for name, item in machine.objects().items() if name not in before)
    print(f"{new} bytes of new objects after 1 KiB was inserted into {size} bytes")
    assert 0 < new <= INSERT_BUDGET_BYTES
    assert pushed.progress.sent_bytes <= new
    warmed, _ = machine.warm()
    assert differences(survey(source), survey(warmed.path), view=True) == []


def test_an_insert_into_a_large_file_sends_little(machine: Machine, scratch: Path) -> None:
    check_insert(machine, scratch / "source", 256 * MIB)


@pytest.mark.long
def test_an_insert_into_a_gibibyte_sends_little(machine: Machine, scratch: Path) -> None:
    check_insert(machine, scratch / "source", GIB)


# what is left out


def listed(machine: Machine) -> set[str]:
    events = machine.run("ls", "data", "-R", "--json").events
    return {event["path"] for event in events if event["type"] == "entry"}


def make_ignored(source: Path) -> None:
    for name in ("keep.txt", "drop.tmp", "keep.tmp", "deep/a.log", "deep/b.txt", "deep/er/c.log", "cache/x"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)


def test_ignore_files_keep_things_back(machine: Machine, scratch: Path) -> None:
    source = scratch / "data"
    make_ignored(source)
    (source / ".datasyncignore").write_text("*.tmp\n!keep.tmp\n/cache/\n")
    (source / "deep" / ".datasyncignore").write_text("*.log\n")
    machine.run("push", source)
    ignore = {".datasyncignore", "deep/.datasyncignore"}
    assert listed(machine) == {"keep.txt", "keep.tmp", "deep", "deep/b.txt", "deep/er"} | ignore


def test_include_is_stronger_than_exclude_and_ignore_files(machine: Machine, scratch: Path) -> None:
    source = scratch / "data"
    make_ignored(source)
    (source / ".datasyncignore").write_text("*.tmp\n")
    machine.run(
        "push", source, "--exclude", "*.log", "--include", "c.log", "--include", "drop.tmp", "--exclude", "cache"
    )
    others = {".datasyncignore", "keep.txt", "drop.tmp", "deep", "deep/b.txt", "deep/er", "deep/er/c.log"}
    assert listed(machine) == others
    machine.run("push", source, "--exclude", "*", "--include", "*/", "--include", "*.txt")
    assert listed(machine) == {"keep.txt", "deep", "deep/b.txt", "deep/er", "cache"}


def test_special_files_are_named_and_the_rest_is_pushed(machine: Machine, scratch: Path) -> None:
    source = scratch / "data"
    make_files(source, 5)
    os.mkfifo(source / "a fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(source)  # a socket's path must be short
        listener.bind("a socket")
    done = machine.run("push", source, expect=3)
    assert "a fifo: a FIFO is not pushed" in done.stderr
    assert "a socket: a socket is not pushed" in done.stderr
    assert "Traceback" not in done.stderr
    assert listed(machine) == {f"directory-{n}" for n in range(5)} | {f"directory-{n}/file-{n}" for n in range(5)}
    again = machine.run("push", source, "--json", expect=3)
    assert {event["path"] for event in again.events if event["type"] == "skipped"} == {"a fifo", "a socket"}
    assert again.result["error"] == "PartialFailure"


@pytest.mark.skipif(os.geteuid() != 0, reason="a superuser becomes somebody else here; others see the test below")
def test_what_this_user_may_not_read_is_named(machine: Machine, scratch: Path) -> None:
    source = scratch / "data"
    make_files(source, 20)
    (source / "secret").write_bytes(b"root's own")
    (source / "secret").chmod(0o600)
    (source / "closed").mkdir(mode=0o700)
    (source / "closed" / "inside").touch()
    scratch.chmod(0o755)
    for path in (machine.home, *machine.home.rglob("*"), *Path(machine.url).rglob("*"), Path(machine.url)):
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        done = machine.push(source)
    finally:
        os.seteuid(0)
    check_unreadable(done.skipped, {b"secret", b"closed"})
    assert done.created
    assert done.totals.files == 20
    os.chown(machine.identity, 0, 0)
    assert machine.push(source).totals.files == 22


@pytest.mark.skipif(os.geteuid() == 0, reason="a superuser reads everything; see the test above")
def test_what_its_owner_may_not_read_is_named(machine: Machine, scratch: Path) -> None:
    source = scratch / "data"
    make_files(source, 20)
    (source / "secret").write_bytes(b"nobody's")
    (source / "secret").chmod(0)
    (source / "closed").mkdir(mode=0)
    check_unreadable(machine.push(source).skipped, {b"secret", b"closed"})


def check_unreadable(skipped: Sequence[tuple[bytes, str]], paths: set[bytes]) -> None:
    assert {path for path, _ in skipped} == paths
    assert all(reason == "can not be read: Permission denied" for _, reason in skipped)


# interrupted

# The first pack gets through, the others wait for the gate: so the push is surely in the middle when the signal comes.
GATED = """
import sys, time
from pathlib import Path
from datasync.cli.main import main
from datasync.storage.retry import RetryingStore
gate, put, packs = Path(sys.argv.pop(1)), RetryingStore.put_if_absent, []
def gated(store, name, data):
    if "/packs/" in name:
        packs.append(name)
        while name != packs[0] and not gate.exists():
            time.sleep(0.01)
    return put(store, name, data)
RetryingStore.put_if_absent = gated
main()
"""
PART_BYTES = 8 * MIB
PARTS = 16
IN_FLIGHT = 4  # packs that are sent at a time


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_push_goes_on_where_it_stopped(
    rclone: S3Server, scratch: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    machine = s3_machine(rclone, scratch, monkeypatch)
    source = scratch / "data"
    source.mkdir()
    for part in range(PARTS):
        (source / f"part-{part}").write_bytes(content(part, PART_BYTES))
    interrupted = interrupt(machine, source, scratch / "gate", number)
    assert interrupted.code == code
    assert interrupted.stderr == "datasync: interrupted: the same line resumes\n"
    assert machine.objects("/snapshots/") == {}
    stored = machine.objects("/packs/")
    assert 1 <= len(stored) <= 1 + IN_FLIGHT
    resumed = machine.run("push", source, "--json").result
    assert (resumed["seq"], resumed["created"]) == (1, True)
    assert resumed["sent_bytes"] <= PARTS * PART_BYTES - sum(item.size for item in stored.values()) + 2 * PACK_BYTES
    packs = machine.objects("/packs/")
    assert stored.keys() <= packs.keys()
    assert len(packs) == machine.run("du", "data", "--json").result["packs"]  # nothing was sent twice
    verified = machine.run("verify", "data", "--read-data", "--json").events[-2]
    assert (verified["snapshots"], verified["problems"]) == (1, [])


def interrupt(machine: Machine, source: Path, gate: Path, number: signal.Signals) -> Finished:
    """Push, and send the signal once a pack is stored and before another is."""
    process = machine.start(gate, "push", source, command=(sys.executable, "-c", GATED))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not machine.objects("/packs/"):
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
    process.send_signal(number)
    time.sleep(0.2)
    assert process.poll() is None  # what is in flight is waited for
    gate.touch()
    return finish(process)
