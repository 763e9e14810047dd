"""No seed, passphrase, kit or dataset key is printed, kept in an error, logged, recorded or shown by repr."""

import base64
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace as changed
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from datasync.config import Flags, load_config
from datasync.crypto import kdf
from datasync.crypto.identity import SealedSecrets
from datasync.crypto.identity_file import read_identity, replace_identity
from datasync.crypto.kdf import EpochKeys
from datasync.crypto.recovery import parse_recovery, recovery_text
from datasync.errors import DatasyncError
from datasync.repository.belief import Holder
from datasync.repository.holders import Grantee, Secrets
from datasync.service.recovery import Kit
from tests.keys.forge import DATASET, Cast, keyset_in, only_slot, opened, put_keyset, session, signer, with_slot
from tests.support.copies import LIMIT, names, replace
from tests.support.machine import Ran
from tests.support.people import Person

DATASET_PASSPHRASE = "canary-of-the-dataset 9Zt1"
IDENTITY_PASSPHRASE = "canary-of-the-identity 3Kp8"


def spellings(raw: bytes) -> set[str]:
    """Return how *raw*, or half of it, could leak as text."""
    found: set[str] = set()
    for part in (raw, raw[:16], raw[-16:], raw[: len(raw) // 3 * 3], raw[: len(raw) // 5 * 5]):
        encoded = base64.b32encode(part).decode().rstrip("=")
        plain = base64.b64encode(part).decode().rstrip("=")
        url = base64.urlsafe_b64encode(part).decode().rstrip("=")
        found |= {part.hex(), part.hex().upper(), encoded, encoded.lower(), plain, url, repr(part)[2:-1]}
        found |= {repr(list(part))[1:-1], str(int.from_bytes(part, "big")), str(int.from_bytes(part, "little"))}
    return {text for text in found if len(text) >= 16}


class Canaries:
    """Every secret of the owner's machine and of the dataset, in every spelling."""

    def __init__(self, who: Person, kit: str) -> None:
        passphrase = mock.Mock(return_value=IDENTITY_PASSPHRASE)
        identity = read_identity(who.machine.identity, passphrase)
        self.raw = [identity.seed[:64], identity.seed[64:], identity.signing_seed, parse_recovery(kit)]
        with opened(who) as dataset:
            ring = dataset.keyring
        for keys in ring.epochs.values():
            self.raw += [key for key in (keys.root, keys.metadata, keys.data) if key]
        self.raw += [ring.fixed.id_key, ring.fixed.page_cut, ring.fixed.link]
        self.texts = {DATASET_PASSPHRASE, IDENTITY_PASSPHRASE, kit, kit.replace("-", ""), kit[6:40]}
        for item in self.raw:
            self.texts |= spellings(item)

    def absent(self, text: str, where: object) -> None:
        for secret in self.texts:
            assert secret not in text, f"a secret is shown: {where}"

    def absent_in_bytes(self, data: bytes, where: object) -> None:
        assert not any(item in data for item in self.raw), where
        self.absent(data.decode("latin-1"), where)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2id at its lowest cost: what is printed does not depend on it."""

    def cheap(*, salt: bytes, length: int, **cost: int) -> object:
        assert cost["memory_cost"] >= kdf.ARGON2_MIN_KIB
        return Argon2id(salt=salt, length=length, iterations=1, lanes=1, memory_cost=8)

    monkeypatch.setattr(kdf, "Argon2id", cheap)


@pytest.fixture
def keyed(cast: Cast) -> Person:
    """The owner, whose identity is sealed, and a dataset with a passphrase slot."""
    extra = {"DATASYNC_PASSPHRASE": DATASET_PASSPHRASE, "DATASYNC_IDENTITY_PASSPHRASE": IDENTITY_PASSPHRASE}
    who = Person("olga", changed(cast.olga.machine, extra=extra), cast.store)
    identity = read_identity(who.machine.identity)
    replace_identity(who.machine.identity, identity.with_passphrase(IDENTITY_PASSPHRASE))
    who.must("key", "grant", DATASET, "passphrase")
    return who


@pytest.fixture
def kit(cast: Cast, keyed: Person) -> str:
    """The secret of a recovery kit."""
    path = cast.place()
    keyed.must("key", "export-recovery", "--output", path)
    assert path.stat().st_mode & 0o777 == 0o600
    return next(line.strip() for line in path.read_text().splitlines() if "DSRK1" in line)


@pytest.fixture
def canaries(keyed: Person, kit: str) -> Canaries:
    return Canaries(keyed, kit)


def ways(who: Person, *line: str | Path) -> Iterator[Ran]:
    """Run *line* in every verbosity."""
    for options in ((), ("-vv",), ("--json", "-vv"), ("-q",)):
        yield who.run(*line, *options)


def quiet(canaries: Canaries, who: Person, *line: str | Path) -> int:
    """Check what *line* prints in every verbosity; return how often it failed."""
    failed = 0
    for ran in ways(who, *line):
        canaries.absent(ran.out + ran.err, line)
        failed += ran.code != 0
    return failed


def test_the_canaries_would_be_found(canaries: Canaries) -> None:
    for item in canaries.raw:
        for text in (item.hex(), base64.b64encode(item).decode(), f"{item!r}", base64.b32encode(item).decode()):
            with pytest.raises(AssertionError, match="a secret is shown"):
                canaries.absent(f"x{text}y", "here")


def test_commands_that_succeed_show_no_secret(cast: Cast, keyed: Person, canaries: Canaries) -> None:
    anna = cast.person("anna")
    lines: list[tuple[str | Path, ...]] = [
        ("key", "show"), ("key", "list", DATASET), ("key", "grant", DATASET, anna.public(), "--role", "writer"),
        ("key", "rotate", DATASET), ("key", "owners", DATASET, "--expires", "never"), ("status",), ("config",),
        ("push", cast.source, "--dataset", DATASET), ("pull", DATASET, cast.place()), ("verify", DATASET),
    ]  # fmt: skip
    for line in lines:
        assert quiet(canaries, keyed, *line) in (0, 3), line  # a pull into the same directory is refused


def test_failures_of_key_commands_show_no_secret(cast: Cast, keyed: Person, canaries: Canaries, kit: str) -> None:
    page = cast.place()
    page.write_text(f"secret\n  {kit[:-1]}\n")
    lines: list[tuple[str | Path, ...]] = [
        ("key", "init"), ("key", "recover", "--kit", page), ("key", "grant", DATASET, "nonsense"),
        ("key", "grant", DATASET, keyed.machine.identity, "--role", "nonsense"),
        ("key", "grant", DATASET, "passphrase", "--role", "writer"), ("key", "revoke", DATASET, "nobody"),
        ("key", "owners", DATASET, "--threshold", "9"), ("key", "accept", DATASET, "00" * 32),
        ("key", "cosign", DATASET, keyed.machine.identity), ("key", "certificate", keyed.machine.identity),
        ("key", "export-recovery", "--output", page), ("key", "passphrase"), ("key", "shred", DATASET),
    ]  # fmt: skip
    for line in lines:
        assert quiet(canaries, keyed, *line) == 4, line


def test_wrong_keys_and_changed_objects_show_no_secret(cast: Cast, keyed: Person, canaries: Canaries) -> None:
    failed = 0
    for name in names(cast.store, f"d/{cast.dataset}/"):
        data = cast.store.get(name, limit=LIMIT)
        flipped = bytearray(data)
        flipped[len(data) // 3 if "/packs/" in name else 40] ^= 1
        replace(cast.store, name, bytes(flipped))
        fresh = Person("olga", keyed.machine.sibling(cast.place()), cast.store)
        failed += quiet(canaries, fresh, "pull", DATASET, cast.place())
        failed += quiet(canaries, fresh, "key", "list", DATASET)
        replace(cast.store, name, data)
    assert failed > 20


@pytest.mark.parametrize("part", ["wrapped", "params", "fingerprint", "label"])
def test_slots_that_do_not_open_show_no_secret(cast: Cast, keyed: Person, canaries: Canaries, part: str) -> None:
    keyset = keyset_in(cast.store)
    slot = only_slot(keyset, cast.rita)
    value = bytearray(getattr(slot, part))
    value[-1] ^= 1
    other = msgspec.structs.replace(slot, **{part: bytes(value)})
    identity = read_identity(keyed.machine.identity, lambda: IDENTITY_PASSPHRASE)
    put_keyset(cast.store, msgspec.structs.replace(keyset, slots=with_slot(keyset, other)), identity.signing_key)
    fresh = Person("rita", cast.fresh(cast.rita), cast.store)
    for raw in (read_identity(fresh.machine.identity).secrets[:64], read_identity(fresh.machine.identity).signing_seed):
        canaries.texts |= spellings(raw)
    failed = quiet(canaries, fresh, "pull", DATASET, cast.place())
    failed += quiet(canaries, keyed, "key", "list", DATASET)
    assert failed or part in ("fingerprint", "label")


def test_unexpected_errors_show_no_secret(cast: Cast, keyed: Person, canaries: Canaries) -> None:
    for target in (
        "datasync.repository.repository.open_keyset", "datasync.repository.holders.open_slot",
        "datasync.crypto.slots._unwrap", "datasync.crypto.identity.open_box", "datasync.service.access.parse_signer",
        "datasync.repository.amend.write_keyset", "datasync.repository.succession.make_slot",
    ):  # fmt: skip
        with mock.patch(target, side_effect=RuntimeError("something nobody thought of")):
            quiet(canaries, keyed, "key", "grant", DATASET, cast.will.public(), "--role", "tagger")
            quiet(canaries, keyed, "key", "rotate", DATASET)


def test_errors_that_are_alive_hold_no_secret_text(cast: Cast, keyed: Person, canaries: Canaries) -> None:
    caught: list[BaseException] = []

    def keep(_: list[str], error: BaseException, *rest: object, **more: object) -> int:
        caught.append(error)
        return 7

    wrong = Person("olga", changed(keyed.machine, extra={"DATASYNC_IDENTITY_PASSPHRASE": "no"}), cast.store)
    with mock.patch("datasync.cli.main._fail", side_effect=keep):
        wrong.run("key", "list", DATASET)
        keyed.run("key", "revoke", DATASET, "nobody")
        keyed.run("key", "init")
    assert caught
    for error in caught:
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=False).format())
        canaries.absent(text + repr(error) + repr(error.args) + str(getattr(error, "__notes__", "")), error)
        assert isinstance(error, DatasyncError), error


def test_logging_of_everything_shows_no_secret(
    cast: Cast, keyed: Person, canaries: Canaries, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        keyed.must("key", "grant", DATASET, cast.will.public(), "--role", "tagger")
        keyed.must("key", "rotate", DATASET)
        keyed.run("pull", "nothing", cast.place())
    canaries.absent(caplog.text, "log")


def test_no_file_but_the_identity_and_the_kit_holds_a_secret(
    cast: Cast, keyed: Person, canaries: Canaries, kit: str
) -> None:
    cast.person("lab")
    keyed.must("key", "rotate", DATASET, "--full")
    keyed.must("push", cast.source, "--dataset", DATASET)
    keyed.run("pull", "nothing", cast.place())
    keyed.must("verify", DATASET, "--read-data")
    seen = 0
    for path in keyed.machine.home.rglob("*"):
        if path.is_file():
            canaries.absent_in_bytes(path.read_bytes(), path)  # the identity too: it is sealed
            seen += 1
    assert seen > 5
    assert any("audit" in str(path) for path in keyed.machine.home.rglob("*"))


def test_the_store_holds_no_secret(cast: Cast, keyed: Person, canaries: Canaries) -> None:
    keyed.must("key", "rotate", DATASET, "--full")
    for name in names(cast.store):
        canaries.absent_in_bytes(cast.store.get(name, limit=LIMIT), name)
        canaries.absent(name, name)


def test_what_is_handed_on_holds_no_secret(cast: Cast, keyed: Person, canaries: Canaries) -> None:
    """Public files, proposals, certificates."""
    public, certificate = keyed.public(), cast.place()
    keyed.must("key", "shred", DATASET, "--yes", "--output", certificate)
    for path in (public, certificate, certificate.with_suffix(".html")):
        canaries.absent_in_bytes(path.read_bytes(), path)


def test_no_object_shows_a_secret_by_repr(cast: Cast, keyed: Person, canaries: Canaries, kit: str) -> None:
    with mock.patch.dict(os.environ, keyed.machine.environment(), clear=True):
        config = load_config(Flags())
    with session(keyed) as made:
        identity, secrets, dataset = made.identity, made.secrets, made.repository.open(DATASET)
        assert identity is not None
        ring = dataset.keyring
        seed = parse_recovery(kit)
        shown = [
            config, made, made.repository, made.repository.holder, identity, identity.public, identity.key_pair,
            identity.signing_key, identity.sealed, secrets, dataset, dataset.history, dataset.trusted, dataset.keyset,
            ring, ring.fixed, *ring.epochs.values(), ring.sealing(1), EpochKeys.from_root(1, canaries.raw[4]),
            SealedSecrets.seal(identity.secrets, identity.signing_key.public, IDENTITY_PASSPHRASE),
            Holder(secrets), Secrets(identity, DATASET_PASSPHRASE), Kit(seed, "url", ((DATASET, "00" * 32),)),
            Grantee("name", identity.recipient, DATASET_PASSPHRASE), signer(cast.will),
        ]  # fmt: skip
        for item in shown:
            canaries.absent(f"{item!r} {item} {[item]!r} {(item,)}", type(item).__name__)
            canaries.absent(f"{getattr(item, '__dict__', None)}", type(item).__name__) if item is made else None


def test_no_secret_is_an_argument_or_a_flag(cast: Cast, keyed: Person) -> None:
    for command in ("init", "passphrase", "grant", "recover", "export-recovery", "rotate", "shred"):
        helped = keyed.machine.must("key", command, "--help").out
        assert "--passphrase TEXT" not in helped
        assert "--secret" not in helped
        assert "--seed" not in helped
    ran = keyed.run("key", "passphrase")
    assert ran.code == 2
    assert "secrets are no flags" in ran.message
    assert sys.argv  # this process's own, untouched


def test_a_kit_typed_wrongly_is_not_repeated(cast: Cast, keyed: Person, canaries: Canaries, kit: str) -> None:
    path = cast.place()
    other = Person("heir", keyed.machine.sibling(cast.place()), cast.store)
    other.machine.identity.unlink()
    for broken in (kit[:-1], kit[:20] + "AAAA" + kit[24:], kit.replace("DSRK1", "DSRK9"), kit + kit,
                   recovery_text(parse_recovery(kit))[:-3]):  # fmt: skip
        path.write_text(broken)
        for ran in ways(other, "key", "recover", "--kit", path):
            assert ran.code == 12, ran
            assert kit[6:26] not in ran.out + ran.err
            canaries.absent(ran.out + ran.err, broken)
