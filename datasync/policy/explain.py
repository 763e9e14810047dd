"""Why a decision came out as it did, and what would have to change: each suggestion was decided, none is guessed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from datasync.policy.decide import PolicyEngine
from datasync.policy.model import Decision, Evidence, Principal, Request
from datasync.policy.situations import changes

SUGGESTIONS = 12


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision, the statements that decided with their words, and what would allow it."""

    request: Request
    decision: Decision
    because: tuple[str, ...]
    would_allow: tuple[str, ...]


def explain(engine: PolicyEngine, request: Request) -> Explanation:
    """Return why *engine* decides so."""
    decision = engine.decide(request)
    because = tuple(_words(engine, policy) for policy in decision.reasons)
    if decision.errors:
        because += tuple(f"denied for an error: {text}" for text in decision.errors)
    elif not decision.reasons:
        because = ("no policy permits it",)
    return Explanation(request, decision, because, () if decision.allow else tuple(_would_allow(engine, request)))


def _words(engine: PolicyEngine, policy: str) -> str:
    reason = engine.reason(policy)
    return f"{policy}: {reason}" if reason else policy


def _would_allow(engine: PolicyEngine, request: Request) -> Iterable[str]:
    """Return in words which changes of the evidence, one or two at once, or which grants would allow *request*."""
    offered = changes(engine)
    single = [(words, _with(request.evidence, fields)) for words, fields in offered]
    found = _allowed(engine, request, single)
    if not found:
        pairs = [
            (f"{one} and {other}", _with(request.evidence, left | right))
            for position, (one, left) in enumerate(offered)
            for other, right in offered[position + 1 :]
            if not left.keys() & right.keys()
        ]
        found = _allowed(engine, request, pairs)
    return found[:SUGGESTIONS] or list(_as_others(engine, request))[:SUGGESTIONS]


def _with(evidence: Evidence, fields: dict[str, object]) -> Evidence:
    return replace(evidence, **fields)  # type: ignore[arg-type]


def _allowed(engine: PolicyEngine, request: Request, tried: list[tuple[str, Evidence]]) -> list[str]:
    decisions = engine.decide_all([replace(request, evidence=evidence) for _, evidence in tried])
    return [words for (words, _), decision in zip(tried, decisions, strict=True) if decision.allow]


def _as_others(engine: PolicyEngine, request: Request) -> Iterable[str]:
    """Yield the grants by which others may do the same."""
    others = [item for item in engine.bundle.principals() if item != request.principal]
    decisions = engine.decide_all([replace(request, principal=item) for item in others])
    by_grant: dict[str, Principal] = {}
    for other, decision in zip(others, decisions, strict=True):
        if decision.allow:
            by_grant.update({policy: other for policy in decision.reasons if policy not in by_grant})
    for policy, other in by_grant.items():
        yield f"being among those whom {policy} names, as {other} is"


def allowed_until(engine: PolicyEngine, request: Request, limit: int) -> int:
    """Return until when (ms, at most *limit*) what is allowed now stays allowed, as far as the bundle's times say;
    now, when it can not be told.
    """
    now = request.evidence.now
    told = {fields["now"] for _, fields in changes(engine) if "now" in fields}
    times = sorted(item for item in told | {limit - 1} if now < item < limit)
    decisions = engine.decide_all([replace(request, evidence=replace(request.evidence, now=time)) for time in times])
    for time, decision in zip(times, decisions, strict=True):
        if not decision.allow:
            return time if time in told else now
    return limit
