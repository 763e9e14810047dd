"""The engine: what it refuses to load, and that every error is a denial."""

import json

import cedarpy
import pytest

from datasync.errors import UsageError
from datasync.policy.bundle import parse_bundle
from datasync.policy.decide import PolicyEngine
from datasync.policy.model import Evidence, Request, parse_principal
from tests.policy.bundles import NOON, ask, engine

ALICE = '[users.alice]\n[datasets.scans]\n[[grant]]\nid = "alice"\nto = ["alice"]\non = ["scans"]\nrole = "reader"\n'
OVERFLOWS = """@id("overflows") forbid (principal, action == Action::"ReadData", resource)
when { context.approvals + 9223372036854775807 > 0 };"""


def test_a_forbid_that_fails_denies() -> None:
    assert ask(engine(ALICE), "alice", "ReadData", "scans").allow
    decision = ask(engine(ALICE, overflow=OVERFLOWS), "alice", "ReadData", "scans")
    assert (decision.allow, decision.reasons) == (False, ("alice",))
    assert "overflow" in decision.errors[0]
    assert ask(engine(ALICE, overflow=OVERFLOWS), "alice", "Warm", "scans").allow


def test_a_forbid_that_meets_a_missing_attribute_denies() -> None:
    decider = engine(ALICE)
    text = '@id("asks") forbid (principal, action, resource) when { resource.classification == "open" };'
    asks = PolicyEngine(
        parse_bundle({"policy.toml": ALICE.replace("[datasets.scans]", "[datasets.scans]\nregion = 'eu'")})
    )
    broken = {**decider.statements, "asks": _statement(text)}
    decision = asks.with_statements(broken).decide(
        Request(parse_principal("alice"), "ReadData", "scans", Evidence(NOON))
    )
    assert not decision.allow
    assert "classification" in decision.errors[0]


