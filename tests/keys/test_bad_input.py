"""What is wrong about keys is told in one line with its exit code, and nothing is stored."""

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as changed
from pathlib import Path

import pytest

from datasync.crypto.identity import Identity
from datasync.crypto.identity_file import read_identity, replace_identity
from datasync.crypto.recipients import X25519, Recipient
from datasync.crypto.recovery import recovery_text
from datasync.crypto.signatures import signer_text
from tests.keys.forge import DATASET, Cast, told
from tests.support.copies import LIMIT, names
from tests.support.people import Person

PASSPHRASE = "a passphrase of the identity"


@contextmanager
def unchanged(cast: Cast) -> Iterator[None]:
    """Check that nothing is stored, changed or deleted inside."""
    before = {name: cast.store.get(name, limit=LIMIT) for name in names(cast.store)}
    yield
    assert {name: cast.store.get(name, limit=LIMIT) for name in names(cast.store)} == before


def bad(cast: Cast, who: Person, code: int, *line: str | Path, words: str = "") -> None:
    """Check that *who*'s command is refused with *code* in one line, and stores nothing."""
    with unchanged(cast):
        told(who.run(*line), words, code=code)


# the identity's file


def sealed(cast: Cast, **extra: str) -> Person:
    """Return the reader on a machine where its identity is sealed."""
    machine = cast.rita.machine.sibling(cast.place(), **extra)
    replace_identity(machine.identity, read_identity(machine.identity).with_passphrase(PASSPHRASE))
    return Person("rita", machine, cast.store)


def test_the_right_passphrase_of_an_identity(cast: Cast) -> None:
    sealed(cast, DATASYNC_IDENTITY_PASSPHRASE=PASSPHRASE).must("pull", DATASET, cast.place())


def test_a_wrong_passphrase_of_an_identity(cast: Cast) -> None:
    guess = sealed(cast, DATASYNC_IDENTITY_PASSPHRASE="wrong")
    bad(cast, guess, 12, "pull", DATASET, cast.place(), words=str(guess.machine.identity))


def test_no_passphrase_for_a_sealed_identity(cast: Cast) -> None:
    bad(cast, sealed(cast), 12, "pull", DATASET, cast.place(), words="DATASYNC_IDENTITY_PASSPHRASE")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [(", 65536, 3, 4]", ", 8, 3, 4]", 7), (", 65536, 3, 4]", ", 65536, 1, 4]", 7),
     (", 65536, 3, 4]", ", 99999999, 3, 4]", 7), (", 65536, 3, 4]", ", 65536, 3]", 12),
     ('sealed = "', 'sealed = "00', 12)],
)  # fmt: skip
def test_a_sealed_identity_that_somebody_edited(cast: Cast, old: str, new: str, code: int) -> None:
    who = sealed(cast, DATASYNC_IDENTITY_PASSPHRASE=PASSPHRASE)
    text = who.machine.identity.read_text()
    assert old in text
    who.machine.identity.write_text(text.replace(old, new))
    bad(cast, who, code, "pull", DATASET, cast.place(), words=str(who.machine.identity))


def test_a_sealed_identity_with_the_signer_of_another(cast: Cast) -> None:
    who = sealed(cast, DATASYNC_IDENTITY_PASSPHRASE=PASSPHRASE)
    text = who.machine.identity.read_text()
    mine = signer_text(read_identity(cast.rita.machine.identity).signing_key.public)
    who.machine.identity.write_text(text.replace(mine, cast.will.must("key", "show")["signer"]))
    bad(cast, who, 12, "pull", DATASET, cast.place(), words=str(who.machine.identity))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o700 | 0o010])
def test_a_key_file_that_is_too_open(cast: Cast, mode: int) -> None:
    cast.rita.machine.identity.chmod(mode)
    bad(cast, cast.rita, 2, "pull", DATASET, cast.place(), words="chmod 600")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another user needs root")
def test_a_key_file_of_another_user(cast: Cast) -> None:
    os.chown(cast.rita.machine.identity, 12345, -1)
    bad(cast, cast.rita, 2, "pull", DATASET, cast.place(), words="owned by uid 0, found 12345")


def test_a_key_file_that_is_a_link(cast: Cast) -> None:
    path = cast.rita.machine.identity
    path.rename(path.with_name("real"))
    path.symlink_to("real")
    bad(cast, cast.rita, 2, "pull", DATASET, cast.place(), words=str(path))


