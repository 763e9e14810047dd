"""Release a storage credential: for one dataset, for what a decision allows, for no longer than it allows it.

Recorded before it is issued, and not issued when that can not be written (design, section 8.7). Which broker issues it
is the repository's scheme; a provider's module is imported only when its turn comes.
"""

import time
from typing import Any

from datasync.errors import NotAuthorized, UsageError
from datasync.format.names import MARKER, dataset_prefix
from datasync.policy import explain
from datasync.repository.repository import OpenDataset
from datasync.service.authorize import authorize, in_force
from datasync.service.caller import Asked, Claims, caller_of, grants_held, request_of
from datasync.service.decision import standing
from datasync.service.policy_force import decision_time
from datasync.service.record import recorded
from datasync.service.session import Session
from datasync.storage.brokers import Credential, CredentialBroker, Scope, load
from datasync.storage.location import parse_url

READS = ("ReadMetadata", "ReadData", "Warm")
CREATES = ("PushSnapshot",)
BROKERS = {
    "s3": "datasync.storage.s3.broker:S3StsBroker",
    "oss": "datasync.storage.oss.broker:OssStsBroker",
    "cos": "datasync.storage.cos.broker:CosStsBroker",
    "gs": "datasync.storage.gcs.broker:GcsBroker",
    "az": "datasync.storage.azure.broker:AzureSasBroker",
}
"""For each scheme what issues: called with the URL and the role, and by name `endpoint` (or None) and `clock`."""


def release(
    session: Session, name: str, action: str, seconds: float, broker: CredentialBroker | None = None
) -> Credential:
    """Return a credential with which this identity can do *action* on the dataset *name*, for at most *seconds*."""
    if action not in READS + CREATES:
        raise UsageError(f"action {action!r}: expected one of {', '.join(READS + CREATES)}")
    chosen = broker or broker_of(session)
    dataset = session.repository.open(name)
    authorize(session, action, dataset)
    now = dataset.history.now()
    longest = int((time.time() + seconds) * 1000)  # by this machine's clock: a signed time may be ahead of it
    until = allowed_until(session, dataset, action, longest) // 1000
    if until <= now // 1000:
        raise NotAuthorized(f"dataset {name!r}: no time is left in which {action} is allowed")
    scope = Scope((MARKER, dataset_prefix(dataset.id)), until, create=action in CREATES)
    fields: dict[str, Any] = {"dataset": name, "dataset_id": dataset.id, "asked": action, "until": until}
    with recorded(session, "policy.credential", security=True, **fields):
        return chosen.issue(scope)


def allowed_until(session: Session, dataset: OpenDataset, action: str, limit: int, claims: Claims | None = None) -> int:
    """Return until when (ms, at most *limit*) what is allowed now stays allowed, by every policy and grant in force."""
    config, asked, caller = session.config, Asked(action), caller_of(session, claims)
    now = decision_time(config, dataset.history.now())
    grants = grants_held(config, dataset, caller, asked, now)
    ends = [item.until for item in grants if item.covers]
    for policy in in_force(session, dataset):
        held = standing(policy, grants, dataset.name, now)
        request = request_of(policy.engine.bundle, caller, asked, dataset.name, now, held)
        by_policy = policy.engine.decide(request).allow
        limit = min(
            limit, explain.allowed_until(policy.engine, request, limit) if by_policy else max(ends, default=now)
        )
    return limit


def broker_of(session: Session) -> CredentialBroker:
    """Return the broker for the repository's provider, with the role that the configuration names."""
    config = session.config
    where = parse_url(config.repository or "")
    if where.scheme not in BROKERS or config.credential_role is None:
        others = ", ".join(f"{scheme}://" for scheme in BROKERS if scheme != "s3")
        raise UsageError(
            f"credentials: expected an s3:// repository (or {others}) and [policy] role, what may do no more than read "
            "and create there (docs/policy.md)"
        )
    made: CredentialBroker = load(BROKERS[where.scheme], where.scheme)(
        where, config.credential_role, endpoint=config.sts_endpoint, clock=time.time
    )
    return made
