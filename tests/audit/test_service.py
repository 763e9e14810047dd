"""What the service does is recorded, and nothing that can not be is done; the command line looks, verifies, proves."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasync.audit.event import Event
from datasync.audit.query import Wanted, select
from datasync.audit.segments import LogFiles, local_log
from datasync.audit.verify import verify_log
from datasync.config import Config, Flags, load_config
from datasync.errors import (
    DatasyncError,
    IntegrityError,
    NoSpace,
    NotAuthorized,
    PartialFailure,
    RollbackError,
    UsageError,
)
from datasync.service.audit_log import PRIMITIVES, audit_root, people_of
from datasync.service.record import recorded, watched, without_paths
from tests.support.cli import Machine


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(Flags(), {"HOME": str(tmp_path)})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home = tmp_path / "home"
    home.mkdir()
    made = Machine(home, str(tmp_path / "repository"))
    made.run("init")
    return made


def files_of(root: Path) -> LogFiles:
    return local_log(PRIMITIVES, next(path for path in root.iterdir() if (path / "key.pub").exists()))


def events(config: Config) -> list[Event]:
    return list(select(files_of(audit_root(config)), Wanted()))


def machine_events(machine: Machine) -> list[Event]:
    return list(select(files_of(machine.home / ".local/share/datasync/audit"), Wanted()))


def test_success_is_one_event_with_what_was_noted(config: Config) -> None:
    with recorded(config, "push", dataset="d") as event:
        event.note(bytes=7, snapshot=b"\xab" * 32, colour="red", absent=None)
    (only,) = events(config)
    assert (only.action, only.outcome, only.dataset, only.bytes) == ("push", "success", "d", 7)
    assert only.snapshot == "ab" * 32
    assert only.detail == {"colour": "red"}
    assert only.software
    assert only.node.startswith("dss1")


@pytest.mark.parametrize(
    ("error", "outcome", "alarm"),
    [
        (NotAuthorized("no"), "denied", ""),
        (PartialFailure("some"), "partial", ""),
        (UsageError("what"), "failure", ""),
        (KeyboardInterrupt(), "failure", ""),
        (IntegrityError("bad"), "failure", "alarm.integrity"),
        (RollbackError("old"), "failure", "alarm.rollback"),
    ],
)
def test_an_error_is_recorded_as_what_it_is_and_goes_on(
    config: Config, error: BaseException, outcome: str, alarm: str
) -> None:
    with pytest.raises(type(error)), recorded(config, "pull"):
        raise error
    found = events(config)
    assert [event.action for event in found] == [*([alarm] if alarm else []), "pull"]
    assert (found[-1].outcome, found[-1].error) == (outcome, type(error).__name__)


def test_a_security_action_is_durable_before_it_acts(config: Config) -> None:
    with recorded(config, "key.grant", security=True, target="bob@example.org"):
        inside = events(config)
    assert [(event.action, event.outcome) for event in inside] == [("key.grant", "intent")]
    assert [event.outcome for event in events(config)] == ["intent", "success"]


def test_nothing_is_done_that_can_not_be_recorded(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(config, "push"):
        pass
    monkeypatch.setattr(os, "fdatasync", _no_disk)
    for security in (True, False):
        done = []
        refused = pytest.raises(DatasyncError, match="nothing is done unrecorded")
        with refused, recorded(config, "key.release", security=security):
            done.append("acted")
        assert done == ([] if security else ["acted"])
    monkeypatch.undo()
    with recorded(config, "push"):
        pass
    assert [event.action for event in events(config)] == ["push", "log.gap", "push"]


def _no_disk(fd: int) -> None:
    raise OSError(5, "Input/output error")


def test_a_full_disk_stops_even_what_is_recorded_afterwards(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(config, "push"):
        pass
    full = type("Full", (), {"f_bavail": 0, "f_frsize": 4096})
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(NoSpace), recorded(config, "warm"):
        pytest.fail("it acted")


def test_a_log_that_was_cut_stops_everything(config: Config) -> None:
    for _ in range(3):
        with recorded(config, "push"):
            pass
    path = files_of(audit_root(config)).pieces[0]
    segment = audit_root(config) / files_of(audit_root(config)).name / "segments" / path.name
    segment.write_bytes(segment.read_bytes()[:-100])
    with pytest.raises(IntegrityError, match="tail was cut"), recorded(config, "warm"):
        pytest.fail("it acted")


def test_who_acts_and_whom_it_concerns_is_sealed(config: Config) -> None:
    with recorded(config, "key.grant", subject="alice@h", issuer="https://idp", address="192.0.2.1", target="bob"):
        pass
    (only,) = events(config)
    people = people_of(config)
    assert only.who is not None
    assert only.whom is not None
    who, whom = people.open(only.who, only.time[:7]), people.open(only.whom, only.time[:7])
    assert who is not None
    assert whom is not None
    assert (who.subject, who.issuer, who.address, whom.subject) == ("alice@h", "https://idp", "192.0.2.1", "bob")
    raw = b"".join(item.open().read() for item in files_of(audit_root(config)).pieces)
    assert b"alice@" not in raw
    assert b"192.0.2.1" not in raw


def test_hostile_text_is_recorded_and_credentials_of_a_url_are_not(config: Config) -> None:
    with_secret = replace(config, repository="s3://key:secret@bucket/prefix?endpoint=x&region=eu-1&token=abc")
    with recorded(with_secret, "push", dataset="a\ud800b\x1b\n" + "x" * 5000):
        pass
    (only,) = events(config)
    assert len(only.dataset) == 4096
    assert only.repository == "s3://bucket/prefix"
    assert only.region == "eu-1"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://key:p@ss@bucket/a@b?token=x", "s3://bucket/a@b"),
        ("file:///home/x@y/z", "file:///home/x@y/z"),
        ("/home/x@y/what?", "/home/x@y/what?"),
    ],
)
def test_a_url_keeps_its_place_alone(config: Config, url: str, told: str) -> None:
    with recorded(replace(config, repository=url), "push"):
        pass
    assert events(config)[0].repository == told


def test_reasons_lose_file_names(config: Config) -> None:
    assert without_paths("cannot read /data/patients/anna.dcm: no 'anna smith' here") == (
        "cannot read <path>: no '…' here"
    )
    for text, left in (
        ("/data/my secret dir/x y.txt: expected a file", "<path>: expected a file"),
        ("write 'it\\'s \"secret\"'", "write '…'"),
        ("s3://key:p@ss@bucket/p: no", "s3://bucket/p: no"),
        ("https://host/k?X-Amz-Signature=abc&b=c failed", "https://host/k failed"),
        ("what? really", "what? really"),
    ):
        assert without_paths(text) == left
    with pytest.raises(UsageError), recorded(config, "push"):
        raise UsageError("/data/secret/name.txt: what is this")
    assert "secret" not in events(config)[0].reason


def test_an_integrity_error_that_no_event_told_is_an_alarm_once(config: Config) -> None:
    with pytest.raises(IntegrityError), watched(config):
        raise IntegrityError("seen by ls")
    with pytest.raises(IntegrityError), watched(config), recorded(config, "pull"):
        raise IntegrityError("seen by pull")
    assert [event.action for event in events(config)] == ["alarm.integrity", "alarm.integrity", "pull"]


# the command line


def tree(machine: Machine, files: int = 3) -> Path:
    root = machine.home / "data"
    root.mkdir(exist_ok=True)
    for number in range(files):
        (root / f"{number}.bin").write_bytes(bytes([number]) * 1000)
    return root


def test_the_main_jobs_actions_are_all_there(machine: Machine) -> None:
    root = tree(machine)
    machine.run("push", root, "--tag", "prod")
    machine.run("warm", "data:prod")
    machine.run("cache", "pin", "data")
    machine.run("cache", "unpin", "data")
    machine.run("cache", "scrub")
    machine.run("verify")
    machine.run("pull", "data", machine.home / "out")
    machine.run("tag", "data", "old")
    machine.run("tag", "data", "old", "--delete")
    machine.run("ls", "data")
    machine.run("status")
    machine.run("cache", "evict", "data")
    machine.run("cache", "purge", "--yes")
    machine.run("warm", "missing", expect=4)
    actions = [(event.action, event.outcome) for event in machine_events(machine)]
    for wanted in ("init", "push", "warm", "cache.pin", "cache.unpin", "cache.scrub", "verify", "pull", "tag.set"):
        assert (wanted, "success") in actions, wanted
    for more in (("tag.remove", "success"), ("look", "success"), ("cache.evict", "success"), ("warm", "failure")):
        assert more in actions, more
    assert [outcome for action, outcome in actions if action == "purge"] == ["intent", "success"]
    push = next(event for event in machine_events(machine) if event.action == "push")
    assert (push.dataset, push.snapshot_seq, push.entries, push.bytes, push.tag) == ("data", 1, 3, 3000, "prod")
    raw = b"".join(item.open().read() for item in files_of(machine.home / ".local/share/datasync/audit").pieces)
    assert b".bin" not in raw, "no file name is recorded"
    secret = re.findall(r'"([0-9a-f]{64,})"', machine.identity.read_text())
    assert secret
    assert not any(item.encode() in raw for item in secret)


def test_a_damaged_repository_raises_an_alarm(machine: Machine) -> None:
    machine.run("push", tree(machine))
    pack = next(path for path in (Path(machine.url) / "d").rglob("packs/*/*"))
    pack.chmod(0o600)
    pack.write_bytes(b"\0" * pack.stat().st_size)
    machine.run("pull", "data", machine.home / "out", expect=7)
    alarms = [event for event in machine_events(machine) if event.action.startswith("alarm.")]
    assert alarms
    assert alarms[0].error in ("IntegrityError", "FormatError")


def test_tampering_is_exit_code_7_and_names_the_event(machine: Machine) -> None:
    machine.run("push", tree(machine))
    machine.run("audit", "verify")
    segment = next((machine.home / ".local/share/datasync/audit").rglob("*.ndjson"))
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b'"action":"push"', b'"action":"pull"'))
    done = machine.run("audit", "verify", "--json", expect=7)
    assert done.result["error"] == "IntegrityError"
    assert re.search(r"event 1 is not what was signed", str(done.result["message"]))


def test_verify_works_from_a_copy_with_the_public_key_alone(machine: Machine, tmp_path: Path) -> None:
    import shutil

    machine.run("push", tree(machine))
    anchor = machine.run("audit", "anchor", "--json").result
    source = machine.home / ".local/share/datasync/audit" / str(anchor["log"])
    shutil.copytree(source, tmp_path / str(anchor["log"]))
    auditor = Machine(tmp_path / "auditor", machine.url)
    auditor.home.mkdir()
    place = tmp_path / str(anchor["log"])
    auditor.run("audit", "verify", "--log", place, "--key", str(anchor["key"]))
    auditor.run("audit", "query", "--log", place, "--action", "push")
    other = auditor.run("audit", "anchor", "--json").result
    auditor.run("audit", "verify", "--log", place, "--key", str(other["key"]), expect=7)


def test_tail_query_show_and_prove(machine: Machine, tmp_path: Path) -> None:
    machine.run("push", tree(machine))
    machine.run("warm", "data")
    last = machine.run("audit", "tail", "-n", "1", "--json").events
    assert last[0]["action"] == "warm"
    user = machine.run("audit", "show", "0", "--json").events[0]["who"]["subject"]
    found = machine.run("audit", "query", "--actor", user.split("@")[0], "--action", "push", "--json").events
    assert [item["seq"] for item in found[:-1]] == [1]
    assert machine.run("audit", "query", "--actor", "nobody", "--json").result["events"] == 0
    assert machine.run("audit", "query", "--since", "1h", "--dataset", "data", "--json").result["events"] == 2
    assert machine.run("audit", "query", "--until", "2020-01-01", "--json").result["events"] == 0
    machine.run("audit", "query", "--since", "yesterday", expect=2)
    machine.run("audit", "show", "999", expect=4)
    machine.run("audit", "prove", "1", "--output", tmp_path / "proof.json")
    script = Path(__file__).resolve().parents[2] / "docs" / "verify_proof.py"
    done = subprocess.run([sys.executable, script, tmp_path / "proof.json"], capture_output=True, check=False)
    assert done.returncode == 0
    machine.run("audit", "anchor", "--output", tmp_path / "anchor.json")
    machine.run("push", tree(machine, 5))
    machine.run("audit", "verify", "--checkpoint", tmp_path / "anchor.json")
    grown = json.loads(machine.run("audit", "prove", "--since", tmp_path / "anchor.json").stdout)
    assert grown["proves"] == "consistency"


def test_hostile_names_do_not_reach_the_terminal(machine: Machine) -> None:
    with recorded(_config_of(machine), "push", dataset="a\x1b[31m\nforged line", subject="b\x1b]0;x\x07"):
        pass
    done = machine.run("audit", "tail")
    assert "\x1b" not in done.stdout
    assert "\nforged" not in done.stdout


def _config_of(machine: Machine) -> Config:
    return load_config(Flags(), {"HOME": str(machine.home)})


def test_an_export_is_recorded_before_it_is_made_and_checks(machine: Machine, tmp_path: Path) -> None:
    machine.run("push", tree(machine))
    done = machine.run("audit", "export", "--output", tmp_path / "x.jsonl", "--json").result
    machine.run("audit", "verify", "--export", done["manifest"])
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    told = [event.outcome for event in machine_events(machine) if event.action == "audit.export"]
    assert told == ["intent", "success"]
    machine.run("audit", "export", "--output", tmp_path / "x.jsonl", expect=2)
    (tmp_path / "x.jsonl").write_text("\n".join(lines[1:]) + "\n")
    machine.run("audit", "verify", "--export", done["manifest"], expect=7)
    assert (tmp_path / "x.jsonl.manifest.json").stat().st_mode & 0o077 == 0


def test_version_imports_no_audit_log() -> None:
    code = "import sys, datasync.cli.main as m; print([n for n in sys.modules if 'audit' in n or 'record' in n])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.stdout.strip() == "[]"


def test_verified_logs_are_remembered_so_a_shorter_one_is_a_rollback(machine: Machine) -> None:
    for number in range(3):
        machine.run("push", tree(machine, number + 1))
    machine.run("audit", "verify")
    segment = next((machine.home / ".local/share/datasync/audit").rglob("*.ndjson"))
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:-4]))
    (segment.parents[1] / "head").unlink()
    done = machine.run("audit", "verify", "--json", expect=7)
    assert done.result["error"] == "RollbackError"


def test_every_push_verifies(machine: Machine) -> None:
    machine.run("push", tree(machine))
    result: Any = verify_log(PRIMITIVES, files_of(machine.home / ".local/share/datasync/audit"))
    assert result.size == 2


def test_readers_see_a_whole_log_while_it_is_written(config: Config) -> None:
    """What another process has half written is not there yet; it is no damage."""
    from datasync.service import audit

    with recorded(config, "push"):
        pass
    folder = audit_root(config) / files_of(audit_root(config)).name / "segments"
    path = next(folder.iterdir())
    with open(path, "ab") as half:
        half.write(b'{"v":1,"log":"')
    assert [row.event.action for row in audit.tail(config, audit.Search(), 9)] == ["push"]
    assert audit.verify(config)[0].size == 1
    assert [event.action for event in events(config)] == ["push", "log.recovered", "audit.verify"]


def test_a_checkpoint_of_a_log_that_is_not_here_is_told(config: Config, tmp_path: Path) -> None:
    from datasync.service import audit
    from tests.audit.book import Book

    with recorded(config, "push"):
        pass
    other = Book.make(tmp_path / "other")
    other.write(1)
    with pytest.raises(IntegrityError, match="the log was replaced"):
        audit.verify(config, kept=(other.checkpoint(),))
