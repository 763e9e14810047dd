"""Rules for the Markdown documents: links lead somewhere, the two READMEs say the same, every page can be found,
tests that are named exist.

Pure: takes texts by path, returns findings as `path:line: what`. What is inside a code block is no link and no heading.
"""

import posixpath
import re
from typing import NamedTuple

READMES = ("README.md", "README.zh-CN.md")

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?")
_NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py|…)::(test_\w+)")
_INLINE_CODE = re.compile(r"(`+)[^`].*?\1")
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


class Document(NamedTuple):
    """What the rules look at; links and headings with their line numbers."""

    headings: list[tuple[int, int, str]]
    links: list[tuple[int, str]]
    code_blocks: list[str]


def check_documents(texts: dict[str, str]) -> list[str]:
    """Return what is wrong with the Markdown documents among *texts*."""
    documents = {path: parse(text) for path, text in texts.items() if path.endswith(".md")}
    findings = _check_links(texts, documents)
    findings += _check_found(texts, documents)
    findings += _check_changelog(documents)
    findings += _check_named_tests(texts)
    if all(path in documents for path in READMES):
        findings += _compare(documents[READMES[0]], documents[READMES[1]])
    return findings


def parse(text: str) -> Document:
    """Return the headings, links and fenced code blocks of a Markdown text."""
    document = Document([], [], [])
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence) and not opened[2].strip():
                fence = ""
            else:
                document.code_blocks[-1] += line + "\n"
        elif opened:
            fence = opened[1]
            document.code_blocks.append(opened[2].strip() + "\n")
        else:
            _parse_line(document, number, line)
    return document


def _parse_line(document: Document, number: int, line: str) -> None:
    if heading := _HEADING.match(line):
        document.headings.append((number, len(heading[1]), heading[2]))
    for link in _LINK.finditer(_INLINE_CODE.sub("", line)):
        document.links.append((number, link[1] or link[2]))


def _check_named_tests(texts: dict[str, str]) -> list[str]:
    """Return named tests that do not exist; a name is `tests/x.py::test_y`, or `…::test_z` for the file before."""
    findings, path_of_test = [], ""
    for path in (path for path in texts if path.endswith(".md")):
        for number, line in enumerate(texts[path].splitlines(), start=1):
            for named in _NAMED_TEST.finditer(line):
                path_of_test = path_of_test if named[1] == "…" else named[1]
                if f"def {named[2]}(" not in texts.get(path_of_test, ""):
                    findings.append(f"{path}:{number}: no test {path_of_test}::{named[2]}")
    return findings


def _anchors(document: Document) -> set[str]:
    """Return the anchors that code hosts give to the headings; the second of one name gets `-1`."""
    anchors: dict[str, int] = {}
    for _, _, title in document.headings:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        seen = anchors.setdefault(anchor, 0)
        anchors[anchor] += 1
        if seen:
            anchors[f"{anchor}-{seen}"] = 1
    return set(anchors)


def _target(path: str, link: str) -> tuple[str, str]:
    """Return the path that *link* in the document *path* leads to, and its anchor."""
    name, _, anchor = link.partition("#")
    return (posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path), anchor


def _check_links(texts: dict[str, str], documents: dict[str, Document]) -> list[str]:
    folders = {folder for path in texts for folder in _parents(path)}
    findings = []
    for path, document in documents.items():
        for number, link in document.links:
            if _ELSEWHERE.match(link):
                continue
            target, anchor = _target(path, link)
            if target not in texts and target not in folders:
                findings.append(f"{path}:{number}: link to {link}: there is no {target}")
            elif anchor and target in documents and anchor not in _anchors(documents[target]):
                findings.append(f"{path}:{number}: link to {link}: {target} has no heading #{anchor}")
    return findings


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return [".", *("/".join(parts[: depth + 1]) for depth in range(len(parts)))]


def _check_found(texts: dict[str, str], documents: dict[str, Document]) -> list[str]:
    """Every file in docs/ is linked from README.md, docs/README.md or the README.md of its own folder."""
    if not any(index in documents for index in ("README.md", "docs/README.md")):
        return []
    findings = []
    for path in texts:
        indexes = {"README.md", "docs/README.md", posixpath.join(posixpath.dirname(path), "README.md")}
        linked = {_target(index, link)[0] for index in indexes & documents.keys() for _, link in documents[index].links}
        known = path == "docs/README.md" or path in linked or path.removesuffix("/README.md") in linked
        if path.startswith("docs/") and not known:
            findings.append(f"{path}:1: no index links to it: add it to docs/README.md")
    return findings


def _check_changelog(documents: dict[str, Document]) -> list[str]:
    changelog = documents.get("CHANGELOG.md")
    if changelog and any(level == 2 and title.strip("[]") == "Unreleased" for _, level, title in changelog.headings):
        return []
    return ["CHANGELOG.md:1: has no section `## [Unreleased]`"]


def _compare(english: Document, chinese: Document) -> list[str]:
    """The two READMEs have headings of the same levels in the same order, and the same code blocks to the letter."""
    findings = []
    for what, here, there in (
        ("heading levels", [level for _, level, _ in english.headings], [level for _, level, _ in chinese.headings]),
        ("code blocks", english.code_blocks, chinese.code_blocks),
    ):
        if here != there:
            same = next(
                (n for n, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]),
                min(len(here), len(there)),
            )
            findings.append(f"{READMES[1]}:1: {what} differ from {READMES[0]} from number {same + 1} on")
    return findings
