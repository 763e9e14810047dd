"""The evidence that a bundle's conditions ask for: every time, region, purpose, network and machine that they name.

Used to find whose access differs, what would have to change, and until when an answer stays as it is: a statement can
only turn on a value that it, or a dataset that it looks at, names.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations, product
from typing import Any

from datasync.policy.bundle import Bundle
from datasync.policy.model import Evidence
from datasync.policy.statements import objects
from datasync.policy.toml import moment

VALUES = 64  # of one kind of evidence, tried at most
ATTRIBUTES = {"age_days": "ageDays"}  # of the context, where Cedar's name is another one
ASSURANCES: dict[str, Any] = {"mfa": True, "attested": True, "approvals": 2}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
CONTEXT = {"Var": "context"}
NOW = {".": {"left": CONTEXT, "attr": "now"}}
Change = tuple[str, dict[str, Any]]
Changes = list[Change]


def changes(bundle: Bundle, statements: dict[str, Any]) -> Changes:
    """Return single changes of evidence, in words and as fields, that *statements* may turn on."""
    literals = _literals(statements)
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
    for when, text in sorted(_moments(literals["now"]).items())[:VALUES]:
        found += [(f"before {text}", {"now": when - 1}), (f"from {text} on", {"now": when})]
    asked = _attributes(statements)
    return [(words, fields) for words, fields in found if _attribute(fields) in asked]


def combined(offered: Changes, *, most_first: bool = False) -> Iterator[Change]:
    """Yield *offered*, then every two of them together that are about different kinds of evidence, then every three,
    to all kinds at once; or the other way round.
    """
    kinds: dict[str, Changes] = {}
    for words, fields in offered:
        kinds.setdefault(next(iter(fields)), []).append((words, fields))
    counts = range(1, len(kinds) + 1)
    for count in reversed(counts) if most_first else counts:
        for chosen in combinations(kinds.values(), count):
            for parts in product(*chosen):
                yield " and ".join(words for words, _ in parts), {k: v for _, one in parts for k, v in one.items()}


def situations(base: Evidence, offered: Changes) -> Iterator[tuple[str, Evidence]]:
    """Yield *base*, with each assurance alone and with all of them; and with all, each other change, and every region
    with every purpose.
    """
    best = replace(base, **ASSURANCES)
    yield "", base
    yield "with every assurance", best
    for words, fields in offered:
        yield words, replace(base if fields.items() <= ASSURANCES.items() else best, **fields)
    regions = [item for item in offered if "region" in item[1]]
    purposes = [item for item in offered if "purpose" in item[1]]
    for (one, left), (other, right) in product(regions, purposes):
        yield f"{one}, {other}", replace(best, **left, **right)


def rare_situations(base: Evidence, offered: Changes) -> Iterator[tuple[str, Evidence]]:
    """Yield *base*, with all assurances and without, changed in all kinds of evidence that are *offered* at once, then
    in fewer: a statement holds when all its conditions do.
    """
    best = replace(base, **ASSURANCES)
    for words, fields in combined(offered, most_first=True):
        if len(fields) > 1:
            yield words, replace(base, **fields)
            yield words, replace(best, **fields)


def turns(statements: dict[str, Any]) -> set[int]:
    """Return every moment (ms) at which a comparison with the time begins to come out differently."""
    moments = _moments(_literals(statements)["now"])
    return {when + after for when in moments for after in (0, 1)}


def is_time_plain(statements: dict[str, Any]) -> bool:
    """Tell whether every condition on the time compares it with a moment that it names, so that `turns` has them all;
    others compute with it: hours of the day, spans.
    """
    uses = compared = whole = 0
    for item in objects(list(statements.values())):
        uses += item.get("attr") == "now"
        compared += any(name in item and _names_moment(item[name]) for name in COMPARISONS)
        whole += (item == CONTEXT) - (item.get("left") == CONTEXT and "attr" in item)
    return uses == compared and whole == 0


def _names_moment(comparison: dict[str, Any]) -> bool:
    sides = [comparison.get("left"), comparison.get("right")]
    other = next((item for item in sides if item != NOW), None)
    if NOW not in sides or not isinstance(other, dict) or other.keys() != {"datetime"}:
        return False
    return len(_moments(set(_texts(other)))) == 1


def _attribute(fields: dict[str, Any]) -> str:
    name = next(iter(fields))
    return ATTRIBUTES.get(name, name)


def _attributes(statements: dict[str, Any]) -> set[str]:
    """Return the attributes of the context that any condition reads or asks for: nothing turns on the others."""
    return {item["attr"] for item in objects(list(statements.values())) if item.get("left") == CONTEXT}


def _literals(statements: dict[str, Any]) -> dict[str, set[str]]:
    """Return the texts that conditions compare each attribute of the context with."""
    found: dict[str, set[str]] = {"region": set(), "purpose": set(), "source": set(), "now": set()}
    for statement in statements.values():
        for node in objects(statement.get("conditions", [])):
            attributes = {item["attr"] for item in objects(node) if item.get("left") == CONTEXT}
            named = attributes & found.keys()
            if len(named) == 1 and not {"&&", "||", "if-then-else", "!"} & node.keys():
                found[named.pop()] |= set(_texts(node))
    return found


def _texts(value: Any) -> Iterator[str]:
    for node in objects(value):
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
        found[moment(whole)] = text
    return found
