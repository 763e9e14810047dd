"""docs/threat-model.md names a test for each thing that it says is stopped, and each of them exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/threat-model.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and " | " in line]
_NAMED = re.compile(r"`(tests/[a-z0-9_/]+\.py|…)::(test_[a-z0-9_]+)`")
STOPS_NOTHING = (
    "nothing",
    "only disk encryption",
    "only a rotation",
    "everything that the provider",
    "the same as for",
)


def named_in(row: str) -> list[tuple[str, str]]:
    """Return file and test of each that *row* names; `…` is the file named before it."""
    found, file = [], ""
    for where, test in _NAMED.findall(row):
        file = file if where == "…" else where
        found.append((file, test))
    return found


NAMED = sorted({item for row in ROWS for item in named_in(row)})


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 50


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    assert re.search(rf"^ *def {test}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_a_row_without_a_test_says_that_nothing_stops_it() -> None:
    """By a dash in its last column; "as above" stands for the tests of another row, a file for all of its tests."""
    cells = {row: [cell.strip() for cell in row.strip("| ").split(" | ")] for row in ROWS if not named_in(row)}
    bare = {row: found for row, found in cells.items() if len(found) > 2 and found[-1] not in ("test", "---")}
    silent = [row for row, found in bare.items() if found[-1] != "-" and "as above" not in found[-1]]
    files = {row: re.findall(r"`(tests/[a-z0-9_/]+\.py)`", row) for row in silent}
    assert [
        row for row, named in files.items() if not named or not all((ROOT / file).is_file() for file in named)
    ] == []
