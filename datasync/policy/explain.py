"""Why a decision came out as it did, and what would have to change: each suggestion was decided, none is guessed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from datasync.policy.decide import PolicyEngine
from datasync.policy.model import Decision, Evidence, Principal, Request
from datasync.policy.situations import Changes, changes, combined, is_time_plain, turns

SUGGESTIONS = 12
SEARCH = 20_000  # situations that are tried for a person who asks why; about three seconds
BATCH = 1_000
STEP_MS = 60_000  # how closely conditions that compute with the time are looked at
STEPS = 1_440  # a day of them


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision, the statements that decided with their words, and what would allow it; *whole* False: there are
    situations that were not tried.
    """

    request: Request
    decision: Decision
    because: tuple[str, ...]
    would_allow: tuple[str, ...]
    whole: bool = True


def explain(engine: PolicyEngine, request: Request, search: int = SEARCH) -> Explanation:
    """Return why *engine* decides so, and what would allow it as far as *search* situations tell."""
    decision = engine.decide(request)
    because = tuple(_words(engine, policy) for policy in decision.reasons)
    if decision.errors:
        because += tuple(f"denied for an error: {text}" for text in decision.errors)
    elif not decision.reasons:
        because = ("no policy permits it",)
    if decision.allow:
        return Explanation(request, decision, because, ())
    return Explanation(request, decision, because, *_would_allow(engine, request, search))


def _words(engine: PolicyEngine, policy: str) -> str:
    reason = engine.reason(policy)
    return f"{policy}: {reason}" if reason else policy


def _would_allow(engine: PolicyEngine, request: Request, search: int) -> tuple[tuple[str, ...], bool]:
    """Return in words which changes of the evidence, as few kinds at once as there have to be, or else which grants,
    would allow *request*; and whether all was tried.
    """
    if not search:
        return (), False
    told = {field: getattr(request.evidence, field) for field in request.evidence.__slots__}
    offered = [
        (words, fields)
        for words, fields in changes(engine.bundle, engine.about(request.action))
        if not fields.items() <= told.items()
    ]
    situations, tried = combined(offered), 0
    found: list[str] = []
    kinds = 0  # of the suggestions found: those that change more are not better
    while tried < search and (batch := list(islice(situations, min(BATCH, search - tried)))):
        tried += len(batch)
        for words, fields in _allowed(engine, request, batch):
            kinds = kinds or len(fields)
            found += [words] if len(fields) == kinds else []
        if found and len(batch[-1][1]) > kinds:
            break
    whole = bool(found) or next(situations, None) is None
    return tuple(found[:SUGGESTIONS] or list(_as_others(engine, request))[:SUGGESTIONS]), whole


def _allowed(engine: PolicyEngine, request: Request, tried: Changes) -> Changes:
    asked = [replace(request, evidence=_with(request.evidence, fields)) for _, fields in tried]
    return [item for item, decision in zip(tried, engine.decide_all(asked), strict=True) if decision.allow]


def _with(evidence: Evidence, fields: dict[str, Any]) -> Evidence:
    return replace(evidence, **fields)


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
    """Return until when (ms, at most *limit*) what is allowed now stays allowed, as the bundle's conditions on the time
    say. Where they compute with it, it is looked at minute by minute, for a day at most.
    """
    now, about = request.evidence.now, engine.about(request.action)
    exact, steps, plain = turns(about), set[int](), is_time_plain(about)
    if not plain:
        limit = min(limit, now + STEPS * STEP_MS)
        steps = set(range(now + STEP_MS, limit, STEP_MS))
    times = sorted(item for item in exact | steps | {limit - 1} if now < item < limit)
    decisions = engine.decide_all([replace(request, evidence=_with(request.evidence, {"now": time})) for time in times])
    sure = now
    for time, decision in zip(times, decisions, strict=True):
        if not decision.allow:
            return time if plain else sure
        sure = time
    return limit
