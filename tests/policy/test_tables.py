"""The shipped decision tables hold; every statement in them is needed; `explain` and `diff` tell why."""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from datasync.policy.bundle import parse_bundle
from datasync.policy.compare import compare, matrix
from datasync.policy.decide import PolicyEngine
from datasync.policy.explain import explain
from datasync.policy.model import ACTIONS, Evidence
from datasync.policy.shipped import GUARDS, ROLES, shipped
from datasync.policy.tables import Row, read_table, read_tables, run
from tests.policy.bundles import EXAMPLES, NOON, files, shipped_engine

Statement = dict[str, Any]
DENIALS = {"guard-frozen", "guard-residency", "guard-purpose", "guard-two-person", "guard-retention"}
LABELLER_ENDS = int(datetime(2026, 6, 30, 18, tzinfo=UTC).timestamp() * 1000)


def rows(example: str) -> list[Row]:
    return read_tables(shipped_engine(example).bundle)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_row_comes_as_the_table_says(example: str) -> None:
    failed = [f"{item.row}: {item.decision}" for item in run(shipped_engine(example), rows(example)) if not item.holds]
    assert not failed, failed


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_has_its_table_and_every_row_is_another(example: str) -> None:
    found = [row.request for row in rows(example)]
    assert len(found) > 20
    assert len(found) == len(set(found))


def test_the_tables_hold_at_least_120_rows_and_every_reason_to_deny() -> None:
    every = [row for example in EXAMPLES for row in rows(example)]
    assert len(every) >= 120
    denied = {reason for row in every if not row.allow for reason in row.reasons}
    assert denied >= DENIALS | {"no-interns-on-sensitive", "attested-only", "export-needs-mfa"}
    assert {row.request.action for row in every} == set(ACTIONS)


# every statement and every condition is needed


def _negations(node: Any) -> Iterator[Any]:
    """Yield *node* with each of its boolean parts negated in turn, itself first."""
    yield {"!": {"arg": node}}
    for operator in ("&&", "||"):
        if operator in node:
            for side in ("left", "right"):
                for changed in _negations(node[operator][side]):
                    yield {operator: {**node[operator], side: changed}}
    if "if-then-else" in node:
        for part in ("if", "then"):
            for changed in _negations(node["if-then-else"][part]):
                yield {"if-then-else": {**node["if-then-else"], part: changed}}


def _mutants(statement: Statement) -> Iterator[tuple[str, Statement | None]]:
    yield "deleted", None
    yield "swapped", statement | {"effect": "permit" if statement["effect"] == "forbid" else "forbid"}
    for position, condition in enumerate(statement["conditions"]):
        for changed in _negations(condition["body"]):
            mutant = copy.deepcopy(statement)
            mutant["conditions"][position]["body"] = changed
            yield f"condition {position} negated: {changed}", mutant


def _survives(decider: PolicyEngine, name: str, mutant: Statement | None, table: list[Row]) -> bool:
    others = {key: value for key, value in decider.statements.items() if key != name}
    changed = decider.with_statements(others | ({name: mutant} if mutant is not None else {}))
    return all(item.holds for item in run(changed, table))


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_change_of_any_statement_of_an_example_fails_a_row_of_its_table(example: str) -> None:
    decider, table = shipped_engine(example), rows(example)
    mutants = [
        (name, what, mutant)
        for name, statement in decider.statements.items()
        if name not in DENIALS
        for what, mutant in _mutants(statement)
    ]
    assert len(mutants) >= 10
    survivors = [f"{name} {what}" for name, what, mutant in mutants if _survives(decider, name, mutant, table)]
    assert not survivors, survivors


@pytest.mark.parametrize("name", sorted(DENIALS))
def test_a_change_of_a_built_in_denial_fails_a_row(name: str) -> None:
    for what, mutant in _mutants(shipped_engine("roles").statements[name]):
        survived = [_survives(shipped_engine(example), name, mutant, rows(example)) for example in EXAMPLES]
        assert not all(survived), f"{name} {what}"


def test_no_action_of_a_built_in_denial_can_be_left_out() -> None:
    for name in sorted(DENIALS):
        scope = shipped_engine("roles").statements[name]["action"]
        for gone in scope.get("entities", []):
            mutant = copy.deepcopy(shipped_engine("roles").statements[name])
            mutant["action"]["entities"].remove(gone)
            survived = [_survives(shipped_engine(example), name, mutant, rows(example)) for example in EXAMPLES]
            assert not all(survived), f"{name} without {gone['id']}"


@pytest.mark.parametrize("role", ["reader", "writer", "owner", "auditor", "operator", "node"])
def test_a_built_in_role_gains_and_loses_no_action_unseen(role: str) -> None:
    given = shipped_engine("roles").bundle.roles[role]
    for action in ACTIONS:
        if action == "Shred" and "ManageKeys" in given:
            continue  # part of managing keys: to name it besides changes nothing
        changed = [item for item in given if item != action] if action in given else [*given, action]
        text = f"[{role}]\nactions = {changed}\n" + _roles_without(role)
        mutant = PolicyEngine(parse_bundle({**files("roles"), ROLES: text}))
        assert not all(item.holds for item in run(mutant, rows("roles"))), f"{role}: {action}"


def _roles_without(role: str) -> str:
    others = {name: list(actions) for name, actions in shipped_engine("roles").bundle.roles.items() if name != role}
    return "".join(f"[{name}]\nactions = {actions}\n" for name, actions in others.items())


# explain


@pytest.mark.parametrize("example", EXAMPLES)
def test_explain_names_the_deciding_policy_of_every_row(example: str) -> None:
    decider = shipped_engine(example)
    for row in rows(example):
        told = explain(decider, row.request)
        assert told.decision.allow == row.allow
        named = tuple(line.partition(":")[0] for line in told.because)
        assert named == (row.reasons or ("no policy permits it",)), str(row)
        assert not (row.allow and told.would_allow)


