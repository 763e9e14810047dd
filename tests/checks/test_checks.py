"""Each rule of the checks finds the fault it is there for, and a sound tree passes."""

import pytest

from tests.checks.documents import check_documents
from tests.checks.tree import MODULE_LINES, check_tree

CHANGELOG = "# Changelog\n\n## [Unreleased]\n"
README = "# datasync\n\n## Try it\n\n```sh\nmake demo\n```\n\n[docs](docs/README.md)\n"
SOUND = {
    "CHANGELOG.md": CHANGELOG,
    "README.md": README,
    "README.zh-CN.md": README.replace("Try it", "试一试"),
    "docs/README.md": "# Docs\n\n[format](format.md#2-the-pack), [back](../README.md#try-it), [folder](adr)\n",
    "docs/format.md": "# Format\n\n## 2. The `pack`\n\n```\n[no link](here.md)\n# nor this\n```\n\n`[nor](it.md)`\n",
    "docs/adr/README.md": "# Decisions\n\n[first](0001.md) and [the web](https://example.org/a)\n",
    "docs/adr/0001.md": "# First\n",
    "datasync/errors.py": "x = 1\n" * MODULE_LINES,
}


def test_a_sound_tree_has_no_findings() -> None:
    assert check_tree(SOUND) + check_documents(SOUND) == []


@pytest.mark.parametrize(
    "line",
    [
        "see https://py" + "pi.org/project/x",
        "files.python" + "hosted.org",
        "cd /ro" + "ot/data",
        "path = '/wo" + "rk/main'",
        "# TO" + "DO later",
        "// FIX" + "ME",
    ],
)
def test_a_line_that_must_not_be_tracked_is_found(line: str) -> None:
    [finding] = check_tree({"a.txt": f"fine\n{line}\n"})
    assert finding.startswith("a.txt:2: ")


@pytest.mark.parametrize(
    "line", ["/ro" + "ot/autodl-tmp/cache", "docs/wo" + "rk/a", "https://example.org/wo" + "rkers/", "XX" + "XL"]
)
def test_a_harmless_line_passes(line: str) -> None:
    assert check_tree({"a.txt": line}) == []


def test_a_module_that_grew_too_long_is_found() -> None:
    [finding] = check_tree({"datasync/a.py": "x = 1\n" * (MODULE_LINES + 1)})
    assert "split it" in finding


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("docs/format.md", SOUND["docs/format.md"] + "`tests/x.py::test_none`\n", "no test tests/x.py::test_none"),
        ("docs/README.md", SOUND["docs/README.md"] + "[gone](gone.md)\n", "there is no docs/gone.md"),
        ("docs/README.md", SOUND["docs/README.md"] + "[x]: ../gone.md\n", "there is no gone.md"),
        ("docs/README.md", SOUND["docs/README.md"] + "[x](format.md#gone)\n", "has no heading #gone"),
        ("docs/new.md", "# New\n", "no index links to it"),
        ("docs/adr/0002.md", "# Second\n", "no index links to it"),
        ("CHANGELOG.md", "# Changelog\n\n## 1.0.0\n", "has no section"),
        ("README.zh-CN.md", README.replace("## Try", "### Try"), "heading levels differ"),
        ("README.zh-CN.md", README.replace("make demo", "make test"), "code blocks differ"),
        ("README.zh-CN.md", README + "\n```\nmore\n```\n", "code blocks differ from README.md from number 2"),
    ],
)
def test_a_fault_in_a_document_is_found(path: str, text: str, expected: str) -> None:
    [finding] = check_documents(SOUND | {path: text})
    assert finding.startswith(path)
    assert expected in finding