def test_a_second_identity_is_not_made_over_the_first(cast: Cast) -> None:
    before = cast.rita.machine.identity.read_bytes()
    bad(cast, cast.rita, 2, "key", "init", words="not overwritten")
    assert cast.rita.machine.identity.read_bytes() == before


def test_an_identity_without_a_slot(cast: Cast) -> None:
    stranger = cast.person("stranger")
    for line in (
        ("pull", DATASET, cast.place()),
        ("push", cast.source, "--dataset", DATASET),
        ("key", "list", DATASET),
    ):
        bad(cast, stranger, 12, *line, words="no slot for this identity")


def test_a_wrong_passphrase_of_a_dataset(cast: Cast) -> None:
    owner = Person("olga", changed(cast.olga.machine, extra={"DATASYNC_PASSPHRASE": "right"}), cast.store)
    owner.must("key", "grant", DATASET, "passphrase")
    machine = cast.rita.machine.sibling(cast.place(), DATASYNC_PASSPHRASE="wrong", DATASYNC_TRUST=cast.dataset)
    machine.identity.unlink()
    bad(cast, Person("guess", machine, cast.store), 12, "pull", DATASET, cast.place(), words="no slot")


def test_a_new_epoch_without_the_passphrase_that_a_slot_needs(cast: Cast) -> None:
    owner = Person("olga", changed(cast.olga.machine, extra={"DATASYNC_PASSPHRASE": "right"}), cast.store)
    owner.must("key", "grant", DATASET, "passphrase")
    bad(cast, cast.olga, 12, "key", "rotate", DATASET, words="DATASYNC_PASSPHRASE")
    bad(cast, cast.olga, 12, "key", "revoke", DATASET, "rita", words="DATASYNC_PASSPHRASE")
    owner.must("key", "revoke", DATASET, "rita")


# clocks


def test_a_clock_before_the_grant(cast: Cast, shifted: Callable[[float], None]) -> None:
    fresh = Person("rita", cast.fresh(cast.rita), cast.store)
    shifted(-3600)
    bad(cast, fresh, 12, "pull", DATASET, cast.place(), words="access begins at")
    shifted(-60)
    fresh.must("pull", DATASET, cast.place())  # clocks that are right differ by minutes


@pytest.mark.parametrize("known", [True, False])
def test_a_clock_after_the_end_of_a_slot(cast: Cast, shifted: Callable[[float], None], known: bool) -> None:
    anna = cast.person("anna")
    cast.olga.grant(DATASET, anna, "reader", "--until", "1d")
    who = anna if known else Person("anna", cast.fresh(anna), cast.store)
    who.must("pull", DATASET, cast.place()) if known else None
    shifted(25 * 3600)
    bad(cast, who, 12, "pull", DATASET, cast.place(), words="access ended at")


def test_a_clock_that_is_wrong_is_put_right_by_what_writers_signed(
    cast: Cast, shifted: Callable[[float], None]
) -> None:
    anna = cast.person("anna")
    cast.olga.grant(DATASET, anna, "reader", "--until", "22h")
    shifted(23 * 3600)
    cast.push(cast.will)
    shifted(0)
    anna.must("pull", DATASET, cast.place())  # nothing here tells the time yet
    bad(cast, anna, 12, "pull", DATASET, cast.place(), words="access ended at")


def test_a_clock_after_the_end_of_a_writers_time(cast: Cast, shifted: Callable[[float], None]) -> None:
    anna = cast.person("anna")
    cast.olga.grant(DATASET, anna, "writer", "--until", "1d")
    cast.olga.must("key", "grant", DATASET, anna.must("key", "show")["recipient"], "--name", "anna")  # reads for ever
    anna.must("pull", DATASET, cast.place())
    shifted(25 * 3600)
    bad(cast, anna, 6, "push", cast.source, "--dataset", DATASET, "--source-change", words="its time has ended")
    anna.must("pull", DATASET, cast.place())


# grants


@pytest.mark.parametrize("role", ["writer", "owner", "push-only", "tagger", "auditor"])
def test_a_role_that_signs_without_a_signer(cast: Cast, role: str) -> None:
    recipient = Identity.generate().recipient.text
    bad(cast, cast.olga, 2, "key", "grant", DATASET, recipient, "--role", role, words="dss1")


@pytest.mark.parametrize(
    "text", ["nonsense", "", "dsr1", "dsr1hAAAA", "dss1qqqq", "age1qqqq", "nokms://key", "/dev/null", "pass phrase"]
)
def test_a_recipient_that_is_none(cast: Cast, text: str) -> None:
    bad(cast, cast.olga, 2, "key", "grant", DATASET, text)


