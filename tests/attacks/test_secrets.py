"""No secret of an identity, a passphrase, a dataset or a store is ever printed, kept in an error, or shown by repr."""

import logging
import os
import re
import tomllib
import traceback
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from datasync.config import Flags, load_config
from datasync.crypto.identity_file import read_identity
from datasync.errors import DatasyncError
from datasync.repository.belief import Holder
from datasync.repository.holders import Secrets
from datasync.service.session import Session
from datasync.storage.location import parse_url
from datasync.storage.memory import MemoryStore
from datasync.storage.s3 import S3Credentials, S3Options
from tests.support.copies import names, replace
from tests.support.faulty_server import fault
from tests.support.machine import Machine, Ran
from tests.support.relay import relay
from tests.support.servers import S3Server

PASSPHRASE = "canary passphrase 7Qx4"
S3_SECRET = "CANARY-S3-SECRET-0123456789abcdef"
S3_TOKEN = "CANARY-S3-TOKEN-0123456789abcdef"


def secrets_of(machine: Machine) -> list[str]:
    """Return every spelling of the machine's secrets that could leak: hex in both cases, repr of the bytes, text."""
    fields = tomllib.loads(machine.identity.read_text())
    texts = [PASSPHRASE, S3_SECRET, S3_TOKEN]
    for name in ("mlkem_seed", "x25519", "ed25519"):
        raw = bytes.fromhex(fields[name])
        for part in (raw, raw[:16], raw[-16:]):
            texts += [part.hex(), part.hex().upper(), repr(part)[2:-1], repr(list(part))[1:-1]]
    return texts


def clean(machine: Machine, text: str, where: object = "") -> None:
    for secret in secrets_of(machine):
        assert secret not in text, f"a secret is shown: {where}"


@pytest.fixture
def keyed(machine: Machine, tmp_path: Path) -> Machine:
    """A machine whose passphrase and store secrets are canaries."""
    extra = {"AWS_ACCESS_KEY_ID": "AKIDCANARY", "AWS_SECRET_ACCESS_KEY": S3_SECRET, "AWS_SESSION_TOKEN": S3_TOKEN}
    return machine.sibling(tmp_path / "keyed", DATASYNC_PASSPHRASE=PASSPHRASE, **extra)


def ways(machine: Machine, *line: str | Path, store: MemoryStore | None = None) -> Iterator[Ran]:
    """Run *line* in every verbosity."""
    for options in ((), ("-vv",), ("--json", "-vv"), ("-q",)):
        yield machine.run(*line, *options, store=store)


