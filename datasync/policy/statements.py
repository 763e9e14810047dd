"""Cedar's text before and after its parser: what would crash the parser, and what it lets pass that a policy must not.

The parser and what it builds are recursive native code: text that nests a thousand times ends the process, so nesting
and chains are counted first. A statement needs an id, and every user, group, node, job, tag and dataset that it names
has to be declared: a `forbid` for somebody who is misspelt would hold nobody back. Raises `UsageError`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from datasync.errors import UsageError
from datasync.policy.bundle import Bundle
from datasync.policy.entities import declared

NESTING = 64  # brackets and `if`s open at once, in one statement; the parser's stack ends near 500
CHAIN = 1_000  # operators of one statement; one that is named in no list is told to be split long before
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n\r]*|[()\[\]{};]|\bif\b|&&|\|\||[-+*.]', re.DOTALL)
_OPENS, _CLOSES = "([{", ")]}"


def check_shape(name: str, text: str) -> None:
    """Refuse text that nests or chains further than Cedar's parser can follow."""
    depth = ifs = chain = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == ";":
            depth = ifs = chain = 0
        elif token in _OPENS:
            depth += 1
        elif token in _CLOSES:
            depth -= 1
        elif token == "if":
            ifs += 1
        elif token[0] not in '"/':
            chain += 1
        if depth + ifs > NESTING or chain > CHAIN:
            raise UsageError(
                f"{name}: a statement nests deeper than {NESTING} levels or chains more than {CHAIN} operators: "
                "write several statements, or a list and `contains`"
            )


def parse_statements(cedar: Any, text: str) -> dict[str, Any]:
    """Return the statements by their @id, which each must have and no two share."""
    try:
        parsed = json.loads(cedar.policies_to_json_str(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"policy: does not parse: {error}") from None
    if parsed["templates"]:
        raise UsageError("policy: templates are not supported: write one statement for each case")
    named: dict[str, Any] = {}
    for statement in parsed["staticPolicies"].values():
        name = statement.get("annotations", {}).get("id")
        if not name:
            raise UsageError(f'policy: a {statement["effect"]} has no name: write @id("…") before it')
        if name in named:
            raise UsageError(f"policy: two statements are called {name!r}")
        named[name] = statement
    return named


def check_names(statements: dict[str, Any], bundle: Bundle) -> None:
    """Refuse a statement that names somebody or something that *bundle* does not declare."""
    known = declared(bundle)
    for name, statement in statements.items():
        for type_, named in _entities(statement):
            if type_ != "Action" and (type_, named) not in known:
                raise UsageError(f"policy: {name}: no {type_} is called {named!r}: declare it, or correct the name")


def _entities(value: Any) -> Iterator[tuple[str, str]]:
    """Yield (type, id) of every entity in Cedar's JSON."""
    for item in objects(value):
        if item.keys() == {"type", "id"} and all(isinstance(part, str) for part in item.values()):
            yield item["type"], item["id"]


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in Cedar's JSON."""
    parts: Iterable[Any] = ()
    if isinstance(value, dict):
        yield value
        parts = value.values()
    elif isinstance(value, list):
        parts = value
    for item in parts:
        yield from objects(item)
