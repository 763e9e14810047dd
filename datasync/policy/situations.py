"""The evidence that a bundle's conditions ask for: every time, region, purpose, network and machine that they name.

Used to find whose access differs, and what would have to change: a statement can only turn on a value that it, or a
dataset that it looks at, names.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

from datasync.policy.decide import PolicyEngine
from datasync.policy.model import Evidence

VALUES = 64  # of one kind of evidence, tried at most
ATTRIBUTES = {"age_days": "ageDays"}  # of the context, where Cedar's name is another one
ASSURANCES: dict[str, Any] = {"mfa": True, "attested": True, "approvals": 2}
Changes = list[tuple[str, dict[str, Any]]]


def changes(engine: PolicyEngine) -> Changes:
    """Return single changes of evidence, in words and as fields, that a decision of *engine* may turn on."""
    bundle, literals = engine.bundle, _literals(engine.statements)
    datasets, nodes = bundle.policy.datasets.values(), bundle.policy.nodes
    regions = literals["region"] | {item for part in datasets for item in part.allowed_regions or ()}
    purposes = literals["purpose"] | {item for part in datasets for item in part.purposes or ()}
    found: Changes = [(f"in region {item}", {"region": item}) for item in sorted(regions)[:VALUES]]
    found += [(f"for purpose {item}", {"purpose": item}) for item in sorted(purposes)[:VALUES]]
    found += [(f"on node {item}", {"node": item}) for item in sorted(nodes)[:VALUES]]
    found += [(f"from {item}", {"source": item.partition("/")[0]}) for item in sorted(literals["source"])[:VALUES]]
    found += [("with a second factor", {"mfa": True}), ("on an attested machine", {"attested": True})]
    found += [("with two approvals", {"approvals": 2})]
    ages = {part.retention_days for part in datasets if part.retention_days is not None}
    found += [(f"for a snapshot {item} days old", {"age_days": item}) for item in sorted(ages)[:VALUES]]
    for moment, text in sorted(_moments(literals["now"]).items())[:VALUES]:
        found += [(f"before {text}", {"now": moment - 1}), (f"from {text} on", {"now": moment})]
    asked = _attributes(engine.statements)
    return [(words, fields) for words, fields in found if _attribute(fields) in asked]


def situations(base: Evidence, offered: Changes) -> list[tuple[str, Evidence]]:
    """Return *base*, with each assurance alone and with all of them; and with all, each other change, and every
    region with every purpose: an exact search over all evidence at once would never end.
    """
    best = replace(base, **ASSURANCES)
    found = [("", base), ("with every assurance", best)]
    for words, fields in offered:
        alone = fields.items() <= ASSURANCES.items()
        found.append((words, replace(base if alone else best, **fields)))
    regions = [item for item in offered if "region" in item[1]]
    purposes = [item for item in offered if "purpose" in item[1]]
    pairs = product(regions, purposes)
    return found + [(f"{one}, {other}", replace(best, **left, **right)) for (one, left), (other, right) in pairs]


def _attribute(fields: dict[str, Any]) -> str:
    name = next(iter(fields))
    return ATTRIBUTES.get(name, name)


def _attributes(statements: dict[str, Any]) -> set[str]:
    """Return the attributes of the context that any condition reads or asks for: nothing turns on the others."""
    return {item["attr"] for item in _nodes(list(statements.values())) if item.get("left") == {"Var": "context"}}


def _literals(statements: dict[str, Any]) -> dict[str, set[str]]:
    """Return the texts that conditions compare each attribute of the context with."""
    found: dict[str, set[str]] = {"region": set(), "purpose": set(), "source": set(), "now": set()}
    for statement in statements.values():
        for node in _nodes(statement.get("conditions", [])):
            attributes = {item["attr"] for item in _nodes(node) if item.get("left") == {"Var": "context"}}
            named = attributes & found.keys()
            if len(named) == 1 and not {"&&", "||", "if-then-else", "!"} & node.keys():
                found[named.pop()] |= set(_texts(node))
    return found


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in Cedar's JSON, those with `attr` included."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _nodes(item)
    elif isinstance(value, list):
        for item in value:
            yield from _nodes(item)


def _texts(value: Any) -> Iterator[str]:
    for node in _nodes(value):
        if isinstance(node.get("Value"), str):
            yield node["Value"]


def _moments(texts: set[str]) -> dict[int, str]:
    found = {}
    for text in texts:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            continue
        whole = when if when.tzinfo else when.replace(tzinfo=UTC)
        found[int(whole.timestamp() * 1000)] = text
    return found
