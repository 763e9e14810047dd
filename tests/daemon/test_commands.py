"""Commands against a daemon: the same words, the same exit codes, live progress; and only what looks."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from datasync.daemon.limits import COMMANDS
from datasync.errors import StorageUnavailable, UsageError
from datasync.service.verbs import VERBS, refused_option, verb_of, without_daemon
from tests.support.daemons import Daemon, daemon, mirror_table, wait_until
from tests.support.machine import Machine


@contextmanager
def mirroring(folder: Path) -> Iterator[Daemon]:
    """Run a daemon that has pushed one small folder."""
    machine = Machine.make(folder / "home", str(folder / "repository"))
    machine.must("init")
    for name in ("d0/a", "d1/b"):
        (folder / "source" / name).parent.mkdir(parents=True)
        (folder / "source" / name).write_text(name)
    with daemon(machine, mirror_table(folder / "source")) as made:
        wait_until("it is pushed", lambda: made.mirror()["seq"] == 1)
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    """One for all tests that change nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="ds-", ignore_cleanup_errors=True) as name,
        mirroring(Path(name).resolve()) as made,
    ):
        made.machine.must("warm", "data")
        yield made


@pytest.fixture
def running(scratch: Path) -> Iterator[Daemon]:
    with mirroring(scratch) as made:
        yield made


@pytest.fixture
def source(running: Daemon) -> Path:
    return running.machine.home.with_name("source")


@pytest.fixture
def job(tmp_path: Path) -> Machine:
    """Somebody of this machine who has no repository, no key, and another cache."""
    return Machine.make(tmp_path / "job", "", {"DATASYNC_CACHE": str(tmp_path / "none")})


OFF = ("--daemon", "off")
LOOKS = (
    ("ls",), ("ls", "data"), ("ls", "-l", "data", "d0"), ("log", "data"), ("du", "data"), ("diff", "data@1", "data@1"),
    ("verify", "data"), ("verify", "data", "--read-data"), ("path", "data"), ("ready", "data"), ("cache", "ls"),
    ("plan", "data"), ("warm", "data", "-n"), ("audit", "tail", "-n", "3", "--action", "key"), ("audit", "verify"),
)  # fmt: skip


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_command_says_by_the_daemon_what_it_says_alone(shared: Daemon, job: Machine, words: tuple[str, ...]) -> None:
    machine = shared.machine
    asked = job.run(*words, "--daemon", shared.socket)
    alone = machine.run(*words, "--daemon", "off")
    assert asked.code == 0, asked
    if words[0] != "audit":
        assert (asked.out, asked.err) == (alone.out, alone.err)
    by_json = job.must(*words, "--json", f"--daemon={shared.socket}").result
    if words[0] != "audit":
        assert by_json == machine.must(*words, "--json", "--daemon", "off").result


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ls", "none"), 4),
        (("ls", "data@7"), 4),
        (("ls", "data@@"), 2),
        (("ls", "--no-such-option"), 2),
        (("path", "data@7"), 4),
        (("verify", "data", "--sample", "5%"), 2),
    ],
)
def test_a_failure_keeps_its_class_and_exit_code(
    shared: Daemon, job: Machine, words: tuple[str, ...], code: int
) -> None:
    asked = job.run(*words, "--daemon", shared.socket)
    alone = shared.machine.run(*words, "--daemon", "off")
    assert (asked.code, alone.code) == (code, code)
    assert alone.err.strip().splitlines()[-1].partition(": ")[2] in asked.err.replace("daemon: ", "")
    if "--no-such-option" not in words:
        assert job.run(*words, "--json", "--daemon", shared.socket).result["exit"] == code


def test_a_plan_is_that_of_the_daemons_warm(shared: Daemon, job: Machine) -> None:
    words = ("data", "--subset", "d0", "--order", "@/no/such/file")
    assert job.run("plan", *words, "--daemon", shared.socket).code == 2
    plans = [
        machine.must(*verb, "data", "--subset", "d0", "--json", *where).result["plans"][0]
        for machine, where in ((job, ("--daemon", shared.socket)), (shared.machine, ()), (shared.machine, OFF))
        for verb in (("plan",), ("warm", "-n"))
    ]
    for plan in plans:
        plan.pop("free_bytes")
    assert plans == [plans[0]] * 6
    assert (plans[0]["ready"], plans[0]["files"], plans[0]["kept"]) == (False, 1, 1)
    assert job.run("plan", "data", "--target", "x", "--daemon", shared.socket).code == 2


def test_status_and_progress_are_relayed_as_they_come(shared: Daemon, job: Machine) -> None:
    found = job.must("status", "--json", "--daemon", shared.socket).result
    assert [item["dataset"] for item in found["datasets"]] == ["data"]
    lines = job.must("verify", "--read-data", "--json", "--daemon", shared.socket).out.splitlines()
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds[-2:] == ["verified", "result"]
    assert "progress" in kinds


