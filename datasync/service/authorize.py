"""Authorize: the one question that every action asks before it acts.

    authorize(session, "Warm", dataset, event=event, seq=snapshot.body.seq)

With no policy in force everything that the keys allow is allowed, and None is returned. Else the decision, noted on
*event*, or recorded as one of its own; a denial raises `NotAuthorized` (`datasync.service.decision`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from datasync.config import Config
from datasync.repository.repository import OpenDataset
from datasync.service.policy_force import InForce, dataset_policy, site_policy
from datasync.service.record import Recording, recorded
from datasync.service.session import Session

if TYPE_CHECKING:  # the engine of policies, which nobody needs where none is in force
    from datasync.service.caller import Claims
    from datasync.service.decision import Authorized

DECIDED = frozenset({"Warm"})  # what a control side has asked its policies when it lent a key


def authorize(
    where: Session | Config,
    action: str,
    dataset: OpenDataset | str | None = None,
    *,
    event: Recording | None = None,
    seq: int | None = None,
    age_days: int | None = None,
    approvers: Iterable[bytes] = (),
    fresh: bool = True,
    claims: "Claims | None" = None,
) -> "Authorized | None":
    """Allow *action* on *dataset* (opened, a name, or None: the repository), or raise `NotAuthorized`.

    *fresh* False asks the store for no newer policy than this machine has seen. *approvers* signed for this action.
    *claims*: somebody else asks, whose token was verified.
    """
    policies = in_force(where, dataset, fresh=fresh, action=action)
    if not policies:
        return None
    from datasync.service.decision import Asked, decide  # 10 ms to load

    asked = Asked(action, seq, age_days, frozenset(approvers))
    if event is not None:
        return decide(where, policies, asked, dataset, event, claims)
    name = dataset.name if isinstance(dataset, OpenDataset) else dataset
    with recorded(where, "policy.decide", durable=False, dataset=name, asked=action) as own:
        return decide(where, policies, asked, dataset, own, claims)


def in_force(
    where: Session | Config, dataset: OpenDataset | str | None, *, fresh: bool = True, action: str = ""
) -> list[InForce]:
    """Return the policies that decide about *dataset*. Who lent a key for *action* has asked the dataset's own; this
    machine's site decides always.
    """
    config = where if isinstance(where, Config) else where.config
    found = [site_policy(config)]
    decided = isinstance(where, Session) and where.decided and action in DECIDED
    if isinstance(where, Session) and isinstance(dataset, OpenDataset) and not decided:
        found.append(dataset_policy(where, dataset, fresh=fresh))
    return [item for item in found if item is not None]
