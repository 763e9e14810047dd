"""Attacks by the text of a policy: each is refused when it is loaded, or decides as if it were not there."""

import subprocess
import sys
from pathlib import Path

import pytest

from datasync.errors import UsageError
from datasync.policy.bundle import parse_bundle
from datasync.policy.explain import allowed_until, explain
from datasync.policy.model import Evidence, Request, parse_principal
from datasync.policy.situations import is_time_plain
from datasync.policy.statements import CHAIN, NESTING
from tests.policy.bundles import NOON, ask, engine

ALICE = '[users.alice]\n[datasets.scans]\n[[grant]]\nid = "alice"\nto = ["alice"]\non = ["scans"]\nrole = "reader"\n'
HOUR = 3_600_000


def permit(condition: str) -> str:
    return f'@id("extra") permit (principal, action, resource) when {{ {condition} }};'


# what ends the process


NESTED = {
    "parentheses": f"{'(' * 5_000}true{')' * 5_000}",
    "sets": f"{'[' * 5_000}1{']' * 5_000} == 1",
    "records": f"{'{a: ' * 5_000}1{'}' * 5_000} == 1",
    "ifs": "if true then " * 5_000 + "true" + " else true" * 5_000,
    "ands": "true && " * 60_000 + "true",
    "sums": "context.approvals" + " + 1" * 60_000 + " > 0",
    "members": "context" + ".mfa" * 60_000,
    "nested behind a string": '"\\"(" == ")" && ' + "(" * 5_000 + "true" + ")" * 5_000,
    "nested behind a comment": "true && // )))\n" + "(" * 5_000 + "true" + ")" * 5_000,
}


@pytest.mark.parametrize("form", NESTED)
def test_text_that_would_overflow_the_parsers_stack_is_refused_before_it(form: str, tmp_path: Path) -> None:
    (tmp_path / "deep.cedar").write_text(permit(NESTED[form]))
    done = subprocess.run([sys.executable, "-c", _LOAD, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done  # not killed by a signal


_LOAD = """
import pathlib, sys
from datasync.errors import UsageError
from datasync.policy.bundle import parse_bundle
from datasync.policy.decide import PolicyEngine
text = (pathlib.Path(sys.argv[1]) / "deep.cedar").read_text()
try:
    PolicyEngine(parse_bundle({"policy.toml": "", "deep.cedar": text}))
except UsageError:
    print("refused")
"""


@pytest.mark.parametrize(
    "condition", ["(" * (NESTING - 2) + "true" + ")" * (NESTING - 2), " && ".join(["context.mfa"] * 30)]
)
def test_text_below_the_limits_loads(condition: str) -> None:
    assert ask(engine(ALICE, extra=permit(condition)), "bob", "Warm", "other", mfa=True).allow


@pytest.mark.parametrize("count", [100, CHAIN - 10])
def test_a_chain_that_only_cedars_other_form_is_too_deep_for_is_refused_too(count: int) -> None:
    with pytest.raises(UsageError, match="several statements"):
        engine(ALICE, extra=permit(" || ".join(["context.mfa"] * count)))


def test_a_grant_may_name_many_networks() -> None:
    networks = [f"10.{n // 250}.{n % 250}.0/24" for n in range(600)]
    decider = engine(ALICE + f"networks = {networks}")
    assert ask(decider, "alice", "Warm", "scans", source="10.2.99.7").allow
    assert not ask(decider, "alice", "Warm", "scans", source="10.3.99.7").allow


@pytest.mark.parametrize("value", ["[" * 5_000 + "]" * 5_000, "{a=" * 3_000 + "1" + "}" * 3_000])
def test_toml_that_nests_without_end_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="nested too deeply"):
        engine(f"x = {value}")


@pytest.mark.parametrize("key", ["a." * 40_000 + "b", '"a".' * 20_000 + "b", "'a' . " * 20_000 + "b"])
def test_a_key_that_would_take_minutes_to_parse_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="at most 16 parts"):
        engine(f"{key} = 1")


def test_more_bytes_than_a_policy_has_are_not_parsed() -> None:
    with pytest.raises(UsageError, match="at most 64 files and 2097152 bytes"):
        parse_bundle({"policy.toml": "#" * 2_100_000})


# what is not what it seems