def test_a_recipient_with_a_letter_wrong_or_missing(cast: Cast) -> None:
    whole = Identity.generate().recipient.text
    for text in (whole[:-1], whole[:40] + ("a" if whole[40] != "a" else "b") + whole[41:], whole + "a", whole.upper(),
                 "dsr1x" + whole[5:]):  # fmt: skip
        bad(cast, cast.olga, 2, "key", "grant", DATASET, text, words="dsr1")


def test_a_recipient_that_is_no_point(cast: Cast) -> None:
    text = Recipient(X25519, bytes(32)).text
    with unchanged(cast):
        assert cast.olga.run("key", "grant", DATASET, text).code in (2, 7)


@pytest.mark.parametrize("until", ["yesterday", "2001-01-01", "-1d", "0d", "1y", ""])
def test_an_end_that_is_none(cast: Cast, until: str) -> None:
    anna = cast.person("anna")
    if until:
        bad(cast, cast.olga, 2, "key", "grant", DATASET, anna.public(), f"--until={until}", words="time")


@pytest.mark.parametrize("who", ["rita", "will"])
@pytest.mark.parametrize(
    "line", [("grant", DATASET, "PUBLIC"), ("grant", DATASET, "PUBLIC", "--role", "owner"), ("revoke", DATASET, "olga"),
             ("rotate", DATASET), ("rotate", DATASET, "--full"), ("owners", DATASET, "--threshold", "1"),
             ("shred", DATASET, "--yes")],
)  # fmt: skip
def test_a_change_by_who_does_not_own_it(cast: Cast, who: str, line: tuple[str, ...]) -> None:
    person: Person = getattr(cast, who)
    given = [str(person.public()) if item == "PUBLIC" else item for item in line]
    more = ["--output", str(cast.place())] if line[0] == "shred" else []
    bad(cast, person, 6, "key", *given, *more, words="does not own it")


def test_a_removed_signer_is_not_granted_again(cast: Cast) -> None:
    public = cast.will.public()
    cast.olga.must("key", "revoke", DATASET, "will")
    bad(cast, cast.olga, 2, "key", "grant", DATASET, public, "--role", "writer", words="it was removed")
    cast.olga.must("key", "grant", DATASET, public, "--name", "will")  # it may read
    cast.accepted(cast.will)


def test_an_owner_who_would_shut_itself_out(cast: Cast) -> None:
    bad(cast, cast.olga, 2, "key", "grant", DATASET, cast.olga.public(), "--role", "auditor", words="narrow its own")
    bad(cast, cast.olga, 2, "key", "grant", DATASET, cast.olga.public(), "--until", "1h", words="narrow its own")
    cast.accepted(cast.olga)


# revoking and owners


def test_an_owner_does_not_revoke_itself(cast: Cast) -> None:
    holders = cast.olga.must("key", "list", DATASET)["holders"]
    (mine,) = [item for item in holders if "owner" in item["roles"]]
    for who in (mine["name"], mine["fingerprint"][:8], mine["signer"], mine["slot"]):
        bad(cast, cast.olga, 2, "key", "revoke", DATASET, who, words="does not revoke itself")


@pytest.mark.parametrize("who", ["nobody", "", "ri", "r", "00", "rita "])
def test_nobody_of_that_name(cast: Cast, who: str) -> None:
    bad(cast, cast.olga, 4, "key", "revoke", DATASET, who, words="datasync key list")


@pytest.mark.parametrize("threshold", ["2", "64"])
def test_a_threshold_above_the_owners(cast: Cast, threshold: str) -> None:
    bad(cast, cast.olga, 2, "key", "owners", DATASET, "--threshold", threshold, words="needs as many owners")


def test_a_threshold_that_is_none(cast: Cast) -> None:
    for threshold in ("0", "65", "-1", "x"):
        with unchanged(cast):
            assert cast.olga.run("key", "owners", DATASET, f"--threshold={threshold}").code == 2
    bad(cast, cast.olga, 2, "key", "owners", DATASET, words="--threshold or --expires")


# accepting


@pytest.mark.parametrize("trust", ["", "00", "zz" * 32, "00" * 31, "AB" * 32])
def test_a_trust_root_that_is_none(cast: Cast, trust: str) -> None:
    bad(cast, cast.rita, 2, "key", "accept", DATASET, trust, words="64 hex digits")


def test_a_wrong_trust_root(cast: Cast) -> None:
    before = cast.rita.machine.identity.read_bytes()
    bad(cast, cast.rita, 4, "key", "accept", DATASET, "00" * 32, words="0000000000000000")
    bad(cast, cast.rita, 4, "key", "accept", "another", cast.dataset, words="take both from the owner's line")
    assert cast.rita.machine.identity.read_bytes() == before


