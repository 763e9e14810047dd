"""The decision about one action, once a policy is in force: who asks, by what evidence, and why not.

Who asks is this machine's identity, as the policy's `identities` name it; region, purpose and node come from the policy
itself (by the node's key) or from an offline grant that an owner signed, never from the caller. Asked by
`datasync.service.authorize` alone. Raises `NotAuthorized` that says what would be allowed.
"""

from dataclasses import dataclass, replace

from datasync.config import Config
from datasync.crypto.signatures import signer_text
from datasync.errors import NotAuthorized
from datasync.policy.explain import explain
from datasync.policy.model import Decision, Evidence, Request
from datasync.policy.situations import changes, situations
from datasync.repository.repository import OpenDataset
from datasync.service.caller import Asked, Claims, Held, caller_of, grants_held, request_of
from datasync.service.policy_force import InForce, decision_time
from datasync.service.record import Recording
from datasync.service.session import Session

__all__ = ["Asked", "Authorized", "decide", "standing"]

HINTS = 3
GRANTING = "ManageKeys"  # what who signs offline grants has to be allowed
HINT_SEARCH = 500  # situations that are tried for the hints of a denial; `policy explain` tries more


@dataclass(frozen=True, slots=True)
class Authorized:
    """An allowed action: what the event says of it."""

    policy: str
    decided_by: tuple[str, ...]


def decide(
    where: Session | Config,
    policies: list[InForce],
    asked: Asked,
    dataset: OpenDataset | str | None,
    event: Recording,
    claims: Claims | None,
) -> Authorized:
    """Return what allows what is *asked* by all of *policies*, noted on *event*; raise `NotAuthorized`."""
    config = where if isinstance(where, Config) else where.config
    opened = dataset if isinstance(dataset, OpenDataset) else None
    now = decision_time(config, opened.history.now() if opened is not None else 0)
    caller = caller_of(where, claims)
    grants = grants_held(config, opened, caller, asked, now) if opened is not None else []
    name = opened.name if opened is not None else dataset if isinstance(dataset, str) else None
    digests = " ".join(item.engine.digest for item in policies)
    decided: list[str] = []
    for policy in policies:
        held = standing(policy, grants, name, now)
        request = request_of(policy.engine.bundle, caller, asked, name, now, held)
        decision = policy.engine.decide(request)
        decided += [f"{policy.source}:{reason}" for reason in decision.reasons]
        event.note(policy_warning=policy.warning or None, **_circumstances(policy, request))
        if decision.allow:
            continue
        if decision.reasons or decision.errors or not _covered(held):
            event.decided(digests, tuple(decided))
            raise _denied(policy, request, decision, stranger=claims is not None)
        decided.append(f"{policy.source}:grant")
    event.decided(digests, tuple(decided))
    return Authorized(digests, tuple(decided))


def _circumstances(policy: InForce, request: Request) -> dict[str, str | None]:
    """Return what the event tells of the evidence: what the policy says of the dataset, and what was verified of who
    asks; None where nothing is known.
    """
    part = policy.engine.bundle.policy.datasets.get(request.dataset or "")
    return {
        "classification": part.classification if part is not None else None,
        "purpose": request.evidence.purpose,
        "attestation": "verified" if request.evidence.attested else None,
    }


def standing(policy: InForce, grants: list[Held], dataset: str | None, now: int) -> list[Held]:
    """Return *grants* as they stand under *policy*: who may manage no keys there, in whatever situation, allows nothing
    and vouches for nothing; an approval is a person's own word and stays.
    """
    return [
        item if _may_grant(policy, item.issuer, dataset, now) else replace(item, covers=False, region="", purpose="")
        for item in grants
    ]


def _may_grant(policy: InForce, issuer: bytes, dataset: str | None, now: int) -> bool:
    principal = policy.engine.bundle.known_as(signer_text(issuer))
    if principal is None:
        return False
    offered = changes(policy.engine.bundle, policy.engine.about(GRANTING))
    now_only = [item for item in offered if "now" not in item[1]]
    asked = [Request(principal, GRANTING, dataset, evidence) for _, evidence in situations(Evidence(now), now_only)]
    return any(decision.allow for decision in policy.engine.decide_all(asked))


def _covered(grants: list[Held]) -> bool:
    """Tell whether a grant decided this already: it stands where no policy permits, never where one forbids."""
    return any(item.covers for item in grants)


def _denied(policy: InForce, request: Request, decision: Decision, *, stranger: bool) -> NotAuthorized:
    """Return the refusal; a *stranger* who asks from elsewhere is not told what others may."""
    told = explain(policy.engine, request, 0 if stranger else HINT_SEARCH)
    where = f"dataset {request.dataset!r}" if request.dataset is not None else "repository"
    text = f"{where}: {request.principal} may not {request.action}: {'; '.join(told.because)}"
    if told.would_allow:
        text += f" (it would be allowed {', or '.join(told.would_allow[:HINTS])})"
    return NotAuthorized(f"{text}; policy {decision.policy_digest[:16]} of {policy.source}")