@pytest.mark.parametrize("character", ["\u202e", "\u200b", "\u2066", "\ufeff", "\u00ad", "\x00", "\x1b", "\u200d"])
def test_invisible_characters_are_refused_wherever_they_are(character: str) -> None:
    with pytest.raises(UsageError, match=r"U\+|not valid TOML|expected"):
        engine(ALICE + f"# alice{character}\n")
    with pytest.raises(UsageError, match=r"U\+"):
        engine(ALICE, extra=permit("context.mfa") + f" // {character}")
    with pytest.raises(UsageError, match="printable"):
        engine(f'[users."alice\\u{ord(character):04x}"]')
    with pytest.raises(UsageError, match="printable"):
        engine(ALICE + f'regions = ["eu\\u{ord(character):04x}"]')


def test_a_name_is_one_name_however_it_was_typed() -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    text = (
        f'[users.{composed!r}]\n[datasets.{composed!r}]\nallowed_regions = ["{composed}"]\n'
        f'[[grant]]\nid = "all"\nto = ["{apart}"]\non = ["*"]\nrole = "reader"\n'
    )
    decider = engine(text, mine=f'@id("mine") forbid (principal, action, resource == Dataset::"{apart}") when '
                                '{ !context.mfa };')  # fmt: skip
    for dataset in (composed, apart):
        assert ask(decider, apart, "Warm", dataset, mfa=True).reasons == ("guard-residency",)
        assert ask(decider, composed, "Warm", dataset, mfa=True, region=apart).allow
        assert ask(decider, composed, "Warm", dataset, region=composed).reasons == ("mine",)
    with pytest.raises(UsageError, match="one name, typed in two ways"):
        engine(f"[users.{composed!r}]\n[users.{apart!r}]")


def test_a_lookalike_is_somebody_else() -> None:
    assert not ask(engine(ALICE), "\u0430lice", "Warm", "scans").allow  # the first letter is Cyrillic
    assert not ask(engine(ALICE), "\uff41lice", "Warm", "scans").allow
    assert not ask(engine(ALICE), "Alice", "Warm", "scans").allow
    assert not ask(engine(ALICE), "alice", "Warm", "\u0455cans").allow


@pytest.mark.parametrize(
    "name", ['x"; permit (principal, action, resource); //', "x\\", "\\u{22}", 'a" || "b', "*/", "${x}", "{{", "'"]
)
def test_no_name_leaves_its_quotes_in_any_place(name: str) -> None:
    text = f"""
[users.{_key(name)}]
groups = [{_key(name)}]
[nodes.{_key(name)}]
[datasets.{_key(name)}]
tags = [{_key(name)}]
[[grant]]
id = {_key(name)}
to = [{_key("group:" + name)}]
on = [{_key("tag:" + name)}]
role = "reader"
regions = [{_key(name)}]
purposes = [{_key(name)}]
nodes = [{_key(name)}]
reason = {_key(name)}
"""
    decider = engine(text)
    given = {"region": name, "purpose": name, "node": name}
    assert len(decider.statements) == 6
    assert ask(decider, name, "Warm", name, **given).reasons == (name,)
    assert decider.reason(name) == name
    for missing in given:
        assert not ask(decider, name, "Warm", name, **{**given, missing: "other"}).allow
    assert not ask(decider, "other", "Warm", name, **given).allow


def _key(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.parametrize("network", ['10.0.0.0/8")) || ip("0.0.0.0/0', "0.0.0.0/33", "10.0.0.*", "", "localhost"])
def test_a_network_that_is_none_is_refused(network: str) -> None:
    with pytest.raises(UsageError):
        engine(ALICE + f"networks = [{_key(network)}]")


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ('User::"alcie"', "no User is called 'alcie'"),
        ('Group::"staff"', "no Group is called 'staff'"),
        ('Node::"gpu"', "no Node is called 'gpu'"),
        ('Usr::"alice"', "Usr"),
        ('Repository::"alice"', "principal|applicable|Repository"),
    ],
)
def test_a_denial_for_somebody_whom_nothing_declares_is_refused(entity: str, words: str) -> None:
    operator = "in" if entity.startswith("Group") else "=="
    with pytest.raises(UsageError, match=words):
        engine(ALICE, extra=f'@id("extra") forbid (principal {operator} {entity}, action, resource);')


@pytest.mark.parametrize(
    "condition",
    [
        'resource is Dataset && resource == Dataset::"scnas"',
        'resource in Tag::"patients"',
        'resource == Repository::"other"',
        'principal in [Group::"staff"]',
        'context has node && context.node == Node::"gpu"',
        'principal is User in Group::"staff"',
    ],
)
def test_a_condition_on_something_that_nothing_declares_is_refused(condition: str) -> None:
    for word in ("when", "unless"):
        with pytest.raises(UsageError, match="declare it"):
            engine(ALICE, extra=f'@id("extra") forbid (principal, action, resource) {word} {{ {condition} }};')