def test_accepting_what_was_not_granted(cast: Cast) -> None:
    stranger = cast.person("stranger")
    before = stranger.machine.identity.read_bytes()
    bad(cast, stranger, 12, "key", "accept", DATASET, cast.dataset, words="no slot")
    assert stranger.machine.identity.read_bytes() == before


# kits


def heir(cast: Cast) -> Person:
    machine = cast.rita.machine.sibling(cast.place())
    machine.identity.unlink()
    return Person("heir", machine, cast.store)


@pytest.mark.parametrize(
    "text",
    ["", "DSRK1", "DSRK1-AAAA", "nonsense", recovery_text(bytes(32))[:-1], recovery_text(bytes(32)) + "A",
     recovery_text(bytes(32)).replace("A", "B", 1), recovery_text(bytes(32)).replace("DSRK1", "DSRK2"),
     "datasync-recovery:1?secret=&trust=", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")],
)  # fmt: skip
def test_a_kit_with_a_wrong_letter_or_without_a_secret(cast: Cast, text: str) -> None:
    who, kit = heir(cast), cast.place()
    kit.write_text(text)
    bad(cast, who, 12, "key", "recover", "--kit", kit, words="recovery secret")
    assert not who.machine.identity.exists()


def test_a_kit_that_is_no_text(cast: Cast) -> None:
    who, kit = heir(cast), cast.place()
    kit.write_bytes(b"\xff\xfe\x00" + os.urandom(100))
    with unchanged(cast):
        assert who.run("key", "recover", "--kit", kit).code in (2, 12)


def test_a_kit_is_not_restored_over_an_identity(cast: Cast) -> None:
    kit = cast.place()
    cast.olga.must("key", "export-recovery", "--output", kit)
    bad(cast, cast.rita, 2, "key", "recover", "--kit", kit, words="not overwritten")
    bad(cast, cast.olga, 2, "key", "export-recovery", "--output", kit, words="not overwritten")
    bad(cast, cast.olga, 2, "key", "export-recovery", words="the kit is a secret")


# proposals


@pytest.fixture
def proposal(cast: Cast) -> Path:
    """A proposal of the first of two owners."""
    path = cast.place()
    cast.olga.grant(DATASET, cast.will, "owner")
    cast.olga.must("key", "owners", DATASET, "--threshold", "2", "--output", path)
    return path


def edits(text: str) -> Iterator[str]:
    fields = json.loads(text)
    yield ""
    yield "nonsense"
    yield "[]"
    yield json.dumps(fields | {"format": "another"})
    yield json.dumps(fields | {"keyset": "===="})
    yield json.dumps({key: value for key, value in fields.items() if key != "dataset"})
    for name in ("keyset", "trust"):
        raw = bytearray(base64.b64decode(fields[name]))
        for at in (5, len(raw) // 2, len(raw) - 5):
            changed_raw = bytearray(raw)
            changed_raw[at] ^= 1
            yield json.dumps(fields | {name: base64.b64encode(bytes(changed_raw)).decode()})
    yield json.dumps(fields | {"dataset": "00" * 32})
    yield json.dumps({key: value for key, value in fields.items() if key not in ("keyset", "trust")})


def test_a_proposal_that_somebody_edited(cast: Cast, proposal: Path) -> None:
    text = proposal.read_text()
    for broken in edits(text):
        proposal.write_text(broken)
        bad(cast, cast.will, 7, "key", "cosign", DATASET, proposal, words="propos")
    proposal.write_text(text)
    cast.will.must("key", "cosign", DATASET, proposal)


def test_a_part_of_a_proposal(cast: Cast, proposal: Path) -> None:
    """A threshold of two with a keyset that one has signed would shut everybody out."""
    fields = json.loads(proposal.read_text())
    proposal.write_text(json.dumps({key: value for key, value in fields.items() if key != "keyset"}))
    with unchanged(cast):
        ran = cast.will.run("key", "cosign", DATASET, proposal)
    assert ran.code == 7, ran


def test_a_proposal_of_who_owns_nothing_gathers_no_weight(cast: Cast, proposal: Path) -> None:
    cast.will.must("key", "cosign", DATASET, proposal)
    path = cast.place()
    cast.olga.must("key", "rotate", DATASET, "--output", path)
    with unchanged(cast):
        told(cast.rita.run("key", "cosign", DATASET, path), "does not own it", code=6)
