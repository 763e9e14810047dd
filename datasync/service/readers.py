"""Who may read a dataset on this node besides the cache's owner: local accounts, decided by the policies in force.

Where settings name neither accounts nor a group nobody else may, and nobody is asked; the rest is
`datasync.service.reader_policies`. Raises `UsageError` for settings that are wrong, and what a look at the newest
policy raises.
"""

from collections.abc import Callable
from dataclasses import dataclass

from datasync.cache.gate import CLOSED, Gate
from datasync.repository.repository import OpenDataset
from datasync.service.session import Session

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Readers:
    """A gate with what decided it: `by` is `owner`, `group` or `policy`."""

    gate: Gate
    by: str
    policy: str = ""
    decided_by: tuple[str, ...] = ()


OWNER_ALONE = Readers(CLOSED, "owner")
NOBODY_ELSE = Readers(CLOSED, "policy")


def decide(
    session: Session, dataset: OpenDataset, group: str | None = None, *, fresh: bool, warn: Warn | None = None
) -> Readers:
    """Return who may read *dataset* here, with *group* as it was asked for; *fresh* asks the store for a newer policy
    than this machine has seen.
    """
    config = session.config
    if not config.accounts and group is None and config.cache_group is None:
        return OWNER_ALONE
    from datasync.service.reader_policies import ask  # the engine of policies takes 10 ms to load

    return ask(session, dataset, group, fresh=fresh, warn=warn or session.warn)
