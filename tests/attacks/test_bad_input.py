"""What is wrong outside has its exit code and one line; nothing is half-visible, and the same line goes on later."""

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from datasync.crypto.hashing import hash_bytes
from datasync.errors import NoSpace, NotAuthorized, StorageUnavailable
from datasync.format.names import MARKER
from datasync.storage.local import LocalStore
from datasync.storage.memory import MemoryStore
from tests.support.copies import names, replace
from tests.support.dropped import without_override
from tests.support.faulty_server import Answer, Request, fault
from tests.support.machine import Machine, Ran, tree
from tests.support.relay import Relay, forward, relay
from tests.support.scripted import Broken
from tests.support.servers import S3Server

IN_FLIGHT = 6  # requests that other threads may have begun when the first refusal arrives


def refused(machine: Machine, code: int, *line: str | Path, word: str = "", store: MemoryStore | None = None) -> Ran:
    """Run *line* three ways: it ends with *code*, one line, a traceback with -vv alone, and a result with --json."""
    ran = machine.run(*line, store=store)
    assert ran.code == code, ran
    assert word in ran.message, ran
    assert ran.message.startswith("datasync: ")
    assert "Traceback" not in ran.err
    loud = machine.run(*line, "-vv", store=store)
    assert loud.code == code
    assert "Traceback" in loud.err
    told = machine.run(*line, "--json", store=store)
    assert told.code == told.result["exit"] == code
    assert told.result["message"] in told.message
    return ran


# what is said on the line


def test_a_missing_path(machine: Machine, tmp_path: Path) -> None:
    refused(machine, 4, "push", tmp_path / "nowhere", word="nowhere")


def test_a_file_instead_of_a_directory(machine: Machine, source: Path) -> None:
    ran = machine.run("push", source / "text")
    assert ran.code in (2, 4), ran
    refused(machine, ran.code, "push", source / "text", word="text")


@pytest.mark.parametrize(
    ("reference", "code"),
    [("data@99", 4), ("data:nope", 4), ("nope", 4), ("data@0badc0de", 4), ("data@x", 2), ("data@", 2), ("a/b", 2),
     ("data:", 2), ("", 2), ("..", 2), ("data@0", 2), ("da\x1bta", 2)],
)  # fmt: skip
def test_a_bad_reference(machine: Machine, source: Path, tmp_path: Path, reference: str, code: int) -> None:
    machine.must("push", source, "--dataset", "data")
    for line in (("pull", reference, tmp_path / "out"), ("warm", reference), ("ls", reference or ":")):
        ran = refused(machine, code, *line)
        assert "\x1b" not in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "url",
    ["nosuch://host/x", "s3://", "s3:bucket", "s3://key:SECRETPART@bucket/x", "s3://bucket/x?password=SECRETPART",
     "s3://bucket/x?endpoint=http://u:SECRETPART@h", "oss://bucket/x", "memory://"],
)  # fmt: skip
def test_a_bad_url(tmp_path: Path, url: str) -> None:
    ran = refused(Machine.make(tmp_path / "home", url), 2, "status")
    assert "SECRETPART" not in ran.err


def test_no_repository(machine: Machine, source: Path, tmp_path: Path) -> None:
    other = machine.sibling(tmp_path / "other", DATASYNC_REPOSITORY=str(tmp_path / "empty"))
    for line in (("push", source), ("pull", "data", tmp_path / "out"), ("status",), ("verify",)):
        refused(other, 10, *line, word="datasync init")
    assert not (tmp_path / "empty").exists()
    refused(machine.sibling(tmp_path / "none", DATASYNC_REPOSITORY=""), 2, "status", word="DATASYNC_REPOSITORY")


def test_a_second_init(machine: Machine) -> None:
    refused(machine, 2, "init", word="already")


