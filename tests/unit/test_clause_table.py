"""The table at the end of a run says what ran, and a failure in any case of a clause shows."""

from tests.support.clause_table import clause_table

PAGE = "tests/contract/test_store_contract.py::test_"


def test_a_clause_has_a_cell_for_each_store_that_ran_it() -> None:
    outcomes = {
        "passed": [f"{PAGE}a_name_is_taken[local]", f"{PAGE}a_name_is_taken[oss-v2-1]"],
        "skipped": [f"{PAGE}x[local]"],
    }
    assert clause_table(outcomes, ("local", "oss-v2", "cos")) == [
        "| clause | local | oss-v2 | cos |",
        "|---|---|---|---|",
        "| a name is taken | yes | yes |  |",
        "| x | - |  |  |",
    ]


def test_one_case_that_fails_fails_the_clause() -> None:
    outcomes = {"passed": [f"{PAGE}y[local-0]"], "failed": [f"{PAGE}y[local-1]"]}
    assert clause_table(outcomes, ("local",))[-1] == "| y | FAIL |"


def test_without_a_clause_there_is_no_table() -> None:
    assert clause_table({"passed": ["tests/unit/test_other.py::test_z[local]"]}, ("local",)) == []