@pytest.mark.parametrize(
    "words",
    [
        ("init",),
        ("key", "list", "data"),
        ("token", "list"),
        ("cache", "purge"),
        ("tag", "data", "x"),
        ("audit", "export"),
        ("ls", "--config", "/etc/passwd"),
        ("ls", "--repository=/tmp"),
        ("cache", "ls", "--cache", "/tmp"),
        ("audit", "tail", "--log", "/tmp"),
    ],
)
def test_what_is_not_the_daemons_to_do_is_refused_on_both_sides(
    shared: Daemon, job: Machine, words: tuple[str, ...]
) -> None:
    assert job.run(*words, "--daemon", shared.socket).code == 2
    with pytest.raises(UsageError):
        list(shared.api.stream("POST", "/v1/commands", {"arguments": words}))


def test_a_url_is_refused_where_a_control_side_only_lends(job: Machine) -> None:
    refused = job.run("ls", "data", "--daemon", "https://control.test:1")
    assert (refused.code, "socket" in refused.err) == (2, True)


def children(running: Daemon) -> list[str]:
    assert running.process is not None
    found: list[str] = []
    for task in Path(f"/proc/{running.process.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            found += (task / "children").read_text().split()
    return found


def test_a_command_ends_when_its_client_goes(running: Daemon, job: Machine) -> None:
    child = job.start("audit", "tail", "-f", "--json", "--daemon", running.socket)
    assert child.stdout is not None
    assert child.stdout.readline()
    assert len(children(running)) == 1
    child.send_signal(signal.SIGKILL)
    child.communicate()
    wait_until("it is ended", lambda: not children(running))
    assert job.run("ls", "--daemon", running.socket).code == 0


def test_a_daemon_that_ends_takes_its_commands_with_it(running: Daemon, job: Machine) -> None:
    child = job.start("audit", "tail", "-f", "--json", "--daemon", running.socket)
    assert child.stdout is not None
    assert child.stdout.readline()
    (pid,) = children(running)
    assert running.stop() == 0
    out, err = child.communicate(timeout=60)
    assert child.returncode == 5, (out, err)
    wait_until("it is ended", lambda: not Path(f"/proc/{pid}").exists())


def test_so_many_commands_run_at_once_and_no_more(running: Daemon, job: Machine) -> None:
    streams = [
        running.api.stream("POST", "/v1/commands", {"arguments": ("audit", "tail", "-f")}) for _ in range(COMMANDS)
    ]
    with ThreadPoolExecutor(COMMANDS) as pool:
        assert all(item["type"] == "line" for item in pool.map(next, streams))
    assert job.run("ls", "--daemon", running.socket).code == StorageUnavailable.exit_code
    for item in streams:
        item.close()  # type: ignore[attr-defined]
    wait_until("there is room again", lambda: job.run("ls", "--daemon", running.socket).code == 0)


# a push by the daemon


def test_a_push_by_the_daemon_ends_when_all_of_it_is_in(running: Daemon, job: Machine, source: Path) -> None:
    (source / "new").write_text("new")
    done = job.must("push", source, "--daemon", running.socket, "--json").result
    assert (done["dataset"], done["seq"]) == ("data", running.mirror()["seq"])
    assert "new" in running.machine.must("ls", f"data@{done['seq']}").out
    again = job.must("daemon", "push", "data", "--wait", "--daemon", running.socket)
    assert again.err.strip() == f"data@{done['seq']}: nothing changed"


def test_a_push_by_the_daemon_fails_as_a_push_does(running: Daemon, job: Machine, source: Path, scratch: Path) -> None:
    assert job.run("push", scratch, "--daemon", running.socket).code == 4
    assert job.run("push", source, "--tag", "t", "--daemon", running.socket).code == 2
    assert job.run("daemon", "push", "other", "--wait", "--daemon", running.socket).code == 4
    store = Path(running.machine.repository)
    store.rename(store.with_name("away"))
    (source / "later").write_text("later")
    failed = job.run("push", source, "--daemon", running.socket)
    assert (failed.code, "rolled back" in failed.err) == (7, True)
    store.with_name("away").rename(store)
    os.mkfifo(source / "pipe")
    assert job.run("push", source, "--daemon", running.socket).code == 3
    shutil.rmtree(source)
    source.mkdir()
    held = job.run("push", source, "--daemon", running.socket)
    assert (held.code, "is empty now" in held.err) == (2, True)
    assert running.mirror()["held"]


# what is whose


def test_arguments_are_read_as_the_command_line_reads_them() -> None:
    assert verb_of(("cache", "ls", "-q")) == "cache ls"
    assert verb_of(("cache", "purge")) is None
    assert verb_of(()) is None
    assert verb_of(("status",)) == "status"
    assert refused_option(("ls", "--", "--config")) is None
    assert refused_option(("ls", "--trust=x")) == "--trust"
    assert refused_option(("plan", "data", "--order=@/etc/passwd")) == "--order"
    assert refused_option(("plan", "data", "--target", "/")) == "--target"
    assert without_daemon(("ls", "--daemon", "x", "data", "--daemon=y", "--", "--daemon", "z")) == [
        "ls", "data", "--", "--daemon", "z",
    ]  # fmt: skip
    assert without_daemon(("ls", "--daemon")) == ["ls"]
    assert len(set(VERBS)) == len(VERBS)
