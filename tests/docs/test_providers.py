"""docs/providers.md and its Chinese twin keep the table of stores that the tests hold, and say the same."""

import json
import re
from pathlib import Path

import pytest

from tests.support import stores

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("providers.md", "providers.zh-CN.md")
_TABLE = re.compile(r"<!-- stores: begin -->\n(.*?)\n?<!-- stores: end -->", re.DOTALL)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def text_of(page: str) -> str:
    return (DOCS / page).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_the_table_of_stores_is_the_one_that_the_tests_hold(page: str) -> None:
    """To renew it: python -c 'from tests.support import stores; print(stores.table())'."""
    print(stores.table())
    found = _TABLE.search(text_of(page))
    assert found is not None
    assert found[1] == stores.table()


def test_both_pages_have_the_same_sections_and_the_same_policies() -> None:
    english, chinese = (text_of(page) for page in PAGES)
    assert [len(line) - len(line.lstrip("#")) for line in re.findall(r"^#+ .*", english, re.MULTILINE)] == [
        len(line) - len(line.lstrip("#")) for line in re.findall(r"^#+ .*", chinese, re.MULTILINE)
    ]
    policies = [[body for kind, body in _BLOCK.findall(text) if kind == "json"] for text in (english, chinese)]
    assert policies[0] == policies[1]
    assert policies[0] != []


@pytest.mark.parametrize("page", PAGES)
def test_every_policy_is_json(page: str) -> None:
    for kind, body in _BLOCK.findall(text_of(page)):
        if kind == "json":
            assert isinstance(json.loads(body), dict)