@pytest.mark.parametrize(
    ("text", "word"),
    [("repository = ", "not valid TOML"), ("[push]\nchunkr = 'x'", "push.chunkr"), ("speed = 9", "speed"),
     ("[push]\nchunker = 'none'", "chunker"), ("repository = 7", "repository"), ("\xff\xfe", "TOML")],
)  # fmt: skip
def test_a_broken_or_unknown_setting(machine: Machine, tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(text.encode("latin-1"))
    ran = refused(machine, 2, "status", "--config", path, word=word)
    assert str(path) in ran.err or word == "chunker"
    refused(machine, 2, "status", "--config", tmp_path / "absent.toml", word="absent.toml")


def test_a_usage_error_has_its_code_and_a_result(machine: Machine) -> None:
    for line in (("pull",), ("pull", "--nonsense"), ("nonsense",)):
        ran = machine.run(*line, "--json")
        assert ran.code == 2, ran
        if line != ("nonsense",):
            assert ran.result["exit"] == 2


# keys


def test_no_identity(machine: Machine, source: Path) -> None:
    machine.must("push", source, "--dataset", "data")
    machine.identity.unlink()
    refused(machine, 12, "pull", "data", source.parent / "out", word="datasync init")


def test_another_identity(machine: Machine, source: Path, tmp_path: Path) -> None:
    machine.must("push", source, "--dataset", "data")
    stranger = Machine.make(tmp_path / "stranger", str(tmp_path / "elsewhere"))
    stranger.must("init")
    wrong = stranger.sibling(tmp_path / "wrong", DATASYNC_REPOSITORY=machine.repository)
    for line in (("pull", "data", tmp_path / "out"), ("warm", "data"), ("push", source, "--dataset", "data")):
        refused(wrong, 12, *line, word="ask the owner")
    assert not (tmp_path / "out").exists()


def test_a_wrong_passphrase(machine: Machine, source: Path, tmp_path: Path) -> None:
    machine.sibling(tmp_path / "owner", DATASYNC_PASSPHRASE="right").must("push", source, "--dataset", "data")
    guess = Machine.make(tmp_path / "guess", machine.repository, {"DATASYNC_PASSPHRASE": "wrong"})
    refused(guess, 12, "pull", "data", tmp_path / "out")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_an_identity_that_others_can_read(machine: Machine, mode: int) -> None:
    machine.identity.chmod(mode)
    refused(machine, 2, "status", word="chmod 600")


def test_an_identity_that_is_not_one(machine: Machine, tmp_path: Path) -> None:
    text = machine.identity.read_text()
    for number, broken in enumerate(
        ("", "x = ", text.replace("ed25519", "ed", 1), text[:200], text.replace('"', "'", 3))
    ):
        machine.identity.write_text(broken)
        ran = machine.run("status")
        assert ran.code == 12, (number, ran)
        assert len(ran.err.splitlines()) == 1
    machine.identity.unlink()
    machine.identity.symlink_to(tmp_path / "elsewhere")
    refused(machine, 2, "status", word="identity")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_identity_of_another_owner(machine: Machine) -> None:
    os.chown(machine.identity, 12345, -1)
    refused(machine, 2, "status", word="12345")


# the repository


def test_a_newer_format(machine: Machine, store: MemoryStore, tmp_path: Path) -> None:
    fields = json.loads(store.get(MARKER, limit=1 << 16))
    del fields["hash"]
    fields["version"] = 2
    canonical = {"sort_keys": True, "separators": (",", ":")}
    fields["hash"] = hash_bytes(json.dumps(fields, **canonical).encode()).hex()  # type: ignore[arg-type]
    replace(store, MARKER, json.dumps(fields, **canonical).encode() + b"\n")  # type: ignore[arg-type]
    refused(machine.sibling(tmp_path / "fresh"), 2, "status", word="newer datasync", store=store)


def test_two_datasets_of_one_name(machine: Machine, store: MemoryStore, source: Path, tmp_path: Path) -> None:
    made = [machine.must("push", source, "--dataset", "data", "--json", store=store).result["trust"]]
    other = machine.sibling(tmp_path / "other")
    elsewhere = MemoryStore()
    replace(elsewhere, MARKER, store.get(MARKER, limit=1 << 16))
    made.append(other.must("push", source, "--dataset", "data", "--json", store=elsewhere).result["trust"])
    for name in names(elsewhere, "d/"):
        store.put_if_absent(name, elsewhere.get(name, limit=1 << 26))
    ran = refused(machine.sibling(tmp_path / "fresh"), 7, "pull", "data", tmp_path / "out", store=store)
    assert all(dataset in ran.err for dataset in made)


# files


def test_an_unreadable_file_or_directory_is_skipped_by_name(machine: Machine, source: Path, tmp_path: Path) -> None:
    (source / "closed").mkdir()
    (source / "closed/inside").write_bytes(b"inside")
    for path in (source / "closed", source / "text"):
        path.chmod(0)
    ran = machine.spawn("push", source, "--dataset", "data", preexec_fn=without_override)
    assert ran.code == 3, ran
    assert "closed" in ran.err
    assert "text" in ran.err
    told = machine.spawn("push", source, "--dataset", "data", "--json", preexec_fn=without_override)
    assert told.code == told.result["exit"] == 3
    for path in (source / "closed", source / "text"):
        path.chmod(0o755)
    machine.must("pull", "data", tmp_path / "out")
    assert {"noise", "deep", "link"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_an_unreadable_source_is_no_deletion(machine: Machine, source: Path) -> None:
    machine.must("push", source, "--dataset", "data")
    source.chmod(0)
    ran = machine.spawn("push", source, "--dataset", "data", preexec_fn=without_override)
    source.chmod(0o755)
    assert ran.code not in (0, 1), ran
    assert len(ran.err.splitlines()) == 1
    assert machine.must("push", source, "--dataset", "data", "--json").result["seq"] in (1, 2)


def test_a_name_that_is_taken_in_the_target(machine: Machine, source: Path, tmp_path: Path) -> None:
    machine.must("push", source, "--dataset", "data")
    target = tmp_path / "target"
    (target / "text").mkdir(parents=True)
    refused(machine, 2, "pull", "data", target, word="text")
    (target / "text").rmdir()
    (target / "deep").unlink() if (target / "deep").is_file() else None
    machine.must("pull", "data", target)
    other = tmp_path / "other"
    other.mkdir()
    (other / "deep").write_bytes(b"a file where a directory belongs")
    refused(machine, 2, "pull", "data", other, word="deep")
    refused(machine, 2, "pull", "data", source / "text", word="text")
    refused(machine, 2, "pull", "data", tmp_path / "no/parent", word="parent")


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mount a file system of *size* at *place*, where this test may."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()[-200:]}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # this process keeps its audit log open


def test_a_full_disk_of_a_local_store(machine: Machine, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.mkdir()
    (source / "big").write_bytes(random.Random(1).randbytes(6 << 20))
    with small_disk(tmp_path / "disk", "3m") as disk:
        user = machine.sibling(tmp_path / "user", DATASYNC_REPOSITORY=str(disk / "repository"))
        user.must("init")
        refused(user, 8, "push", source, word="make room")
        assert [item for item in LocalStore(disk / "repository").list("d/") if "/snapshots/" in item.name] == []
        assert not list((disk / "repository/.~tmp").iterdir())
        subprocess.run(["mount", "-o", "remount,size=40m", disk], check=True)
        assert user.must("push", source, "--json").result["seq"] == 1
        user.must("verify", "--read-data")


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "XDG_DATA_HOME"])
def test_a_full_disk_of_this_machines_state(machine: Machine, source: Path, tmp_path: Path, variable: str) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        user = machine.sibling(tmp_path / "user", **{variable: str(disk)})
        (disk / "filler").write_bytes(bytes(60 * 1024))
        refused(user, 8, "push", source)
        subprocess.run(["mount", "-o", "remount,size=40m", disk], check=True)
        user.must("push", source)
        user.must("verify", "--read-data")


def test_a_full_disk_of_the_cache_or_the_target(machine: Machine, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.mkdir()
    (source / "big").write_bytes(random.Random(1).randbytes(6 << 20))
    machine.must("push", source)
    with small_disk(tmp_path / "disk", "4m") as disk:
        refused(machine, 8, "warm", "big", "--cache", disk / "cache", word="disk")
        refused(machine, 8, "pull", "big", disk / "out", word="make room")
        assert not list(disk.rglob("*READY*"))
        assert not (disk / "out/big").exists()


# the server


@pytest.fixture
def relayed(moto: S3Server, tmp_path: Path) -> Iterator[tuple[Machine, Relay]]:
    """A machine whose repository lies behind a relay."""
    bucket = f"bad{os.urandom(6).hex()}"
    moto.make_bucket(bucket)
    with relay(moto) as between:
        machine = Machine.make(tmp_path / "home", between.url(bucket), moto.environment())
        machine.must("init")
        yield machine, between


def after(count: int, answer: Answer) -> Callable[[Request], Answer | None]:
    """Pass *count* requests on, then answer *answer* for ever."""
    left = iter(range(count))
    return lambda _: answer if next(left, None) is None else None


@pytest.mark.parametrize("count", [0, 3, 6, 9])
def test_credentials_that_expire_in_the_middle(
    relayed: tuple[Machine, Relay], source: Path, tmp_path: Path, count: int
) -> None:
    machine, between = relayed
    between.fault = after(count, fault(403, "ExpiredToken"))
    ran = machine.run("push", source, "--dataset", "data")
    assert ran.code == 6, ran
    assert "expired" in ran.message
    assert 0 < between.faults <= IN_FLIGHT, "it went on after the refusal"
    between.heal()
    assert machine.must("push", source, "--dataset", "data", "--json").result["seq"] == 1
    machine.must("pull", "data", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(source)


@pytest.mark.parametrize("count", [1, 4])
def test_credentials_that_expire_while_warming(relayed: tuple[Machine, Relay], source: Path, count: int) -> None:
    machine, between = relayed
    machine.must("push", source, "--dataset", "data")
    between.fault = after(count, fault(403, "ExpiredToken"))
    ran = machine.run("warm", "data")
    assert ran.code == 6, ran
    assert "expired" in ran.message
    assert not ready(machine)
    between.heal()
    machine.must("warm", "data")
    assert ready(machine)


def ready(machine: Machine) -> list[Path]:
    return list((machine.home / ".cache/datasync").rglob("*.READY.json"))


SERVER_FAULTS = {
    "skewed clock": (fault(403, "RequestTimeTooSkewed", headers={"Date": "Mon, 30 Nov 2026 08:00:00 GMT"}), 6, "clock"),
    "access denied": (fault(403, "AccessDenied"), 6, "AccessDenied"),
    "500": (fault(500, "InternalError"), 5, "run the same line again"),
    "503": (fault(503, "SlowDown"), 5, "run the same line again"),
    "connection reset": (Answer(0, reset=True), 5, "run the same line again"),
    "full": (fault(507, "InsufficientStorage"), 8, "make room"),
}


@pytest.mark.parametrize("kind", SERVER_FAULTS)
@pytest.mark.parametrize("count", [6, pytest.param(0, marks=pytest.mark.long)])
def test_a_server_that_refuses(
    relayed: tuple[Machine, Relay], source: Path, tmp_path: Path, kind: str, count: int
) -> None:
    answer, code, word = SERVER_FAULTS[kind]
    machine, between = relayed
    machine.must("push", source, "--dataset", "data")
    (source / "more").write_bytes(b"more")
    fresh = machine.sibling(tmp_path / "fresh")
    for user, line in ((machine, ("push", source, "--dataset", "data")), (fresh, ("warm", "data"))):
        between.fault = after(count, answer)
        ran = user.run(*line)
        assert ran.code == code, ran
        assert word in ran.message, ran
        assert "SECRET-IN-MESSAGE" not in ran.err
        assert "Traceback" not in ran.err
    assert not ready(fresh)
    between.heal()
    assert machine.must("push", source, "--dataset", "data", "--json").result["seq"] == 2
    fresh.must("warm", "data")
    machine.must("verify", "--read-data")


def test_a_server_that_recovers_is_not_noticed(relayed: tuple[Machine, Relay], source: Path, tmp_path: Path) -> None:
    machine, between = relayed
    dice = random.Random(5)
    between.fault = lambda _: fault(503, "SlowDown") if dice.random() < 0.3 else None
    machine.must("push", source, "--dataset", "data")
    machine.must("pull", "data", tmp_path / "out")
    assert between.faults
    assert tree(tmp_path / "out") == tree(source)
    assert len(machine.must("log", "data").out.splitlines()) == 1


def cut(between: Relay, request: Request) -> Answer | None:
    """Answer a GET with status 200 and half of the body that it claims."""
    if request.method != "GET" or "list-type" in request.path:
        return None
    right = forward(between.server, request)
    return Answer(right.status, right.headers, right.body[: len(right.body) // 2], len(right.body))


def test_bodies_that_end_early(relayed: tuple[Machine, Relay], source: Path, tmp_path: Path) -> None:
    machine, between = relayed
    machine.must("push", source, "--dataset", "data")
    for number, part in enumerate(("/packs/", "/snapshots/", "/heads/", "/trust/", "/keyset/", "datasync.json")):
        fresh = machine.sibling(tmp_path / f"fresh{number}")
        between.fault = lambda request, part=part: cut(between, request) if part in request.path else None  # type: ignore[misc]
        for line in (("warm", "data"), ("pull", "data", tmp_path / "out")):
            ran = fresh.run(*line)
            assert ran.code == 5, (part, ran)
            assert part in ran.message
        assert not ready(fresh)
    between.heal()
    fresh.must("warm", "data")
    fresh.must("pull", "data", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(source)


def test_a_pack_that_the_server_denies_having(relayed: tuple[Machine, Relay], source: Path, tmp_path: Path) -> None:
    machine, between = relayed
    machine.must("push", source, "--dataset", "data")
    between.fault = lambda request: fault(404, "NoSuchKey") if "/packs/" in request.path else None
    fresh = machine.sibling(tmp_path / "fresh")
    ran = fresh.run("warm", "data")
    assert ran.code == 7, ran
    assert "/packs/" in ran.message
    assert not ready(fresh)


def test_a_bucket_that_does_not_exist(moto: S3Server, machine: Machine, source: Path, tmp_path: Path) -> None:
    user = machine.sibling(tmp_path / "user", DATASYNC_REPOSITORY=moto.url("absent"), **moto.environment())
    for line in (("push", source), ("status",), ("init",)):
        ran = user.run(*line)
        assert ran.code in (4, 10), ran
        assert "absent" in ran.message


def test_wrong_and_absent_credentials(seaweedfs: S3Server, source: Path, tmp_path: Path) -> None:
    bucket = f"key{os.urandom(6).hex()}"
    machine = Machine.make(tmp_path / "home", seaweedfs.make_bucket(bucket), seaweedfs.environment())
    machine.must("init")
    machine.must("push", source, "--dataset", "data")
    wrong = {"AWS_ACCESS_KEY_ID": seaweedfs.access_key, "AWS_SECRET_ACCESS_KEY": "WRONG-SECRET"}
    absent = {"AWS_EC2_METADATA_DISABLED": "true"}
    unknown = wrong | {"AWS_ACCESS_KEY_ID": "AKIDUNKNOWN"}
    for number, keys in enumerate((wrong, absent, unknown)):
        user = Machine.make(tmp_path / f"user{number}", machine.repository, keys)
        user.identity.parent.mkdir(parents=True)
        user.identity.write_bytes(machine.identity.read_bytes())
        user.identity.chmod(0o600)
        for line in (("push", source, "--dataset", "data"), ("warm", "data"), ("status",)):
            ran = user.run(*line)
            assert ran.code == 6, ran
            assert "WRONG-SECRET" not in ran.err
            assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"), [(StorageUnavailable("x"), 5), (NotAuthorized("x"), 6), (NoSpace("x"), 8)], ids=["5", "6", "8"]
)
@pytest.mark.parametrize(
    "part", ["datasync.json", "/trust/", "/keyset/", "/packs/", "/snapshots/", "/heads/", "/tags/"]
)
def test_a_store_that_fails_anywhere(
    machine: Machine, store: MemoryStore, source: Path, tmp_path: Path, part: str, error: Exception, code: int
) -> None:
    methods = {"get", "get_range", "put_if_absent", "list", "stat"}
    failing = Broken(store, methods, lambda name: part in name, error)
    line = ("push", source, "--dataset", "data", "--tag", "prod")
    fresh = machine.sibling(tmp_path / "fresh")
    assert fresh.run(*line, store=failing).code == code
    visible = fresh.run("ls", "data", store=store)
    assert visible.code in ((0,) if part in ("/heads/", "/tags/") else (4,)) or part == "/heads/"
    assert fresh.must(*line, "--json", store=store).result["seq"] == 1
    assert len(names(store, "/snapshots/")) == 1
    for reading in (("pull", "data:prod", tmp_path / "out"), ("warm", "data:prod")):
        other = machine.sibling(tmp_path / f"other-{reading[0]}")
        assert other.run(*reading, store=failing).code == code
        assert not ready(other)
