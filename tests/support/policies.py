"""Policies as Alibaba's RAM and Tencent's CAM have them: statements of effect, action, resource and condition.

Strict where the vendors are: an unknown word, operator, condition key or resource form is no policy at all. A denial
wins, and what no statement allows is denied. A condition whose key the request lacks does not hold.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.support.object_server import Wish

Operator = Callable[[str, str], bool]
"""Compares the request's value with one of the policy's."""


class NoPolicy(Exception):
    """The text does not parse."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A vendor's words. `operators` may be used with the condition keys of `keys` alone."""

    version: tuple[str, str]
    statement: str
    members: tuple[str, str, str, str]  # effect, action, resource, condition
    effects: tuple[str, str]  # allow, deny
    action: re.Pattern[str]
    resource: re.Pattern[str]
    operators: Mapping[str, Operator]
    keys: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Role:
    """A role: who may assume it (access keys), what it may do itself (empty: everything), and its longest session."""

    trusts: frozenset[str]
    policy: str = ""
    longest: int = 3_600  # seconds


def matches(value: str, pattern: str) -> bool:
    """Tell whether *value* is what *pattern* says; `*` stands for any characters, `?` for one."""
    parts = (re.escape(part).replace(r"\?", ".") for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), value, re.DOTALL) is not None


def equal(value: str, wanted: str) -> bool:
    return value == wanted


def earlier(value: str, wanted: str) -> bool:
    return datetime.fromisoformat(value) < datetime.fromisoformat(wanted)


def parse(text: str, grammar: Grammar) -> Callable[[Wish], bool]:
    """Return what decides by the policy in *text*; `NoPolicy` when it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        raise NoPolicy from None
    name, version = grammar.version
    if not isinstance(found, dict) or set(found) != {name, grammar.statement} or found[name] != version:
        raise NoPolicy
    statements = found[grammar.statement]
    if not isinstance(statements, list) or not statements:
        raise NoPolicy
    for statement in statements:
        _check(statement, grammar)
    return lambda wish: _decide(statements, grammar, wish)


def _check(statement: Any, grammar: Grammar) -> None:
    effect, action, resource, condition = grammar.members
    if not isinstance(statement, dict) or not {effect, action, resource} <= set(statement) <= set(grammar.members):
        raise NoPolicy
    if statement[effect] not in grammar.effects:
        raise NoPolicy
    for name, pattern in ((action, grammar.action), (resource, grammar.resource)):
        if not statement[name] or not all(pattern.fullmatch(item) for item in _items(statement[name])):
            raise NoPolicy
    for operator, pairs in statement.get(condition, {}).items():
        if operator not in grammar.operators or not pairs:
            raise NoPolicy
        for key, values in pairs.items():
            if operator not in grammar.keys.get(key, ()) or not _items(values):
                raise NoPolicy
            if grammar.operators[operator] is earlier:
                _dates(values)


def _dates(values: Any) -> None:
    try:
        [datetime.fromisoformat(value) for value in _items(values)]
    except ValueError:
        raise NoPolicy from None


def _items(found: Any) -> list[str]:
    items = [found] if isinstance(found, str) else found
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise NoPolicy
    return items


def _decide(statements: list[dict[str, Any]], grammar: Grammar, wish: Wish) -> bool:
    effects = {item[grammar.members[0]] for item in statements if _applies(item, grammar, wish)}
    allow, deny = grammar.effects
    return allow in effects and deny not in effects


def _applies(statement: dict[str, Any], grammar: Grammar, wish: Wish) -> bool:
    _, action, resource, condition = grammar.members
    return (
        any(matches(wish.action, item) for item in _items(statement[action]))
        and any(matches(wish.resource, item) for item in _items(statement[resource]))
        and all(
            key in wish.values and any(grammar.operators[operator](wish.values[key], item) for item in _items(values))
            for operator, pairs in statement.get(condition, {}).items()
            for key, values in pairs.items()
        )
    )
