"""Release a storage credential: for one dataset, for what a decision allows, for no longer than it allows it.

Recorded before it is issued, and not issued when that can not be written (design, section 8.7). S3 and what speaks its
STS; for other providers there is no broker in this version.
"""

import time
from typing import Any

from datasync.errors import NotAuthorized, UsageError
from datasync.format.names import MARKER, dataset_prefix
from datasync.policy import explain
from datasync.repository.repository import OpenDataset
from datasync.service.authorize import authorize, in_force
from datasync.service.caller import Asked, Claims, caller_of, grants_held, request_of
from datasync.service.policy_force import decision_time
from datasync.service.record import recorded
from datasync.service.session import Session
from datasync.storage.brokers import Credential, CredentialBroker, Scope
from datasync.storage.location import parse_url

READS = ("ReadMetadata", "ReadData", "Warm")
CREATES = ("PushSnapshot",)


def release(
    session: Session, name: str, action: str, seconds: float, broker: CredentialBroker | None = None
) -> Credential:
    """Return a credential with which this identity can do *action* on the dataset *name*, for at most *seconds*."""
    if action not in READS + CREATES:
        raise UsageError(f"action {action!r}: expected one of {', '.join(READS + CREATES)}")
    chosen = broker or s3_broker(session)
    dataset = session.repository.open(name)
    authorize(session, action, dataset)
    now = dataset.history.now()
    until = allowed_until(session, dataset, action, int(now + seconds * 1000)) // 1000
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
        request = request_of(policy.engine.bundle, caller, asked, dataset.name, now, grants)
        by_policy = policy.engine.decide(request).allow
        limit = min(
            limit, explain.allowed_until(policy.engine, request, limit) if by_policy else max(ends, default=now)
        )
    return limit


def s3_broker(session: Session) -> CredentialBroker:
    """Return the broker that the configuration names."""
    config = session.config
    where = parse_url(config.repository or "")
    if where.scheme != "s3" or config.credential_role is None:
        raise UsageError(
            "credentials: expected an s3:// repository and [policy] role, the ARN of a role that may do no more than "
            "read and create there"
        )
    from datasync.storage.s3.broker import S3StsBroker

    return S3StsBroker(where, config.credential_role, endpoint=config.sts_endpoint, clock=time.time)