def test_explain_suggests_what_would_allow_and_nothing_else() -> None:
    decider = shipped_engine("regulated")
    by_expectation = {str(row): explain(decider, row.request).would_allow for row in rows("regulated") if not row.allow}
    suggested = "\n".join(f"{name}: {found}" for name, found in by_expectation.items())
    assert "regulated.table.toml row 3: rita ReadData mri: ('in region eu-central', 'in region eu-north')" in suggested
    assert "row 9: rita ReadData mri: ('on an attested machine',)" in suggested
    assert "row 20: olga Shred mri: ('with two approvals',)" in suggested
    assert "row 19: rita ReadAudit mri: ('being among those whom stewards-look names, as olga is',)" in suggested


def test_explain_suggests_the_time_of_a_grant() -> None:
    late = next(row for row in rows("team") if row.request.evidence.now == LABELLER_ENDS)
    assert explain(shipped_engine("team"), late.request).would_allow == (
        "from 2026-03-01T00:00:00.000Z on",
        "before 2026-06-30T18:00:00.000Z",
    )


# diff and matrix


def test_diff_of_two_shipped_versions_is_exactly_what_changed() -> None:
    found = compare(shipped_engine("team"), shipped_engine("team-next"), Evidence(NOON))
    cells = {(str(item.principal), item.dataset, item.action): item.after.allow for item in found}
    labelling = ("ReadMetadata", "ReadData", "Warm", "PushSnapshot")
    research = ("ListDatasets", "ReadMetadata", "ReadData", "Warm", "PushSnapshot", "Tag")
    expected = {("carl", "labels", action): True for action in labelling}
    expected |= {("ivan", "scans", action): True for action in research if action != "ListDatasets"}
    expected |= {("node:gpu-2", "labels", action): False for action in (*research[:4], "Purge")}
    expected |= {("node:gpu-2", name, "Purge"): False for name in ("imagenet", "baseline")}
    expected |= {("jana", "labels", action): True for action in research}
    expected |= {("jana", "imagenet", action): True for action in ("PushSnapshot", "Tag")}
    expected |= {("jana", "scans", "ListDatasets"): True}
    assert cells == expected
    assert {item.situation for item in found if str(item.principal) == "carl"} == {"from 2026-06-30T18:00:00.000Z on"}


def test_diff_of_a_bundle_with_itself_is_empty() -> None:
    assert compare(shipped_engine("regulated"), shipped_engine("regulated"), Evidence(NOON)) == []


def test_diff_sees_a_change_that_shows_in_one_situation_only() -> None:
    before = files("regulated")
    changed = before["policy.toml"].replace('"eu-central", "eu-north"', '"eu-central"')
    after = PolicyEngine(parse_bundle(before | {"policy.toml": changed}))
    found = compare(shipped_engine("regulated"), after, Evidence(NOON))
    assert {(str(item.principal), item.dataset, item.action) for item in found} == {
        (who, "mri", action) for who in ("rita", "node:fra-1", "olga", "omar") for action in ("ReadData", "Warm")
    }
    assert not any(item.after.allow for item in found)


def test_diff_sees_a_change_behind_several_kinds_of_evidence_at_once() -> None:
    before = files("regulated")
    grant = (
        '[[grant]]\nid = "narrow"\nto = ["rita"]\non = ["mri"]\nactions = ["Tag"]\nregions = ["eu-north"]\n'
        'purposes = ["intake"]\nnodes = ["fra-1"]\nnetworks = ["10.30.0.0/16"]\nfrom = 2027-01-01\n'
    )
    after = PolicyEngine(parse_bundle(before | {"policy.toml": before["policy.toml"] + grant}))
    found = compare(shipped_engine("regulated"), after, Evidence(NOON))
    assert [(str(item.principal), item.action, item.dataset, item.after.allow) for item in found] == [
        ("rita", "Tag", "mri", True)
    ]
    assert found[0].situation.count(" and ") == 4


def test_diff_sees_that_a_node_moved_to_another_region() -> None:
    before = files("regulated")
    changed = before["policy.toml"].replace('region = "eu-central"', 'region = "us-east"', 1)
    after = PolicyEngine(parse_bundle(before | {"policy.toml": changed}))
    evidence = Evidence(NOON, attested=True, purpose="tumour-study")
    found = compare(shipped_engine("regulated"), after, evidence)
    assert {(str(item.principal), item.dataset, item.action, item.after.allow) for item in found} == {
        ("node:fra-1", "mri", action, False) for action in ("ReadData", "Warm")
    }


def test_matrix_says_what_the_roles_table_says() -> None:
    found = {(str(row.principal), row.dataset): row.actions for row in matrix(shipped_engine("roles"), Evidence(NOON))}
    for row in rows("roles"):
        key = (str(row.request.principal), row.request.dataset)
        if key in found:
            assert (row.request.action in found[key]) == row.allow
    assert found["rita", "scans"] == ("ListDatasets", "ReadMetadata", "ReadData", "Warm")
    assert found["rita", None] == ()


def test_a_bundle_carries_the_roles_and_denials_that_it_was_made_with() -> None:
    bundle = shipped_engine("team").bundle
    assert (bundle.files[ROLES], bundle.files[GUARDS]) == (shipped(ROLES), shipped(GUARDS))


def test_a_table_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Exception, match="row 1: expected allow or deny, found 'maybe'"):
        read_table("t.table.toml", 'at = 2026-01-01\nrows = [["a", "Tag", "d", "maybe", ""]]')