def _statement(text: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"]["policy0"]
    return found


@pytest.mark.parametrize("action", ["Read", "readdata", "", 'Action::"ReadData"', "ReadData "])
def test_an_unknown_action_is_denied_to_everybody(action: str) -> None:
    everything = '[users.olga]\n[[grant]]\nid = "all"\nrole = "owner"\n'
    decision = ask(engine(everything), "olga", action, None)
    assert not decision.allow
    assert "unknown action" in decision.errors[0]


def test_evidence_that_does_not_parse_denies() -> None:
    assert not ask(engine(ALICE), "alice", "ReadData", "scans", source="not an address").allow
    assert not ask(engine(ALICE), "group:alice", "ReadData", "scans").allow
    assert ask(engine(ALICE), "alice", "ReadData", "scans", approvals=2**80).allow


def test_one_request_that_fails_does_not_touch_the_others() -> None:
    alice, who = parse_principal("alice"), Evidence(NOON)
    asked = [
        Request(alice, "ReadData", "scans", who),
        Request(alice, "Nope", "scans", who),
        Request(alice, "ReadData", "unheard-of", who),
        Request(alice, "ReadData", "scans", Evidence(NOON, source="?")),
        Request(alice, "ReadMetadata", "scans", who),
    ]
    assert [item.allow for item in engine(ALICE).decide_all(asked)] == [True, False, False, False, True]


def test_names_can_not_leave_their_quotes() -> None:
    nasty = """
[users."a\\"] || true"]
[users.bob]
[datasets.'back\\slash']
[[grant]]
id = 'quote " and \\ back'
to = ['a"] || true']
on = ['back\\slash']
role = "reader"
regions = ['x") || true || ["']
"""
    decider = engine(nasty)
    assert not ask(decider, "bob", "ReadData", "back\\slash").allow
    assert not ask(decider, "bob", "ReadData", "back\\slash", region='x") || true || ["').allow
    allowed = ask(decider, 'a"] || true', "ReadData", "back\\slash", region='x") || true || ["')
    assert allowed.reasons == ('quote " and \\ back',)


@pytest.mark.parametrize(
    ("cedar", "words"),
    [
        ('@id("a") forbid (principal, action, resource is Dataset) when { resource.forzen };', "forzen"),
        ('@id("a") permit (principal, action, resource) when { context.regoin == "eu" };', "regoin"),
        ('@id("a") permit (principal, action, resource) when { context.region == "eu" };', "region"),
        ('@id("a") permit (principal, action == Action::"Raed", resource);', "Raed"),
        ('@id("a") permit (principal in Usr::"x", action, resource);', "Usr"),
        ('@id("a") permit (principal, action, resource) when { context.approvals > "2" };', "type"),
        ("permit (principal, action, resource);", "@id"),
        (
            '@id("a") permit (principal, action, resource); @id("a") forbid (principal, action, resource);',
            "two statements",
        ),
        ('@id("a") permit (principal == ?principal, action, resource);', "templates"),
        ('@id("a") permit (principal, action', "parse"),
        ('@id("alice") permit (principal, action, resource);', "two statements"),
    ],
)
def test_cedar_that_does_not_fit_the_schema_is_found_at_load(cedar: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        engine(ALICE, extra=cedar)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("to = ", "too = "), "unknown field `too`"),
        (('["alice"]', '["alcie"]'), "no principal or group 'alcie'"),
        (('["scans"]', '["scan"]'), "no dataset or tag 'scan'"),
        (('["scans"]', '["tag:scans"]'), "no dataset or tag 'tag:scans'"),
        (('"reader"', '"raeder"'), "no role 'raeder'"),
        (('role = "reader"', ""), "either role or actions"),
        (('role = "reader"', 'actions = ["Read"]'), "no action 'Read'"),
        (('role = "reader"', 'role = "reader"\nactions = ["Warm"]'), "either role or actions"),
        (('role = "reader"', 'role = "reader"\nuntil = "soon"'), "until"),
        (('role = "reader"', 'role = "reader"\nnodes = ["gpu"]'), "no node 'gpu'"),
        (('role = "reader"', 'role = "reader"\nnetworks = ["10.0.0.0/99"]'), "policy: alice"),
        (("[datasets.scans]", "[datasets.scans]\nfrozn = true"), "unknown field `frozn`"),
        (("[datasets.scans]", "[datasets.scans]\nowner = 'bob'"), "no user 'bob'"),
        (("[users.alice]", "[users.alice]\nidentities = ['k']\n[users.bob]\nidentities = ['k']"), "found two"),
        (("[users.alice]", "[users.alice]\n[users.'b:c']"), "without `:`"),
        (("[users.alice]", "[users.alice]\n[roles.reader]\nactions = ['Warm']"), "built-in role"),
        (("[users.alice]", "[users.alice"), "not valid TOML"),
        (("to =", 'to = ["alice"]\non = ["scans"]\nrole = "reader"\n[[grant]]\nid = "alice"\nto ='), "two grants"),
    ],
)
def test_toml_with_a_mistake_is_found_at_load(change: tuple[str, str], words: str) -> None:
    text = ALICE.replace(*change)
    assert text != ALICE
    with pytest.raises(UsageError, match=words):
        engine(text)


def test_groups_in_a_circle_are_refused() -> None:
    with pytest.raises(UsageError):
        engine("[groups.a]\ngroups = ['b']\n[groups.b]\ngroups = ['a']\n")


def test_a_bundle_of_other_or_too_many_files_is_refused() -> None:
    with pytest.raises(UsageError, match=r"found 'notes\.txt'"):
        parse_bundle({"policy.toml": "", "notes.txt": ""})
    with pytest.raises(UsageError, match="at most 64 files"):
        parse_bundle({"policy.toml": "", **{f"{n}.cedar": "" for n in range(64)}})
    with pytest.raises(UsageError, match=r"expected a file policy\.toml"):
        parse_bundle({"a.cedar": ""})


def test_a_denial_holds_when_its_evidence_is_missing() -> None:
    denial = ALICE + '[nodes.old]\n[[deny]]\nid = "old"\nactions = ["Warm"]\nnodes = ["old"]\n'
    assert ask(engine(denial), "alice", "Warm", "scans").reasons == ("old",)
    assert ask(engine(denial), "alice", "Warm", "scans", node="old").reasons == ("old",)
    assert ask(engine(denial), "alice", "Warm", "scans", node="new").allow