def test_failures_of_every_kind_show_no_secret(
    keyed: Machine, store: MemoryStore, source: Path, tmp_path: Path
) -> None:
    keyed.must("push", source, "--dataset", "data", store=store)
    failed = 0
    for name in names(store):
        broken = MemoryStore()
        for other in names(store):
            data = bytearray(store.get(other, limit=1 << 26))
            if other == name:
                data[len(data) // 3 if "/trust/" not in name else 40] ^= 1
            replace(broken, other, bytes(data))
        for number, user in enumerate((keyed, keyed.sibling(tmp_path / f"fresh{failed}"))):
            target = tmp_path / f"out{failed}{number}"
            for line in (("pull", "data", target), ("verify", "--read-data"), ("push", source, "--dataset", "data")):
                for ran in ways(user, *line, store=broken):
                    clean(keyed, ran.out + ran.err, (name, line))
                    failed += ran.code != 0
    assert failed > 20


def test_commands_that_succeed_show_no_secret(keyed: Machine, store: MemoryStore, source: Path, tmp_path: Path) -> None:
    lines: list[tuple[str | Path, ...]] = [
        ("push", source, "--dataset", "data", "--tag", "prod"), ("pull", "data", tmp_path / "out"), ("warm", "data"),
        ("status",), ("ls",), ("ls", "data"), ("log", "data"), ("du", "data"), ("tag", "data"), ("verify",),
        ("config",),
    ]  # fmt: skip
    for line in lines:
        for ran in ways(keyed, *line, store=store):
            assert ran.code == 0, ran
            clean(keyed, ran.out + ran.err, line)


def test_a_broken_identity_file_is_not_quoted(keyed: Machine) -> None:
    text = keyed.identity.read_text()
    whole = secrets_of(keyed)
    for broken in (text.replace('"', "", 3), text + "x", text.replace("ed25519", "ed", 1), text[:-40], text.upper()):
        keyed.identity.write_text(broken)
        for ran in ways(keyed, "status"):
            assert ran.code in (2, 12), ran
            assert not any(secret in ran.out + ran.err for secret in whole)


def test_unexpected_errors_show_no_secret(keyed: Machine, store: MemoryStore, source: Path) -> None:
    for target in ("datasync.repository.repository.open_keyset", "datasync.service.push.push"):
        with mock.patch(target, side_effect=RuntimeError("something nobody thought of")):
            for ran in ways(keyed, "push", source, "--dataset", "data", store=store):
                assert ran.code == 1, ran
                clean(keyed, ran.out + ran.err, target)


@pytest.mark.parametrize("code", ["SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "InternalError", "Odd"])
def test_s3_failures_show_no_secret(keyed: Machine, moto: S3Server, source: Path, tmp_path: Path, code: str) -> None:
    bucket = f"secret{os.urandom(6).hex()}"
    moto.make_bucket(bucket)
    with relay(moto) as between:
        user = keyed.sibling(tmp_path / "user", DATASYNC_REPOSITORY=between.url(bucket))
        user.must("init")
        echo = f"<StringToSign>{S3_SECRET}</StringToSign><Token-0>{S3_TOKEN}</Token-0>"
        between.fault = lambda _: fault(500 if code == "InternalError" else 403, code, extra=echo)
        for ran in ways(user, "push", source, "--dataset", "data"):
            assert ran.code in (5, 6), ran
            clean(keyed, ran.out + ran.err, code)


@pytest.mark.parametrize(
    "url", [f"s3://key:{S3_SECRET}@bucket/x", f"s3://b/x?secret={S3_SECRET}", f"s3://b?endpoint=http://k:{S3_SECRET}@h",
            f"https://k:{S3_SECRET}@h/x"],
)  # fmt: skip
def test_a_secret_in_a_url_is_refused_and_not_repeated(keyed: Machine, tmp_path: Path, url: str) -> None:
    user = keyed.sibling(tmp_path / "user", DATASYNC_REPOSITORY=url)
    for line in (("status",), ("init",), ("verify",)):
        for ran in ways(user, *line):
            assert ran.code == 2, ran
            clean(keyed, ran.out + ran.err, line)


def test_no_object_shows_a_secret_by_repr(keyed: Machine, store: MemoryStore, source: Path) -> None:
    keyed.must("push", source, "--dataset", "data", store=store)
    with mock.patch.dict(os.environ, keyed.environment(), clear=True):
        session = Session(load_config(Flags()))
        identity = read_identity(keyed.identity)
        with mock.patch("datasync.service.session.open_store", return_value=store):
            dataset = session.repository.open("data")
        ring = dataset.keyring
        shown = [
            session.config, session, identity, identity.key_pair, identity.signing_key, dataset, ring, ring.fixed,
            *ring.epochs.values(), ring.sealing(1), Holder(Secrets(identity, PASSPHRASE)), dataset.history,
            session.repository, session.repository.holder, S3Options(S3Credentials("AKIDCANARY", S3_SECRET, S3_TOKEN)), parse_url("s3://bucket/x"),
        ]  # fmt: skip
        own = [
            ring.fixed.id_key,
            ring.fixed.page_cut,
            ring.fixed.link,
            ring.sealing(1).material,
            ring.sealing(1).salt_key,
        ]
        own += [key for epoch in ring.epochs.values() for key in (epoch.root or b"", epoch.metadata, epoch.data or b"")]
        for item in shown:
            text = f"{item!r} {item}"
            clean(keyed, text, type(item).__name__)
            for key in own:
                assert not key or (key.hex() not in text and repr(key)[2:-1] not in text), type(item).__name__
            assert str(ring.fixed.chunker_seed) not in text
        session.close()


def test_errors_that_are_alive_hold_no_secret_text(keyed: Machine, store: MemoryStore, source: Path) -> None:
    keyed.must("push", source, "--dataset", "data", store=store)
    name = names(store, "/keyset/")[0]
    data = bytearray(store.get(name, limit=1 << 26))
    data[100] ^= 1
    replace(store, name, bytes(data))
    caught: list[BaseException] = []

    def keep(_: list[str], error: BaseException, *rest: object, **more: object) -> int:
        caught.append(error)
        return 7

    with mock.patch("datasync.cli.main._fail", side_effect=keep):
        keyed.sibling(keyed.home / "fresh").run("pull", "data", source / "out", store=store)
    (error,) = caught
    assert isinstance(error, DatasyncError)
    clean(keyed, "".join(traceback.format_exception(error)) + repr(error) + repr(error.args))


def test_logging_of_everything_shows_no_secret(
    keyed: Machine, store: MemoryStore, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "datasync"):
        keyed.must("push", source, "--dataset", "data", store=store)
        keyed.must("verify", "--read-data", store=store)
    clean(keyed, caplog.text)


def test_the_store_holds_no_secret_and_no_name(keyed: Machine, store: MemoryStore, source: Path) -> None:
    (source / "canary-file-name").write_bytes(b"canary-file-content" * 10)
    keyed.must(
        "push", source, "--dataset", "canary-dataset", "--tag", "canary-tag", "-m", "canary-message", store=store
    )
    fields = tomllib.loads(keyed.identity.read_text())
    raw = [bytes.fromhex(fields[name]) for name in ("mlkem_seed", "x25519", "ed25519")]
    for name in names(store):
        data = store.get(name, limit=1 << 26)
        assert not re.search(rb"canary", data), name
        assert "canary" not in name
        assert not any(secret in data for secret in raw)


def test_local_state_holds_no_private_key(keyed: Machine, store: MemoryStore, source: Path) -> None:
    keyed.must("push", source, "--dataset", "data", store=store)
    fields = tomllib.loads(keyed.identity.read_text())
    raw = [bytes.fromhex(fields[name]) for name in ("mlkem_seed", "x25519", "ed25519")] + [PASSPHRASE.encode()]
    for path in keyed.home.rglob("*"):
        if path.is_file() and path != keyed.identity:
            data = path.read_bytes()
            assert not any(secret in data or secret.hex().encode() in data for secret in raw), path
    assert keyed.identity.stat().st_mode & 0o777 == 0o600
