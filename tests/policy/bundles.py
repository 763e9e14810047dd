"""The shipped examples, loaded as a site would load them."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from datasync.policy.bundle import parse_bundle
from datasync.policy.decide import PolicyEngine
from datasync.policy.model import Decision, Evidence, Request, parse_principal

POLICIES = Path(__file__).parents[2] / "policies"
EXAMPLES = sorted(path.name for path in (POLICIES / "examples").iterdir())
NOON = int(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp() * 1000)


def files(example: str) -> dict[str, str]:
    """Return an example's files by name."""
    return {path.name: path.read_text() for path in (POLICIES / "examples" / example).iterdir()}


@cache
def shipped_engine(example: str) -> PolicyEngine:
    """Return the engine of an example."""
    return PolicyEngine(parse_bundle(files(example)), "d" * 64)


def engine(policy: str, **more: str) -> PolicyEngine:
    """Return the engine of a policy.toml; *more* are statements in Cedar."""
    return PolicyEngine(parse_bundle({"policy.toml": policy, **{f"{name}.cedar": text for name, text in more.items()}}))


def ask(decider: PolicyEngine, who: str, action: str, dataset: str | None, **evidence: Any) -> Decision:
    """Return a decision; by default at noon on 1 June 2026."""
    given = Evidence(**{"now": NOON, **evidence})
    return decider.decide(Request(parse_principal(who), action, dataset, given))
