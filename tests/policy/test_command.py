"""`datasync policy` on directories: check, test, explain, diff, matrix, show. They need no repository."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.policy.bundles import POLICIES
from tests.support.people import Person

TEAM, NEXT, REGULATED = (POLICIES / "examples" / name for name in ("team", "team-next", "regulated"))


@pytest.fixture
def anna(person: Callable[..., Person]) -> Person:
    return person("anna")


def test_check_loads_a_directory_and_tells_its_digest(anna: Person, tmp_path: Path) -> None:
    done = anna.must("policy", "check", TEAM)
    assert done["principals"] == 8
    assert len(done["policy"]) == 64
    assert anna.must("policy", "check", NEXT)["policy"] != done["policy"]
    (tmp_path / "policy.toml").write_text("[[grant]]\nid = 'a'\nrole = 'reader'\nregoins = ['eu']\n")
    anna.refused(2, "policy", "check", tmp_path, words="regoins")


def test_test_runs_the_tables_and_names_every_row_that_does_not_hold(anna: Person, tmp_path: Path) -> None:
    assert anna.must("policy", "test", REGULATED)["rows"] > 40
    (tmp_path / "policy.toml").write_text("[users.anna]\n")
    anna.refused(2, "policy", "test", tmp_path, words="expected a decision table")
    (tmp_path / "x.table.toml").write_text('at = 2026-01-01\nrows = [["anna", "Tag", "d", "allow", "x"]]')
    ran = anna.run("policy", "test", tmp_path)
    assert ran.code == 3
    assert "x.table.toml row 1: anna Tag d: expected allow by x, found deny by nobody" in ran.out


def test_explain_says_who_decided_and_what_would_allow(anna: Person) -> None:
    line = (
        "policy",
        "explain",
        "rita",
        "ReadData",
        "mri",
        "--policy",
        REGULATED,
        "--purpose",
        "tumour-study",
        "--attested",
    )
    told = anna.must(*line, "--region", "us-east")
    assert (told["decision"], told["decided_by"]) == ("deny", ["guard-residency"])
    assert told["would_allow"] == ["in region eu-central", "in region eu-north"]
    assert anna.must(*line, "--region", "eu-north")["decision"] == "allow"
    carl = ("policy", "explain", "carl", "PushSnapshot", "labels", "--policy", TEAM)
    assert anna.must(*carl, "--at", "2026-06-30T17:59:59Z")["decided_by"] == ["labeller-spring"]
    assert anna.must(*carl, "--at", "2026-06-30T18:00:00Z")["decision"] == "deny"
    anna.refused(2, *carl, "--at", "yesterday", words="expected a date")


def test_diff_prints_the_changed_cells(anna: Person) -> None:
    ran = anna.run("policy", "diff", TEAM, NEXT, "--at", "2026-06-01")
    lines = ran.out.splitlines()
    assert "+ carl PushSnapshot labels (from 2026-06-30T18:00:00.000Z on)" in lines
    assert "+ ivan ReadData scans" in lines
    assert "- node:gpu-2 Warm labels" in lines
    assert len(lines) == 25
    assert anna.must("policy", "diff", TEAM, TEAM, "--at", "2026-06-01")["changed"] == 0


def test_matrix_and_show(anna: Person) -> None:
    ran = anna.run("policy", "matrix", "--policy", POLICIES / "examples" / "roles", "--json")
    rows = [json.loads(line) for line in ran.out.splitlines()][:-1]
    rita = next(row for row in rows if row["principal"] == "rita" and row["dataset"] == "scans")
    assert rita["actions"] == ["ListDatasets", "ReadMetadata", "ReadData", "Warm"]
    assert '@id("labeller-spring")' in anna.run("policy", "show", "--cedar", "--policy", TEAM).out
    anna.refused(2, "policy", "show", words="no policy is in force")