@pytest.mark.parametrize(
    "condition",
    [
        'context.region == "eu"',
        'resource.classification == "open"',
        'resource is Dataset && resource.allowedRegions.contains("eu")',
        "context.ageDays > 3",
        'context has purpose && context.region == "eu"',
        'context.source.isInRange(ip("10.0.0.0/8"))',
    ],
)
def test_an_unless_on_an_attribute_that_may_be_missing_is_refused(condition: str) -> None:
    for effect, word in (("forbid", "unless"), ("forbid", "when"), ("permit", "when"), ("permit", "unless")):
        with pytest.raises(UsageError):
            engine(ALICE, extra=f'@id("extra") {effect} (principal, action, resource) {word} {{ {condition} }};')


@pytest.mark.parametrize("groups", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "d", "d": "b"}])
def test_groups_in_any_circle_are_refused(groups: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        engine("".join(f'[groups.{name}]\ngroups = ["{of}"]\n' for name, of in groups.items()))


def test_groups_in_a_long_line_are_followed_to_its_end() -> None:
    count = 400
    line = "".join(f'[groups.g{n}]\ngroups = ["g{n + 1}"]\n' for n in range(count))
    decider = engine(
        f'[users.alice]\ngroups = ["g0"]\n{line}[[deny]]\nid = "end"\nto = ["group:g{count}"]\nrole = "reader"\n'
        '[[grant]]\nid = "all"\nrole = "owner"\n'
    )
    assert ask(decider, "alice", "Warm", None).reasons == ("end",)
    assert ask(decider, "alice", "Tag", None).allow


@pytest.mark.parametrize(
    "time_", ["9999-12-31T23:59:59-14:00", "0001-01-01", "9999-12-31", "1969-12-31", "0001-01-01T00:00:00+14:00"]
)
def test_a_time_that_not_all_parts_tell_alike_is_refused(time_: str) -> None:
    with pytest.raises(UsageError, match="expected a year from 1970 to 9998"):
        engine(ALICE + f"until = {time_}\n")


def test_a_clock_beyond_all_years_denies() -> None:
    for now in (10**15, 10**30, -(10**30), 253_402_300_800_000):
        decision = ask(engine(ALICE), "alice", "Warm", "scans", now=now)
        assert (decision.allow, len(decision.errors)) == (False, 1)


def test_a_statement_may_not_take_the_name_of_a_built_in_denial() -> None:
    with pytest.raises(UsageError, match="two statements are called 'guard-frozen'"):
        engine(ALICE, extra='@id("guard-frozen") permit (principal, action, resource);')
    with pytest.raises(UsageError, match="two statements are called 'guard-residency'"):
        engine(ALICE.replace('id = "alice"', 'id = "guard-residency"'))


def test_the_widest_grant_does_not_lift_a_denial() -> None:
    text = (
        "[users.alice]\n[datasets.scans]\nfrozen = true\nallowed_regions = []\n[[grant]]\nid = 'all'\nrole = 'owner'\n"
    )
    everything = '@id("everything") permit (principal, action, resource);'
    decider = engine(text, extra=everything)
    for who in ("alice", "node:x", "nobody"):
        assert ask(decider, who, "PushSnapshot", "scans").reasons == ("guard-frozen",)
        assert ask(decider, who, "Warm", "scans", region="eu").reasons == ("guard-residency",)
        assert ask(decider, who, "Shred", "scans", approvals=9).reasons == ("guard-frozen",)


def test_a_principal_of_a_kind_that_does_not_exist_is_denied() -> None:
    everything = engine('[[grant]]\nid = "all"\nrole = "owner"\n')
    for kind in ("group", "admin", "User", "", "Action"):
        decision = everything.decide(Request(parse_principal("x").__class__(kind, "x"), "Warm", None, Evidence(NOON)))
        assert (decision.allow, decision.reasons) == (False, ())
        assert "kind of principal" in decision.errors[0]


# until when, and what would have to change


def until(text: str, limit: int, **cedar: str) -> int:
    asked = Request(parse_principal("alice"), "Warm", "scans", Evidence(NOON))
    return allowed_until(engine(text, **cedar), asked, NOON + limit) - NOON


def test_an_end_is_found_behind_any_number_of_other_times() -> None:
    ended = "".join(
        f'[[grant]]\nid = "old{n}"\nto = ["alice"]\nrole = "reader"\nuntil = 2020-01-{n % 28 + 1:02}\n'
        for n in range(200)
    )
    lasting = '[[grant]]\nid = "later"\nto = ["alice"]\nrole = "reader"\nfrom = 2026-06-01T20:00:00Z\n'
    ends = ALICE + "until = 2026-06-01T14:00:00Z\n"
    assert until(ended + ends + lasting, 12 * HOUR) == 2 * HOUR
    assert until(ended + ends, 12 * HOUR) == 2 * HOUR
    assert until(ended + ends, HOUR) == HOUR


def test_an_end_is_exact_however_it_is_written() -> None:
    bounds = {
        'context.now > datetime("2026-06-01T13:00:00Z")': HOUR + 1,
        'context.now >= datetime("2026-06-01T13:00:00Z")': HOUR,
        'datetime("2026-06-01T13:00:00Z") < context.now': HOUR + 1,
        '!(context.now < datetime("2026-06-01T15:00:00+0200"))': HOUR,
        'context.now == datetime("2026-06-01T13:00:00Z")': HOUR,
    }
    for condition, expected in bounds.items():
        stops = f'@id("stop") forbid (principal, action, resource) when {{ {condition} }};'
        assert until(ALICE, 12 * HOUR, stop=stops) == expected, condition


@pytest.mark.parametrize(
    "condition",
    [
        'context.now.toTime() >= duration("13h")',
        'context.now.offset(duration("1h")) >= datetime("2026-06-01T14:00:00Z")',
        'context.now.durationSince(datetime("2026-06-01")) > duration("13h")',
        '(if context.mfa then context else context).now >= datetime("2026-06-01T13:00:00Z")',
    ],
)
def test_an_end_that_is_computed_is_never_overrun(condition: str) -> None:
    stops = f'@id("stop") forbid (principal, action, resource) when {{ {condition} }};'
    decider = engine(ALICE, stop=stops)
    assert not is_time_plain(decider.about("Warm"))
    assert HOUR - 60_000 <= until(ALICE, 22 * HOUR, stop=stops) <= HOUR
    assert until(ALICE, HOUR // 2, stop=stops) == HOUR // 2


MANY = (
    ALICE
    + """
regions = ["eu"]
purposes = ["study"]
nodes = ["gpu"]
networks = ["10.0.0.0/8"]
from = 2026-07-01
mfa = true
attested = true
[nodes.gpu]
"""
)


def test_explain_finds_what_needs_every_kind_of_evidence_at_once() -> None:
    asked = Request(parse_principal("alice"), "Warm", "scans", Evidence(NOON))
    told = explain(engine(MANY), asked)
    assert told.would_allow == (
        "in region eu and for purpose study and on node gpu and from 10.0.0.0/8 and with a second factor and on an "
        "attested machine and from 2026-07-01T00:00:00.000Z on",
    )
    assert told.whole
    given = Evidence(NOON, region="eu", purpose="study", node="gpu", source="10.1.1.1")
    told = explain(engine(MANY), Request(asked.principal, asked.action, asked.dataset, given))
    assert told.would_allow == ("with a second factor and on an attested machine and from 2026-07-01T00:00:00.000Z on",)


def test_explain_suggests_the_fewest_changes_and_each_was_decided() -> None:
    second = '[[grant]]\nid = "easy"\nto = ["alice"]\non = ["scans"]\nrole = "reader"\nregions = ["us"]\nmfa = true\n'
    told = explain(engine(MANY + second), Request(parse_principal("alice"), "Warm", "scans", Evidence(NOON)))
    assert told.would_allow == ("in region us and with a second factor",)


def test_explain_says_when_it_has_not_tried_everything() -> None:
    regions = [f"r{n}" for n in range(60)]
    text = (
        f'[users.alice]\n[datasets.scans]\nallowed_regions = {regions}\npurposes = {regions}\n[[grant]]\nid = "a"\n'
        'role = "reader"\nuntil = 2020-01-01\nmfa = true\n'
    )
    asked = Request(parse_principal("alice"), "Warm", "scans", Evidence(NOON))
    assert not explain(engine(text), asked, search=500).whole
    assert explain(engine(ALICE), Request(parse_principal("bob"), "Warm", "scans", Evidence(NOON))).whole
