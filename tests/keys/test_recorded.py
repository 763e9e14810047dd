"""Who tries what it may not is in the log, and so is every signature of an owner."""

import json
from types import SimpleNamespace
from typing import Any
from typing import cast as told_as

import pytest

from datasync.errors import UsageError
from datasync.service.access import Wanted, _grantee
from datasync.service.session import Session
from tests.keys.forge import DATASET, Cast
from tests.support.people import Person


def events(who: Person, action: str) -> list[tuple[str, str]]:
    """Return action and outcome of what *who*'s log has of *action*, but intents."""
    lines = who.machine.must("audit", "query", "--action", action, "--json").out.splitlines()
    found = [item for item in map(json.loads, lines) if item["type"] == "event"]
    return [(item["action"], item["outcome"]) for item in found if item["outcome"] != "intent"]


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ("key.grant", ("grant", DATASET, "PUBLIC")),
        ("key.revoke", ("revoke", DATASET, "will")),
        ("key.rotate", ("rotate", DATASET)),
        ("key.rotate", ("rotate", DATASET, "--full")),
        ("key.owners", ("owners", DATASET, "--threshold", "1")),
        ("key.cosign", ("cosign", DATASET, "PUBLIC")),
        ("key.shred", ("shred", DATASET, "--yes")),
        ("key.settle", ("settle", DATASET)),
    ],
)
def test_who_does_not_own_is_recorded_as_denied(cast: Cast, action: str, line: tuple[str, ...]) -> None:
    public = str(cast.person("anna").public())
    cast.rita.refused(6, "key", *(public if word == "PUBLIC" else word for word in line), words="does not own it")
    assert events(cast.rita, action) == [(action, "denied")]


def test_who_has_no_slot_is_recorded_as_denied(cast: Cast) -> None:
    anna = cast.person("anna")
    anna.refused(12, "key", "rotate", DATASET)
    anna.refused(12, "key", "accept", DATASET, cast.dataset)
    assert events(anna, "key.rotate") == [("key.rotate", "denied")]
    assert events(anna, "key.accept") == [("key.accept", "denied")]


def test_a_proposal_and_each_signature_are_recorded(cast: Cast) -> None:
    for who in (cast.will, cast.rita):
        cast.olga.grant(DATASET, who, "owner")
    path = cast.place()
    cast.olga.must("key", "owners", DATASET, "--threshold", "2", "--output", path)
    assert events(cast.olga, "key.propose") == [("key.propose", "success")]
    cast.will.must("key", "cosign", DATASET, path)
    assert events(cast.will, "key.cosign") == [("key.cosign", "success")]
    path = cast.place()
    cast.olga.must("key", "owners", DATASET, "--threshold", "3", "--output", path)
    assert cast.will.must("key", "cosign", DATASET, path)["missing"] == 1
    assert events(cast.will, "key.cosign") == [("key.cosign", "success")] * 2


def test_what_was_accepted_is_recorded(cast: Cast) -> None:
    assert events(cast.rita, "key.accept") == [("key.accept", "success")]


# a new passphrase


def asked(*answers: str | None) -> Any:
    left = list(answers)
    return SimpleNamespace(config=SimpleNamespace(passphrase=None), secret=lambda _: left.pop(0))


def test_a_new_passphrase_is_asked_for_twice() -> None:
    wanted = Wanted("x", passphrase=True)
    found = _grantee(told_as(Session, asked("open", "open")), wanted, "reader", 0)
    assert found is not None
    assert found.passphrase == "open"
    for answers in (("open", "opne"), ("open", None), (None,)):
        with pytest.raises(UsageError):
            _grantee(told_as(Session, asked(*answers)), wanted, "reader", 0)
